// BlockModel: one image as a register per 4 KiB block, and the judge of what reads may return.
//
// Every write has an id of its own, so a read says which write it read from. Each block must be
// linearizable: there is an order of all operations on it that respects real time (an operation
// that ended before another began comes first) and in which each read returns the latest write.
// With reads-from known this is decidable in a streaming way (Gibbons and Korach): each value has a
// zone, from the first end of an operation that wrote or read it to the last begin of one; two
// zones that run forward may not overlap, and none may lie within another's.
//
// Writes     acknowledged: took effect between begin and end. refused: had no effect. unknown (an
//            error, a crash): takes effect at some time up to recovered(), or never.
// Zeros      Trim and write-zeroes write zeros, and so is what was never written. A read of zeros
// must
//            be explained by one of them; which one is not concluded.
// Multi-block operations are not atomic; each block is judged alone.
// Shard      None; called in the order of events.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/model/payload.h"

namespace sarsen::model {

using ReadId = Strong<struct ReadIdTag>;

class BlockModel {
 public:
  // All of the image reads as zeros. `image` is what payloads say.
  BlockModel(std::uint64_t image, std::uint64_t block_count);

  std::uint64_t image() const { return image_; }
  std::uint64_t block_count() const { return blocks_.size(); }

  // The bytes to write are fill_blocks(buffer, image(), first, id).
  WriteId begin_write(BlockIndex first, std::uint64_t count) { return begin(first, count, false); }
  // Trim or write-zeroes.
  WriteId begin_zero(BlockIndex first, std::uint64_t count) { return begin(first, count, true); }
  void acknowledged(WriteId id);
  void refused(WriteId id);
  void unknown(WriteId id);
  // The system has recovered from a crash and serves again: writes whose outcome is unknown have
  // taken effect by now, or never will.
  void recovered();

  ReadId begin_read(BlockIndex first, std::uint64_t count);
  // The violation, if the bytes are not what the blocks may hold.
  std::optional<std::string> end_read(ReadId id, std::span<const std::byte> bytes);
  // The read gave an error, or died. Whether it may, is for the caller to judge.
  void forget_read(ReadId id) { reads_.erase(id.value); }

  std::uint64_t writes_acknowledged() const { return writes_acknowledged_; }
  std::uint64_t blocks_checked() const { return blocks_checked_; }

 private:
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  // One value that a block has, had, or may get.
  struct Value {
    WriteId write;
    bool zeros = false;
    // Nobody knows whether the write took effect; no constraint until it is read.
    bool optional = false;
    std::uint64_t begun = 0;
    // When its effect is certain to have happened, if it happens.
    std::uint64_t effect_end = kNever;
    std::uint64_t first_end = kNever;  // of the operations on it
    std::uint64_t last_begin = 0;
    std::uint64_t touched = 0;  // when its zone last changed
    std::uint64_t dead_since = kNever;
  };
  struct Range {
    BlockIndex first;
    std::uint64_t count = 0;
    std::uint64_t begun = 0;
  };

  WriteId begin(BlockIndex first, std::uint64_t count, bool zeros);
  Range end_write(WriteId id);
  Value* find(BlockIndex block, WriteId write);
  std::optional<std::string> read_value(BlockIndex block, std::span<const std::byte> bytes,
                                        std::uint64_t begun);
  static bool conflict(const Value& a, const Value& b);
  static bool fits(const std::vector<Value>& values, const Value& changed);
  static Value after_read(const Value& value, std::uint64_t begun, std::uint64_t ended);
  void prune(std::vector<Value>& values);
  std::string complaint(BlockIndex block, std::span<const std::byte> bytes, const char* what) const;

  std::uint64_t image_;
  std::vector<std::vector<Value>> blocks_;
  std::map<std::uint64_t, Range> open_writes_;
  std::map<std::uint64_t, Range> unknown_writes_;
  std::map<std::uint64_t, Range> reads_;
  std::uint64_t time_ = 0;  // rises with every call
  std::uint64_t next_write_ = 1;
  std::uint64_t next_read_ = 1;
  std::uint64_t writes_acknowledged_ = 0;
  std::uint64_t blocks_checked_ = 0;
};

}  // namespace sarsen::model
