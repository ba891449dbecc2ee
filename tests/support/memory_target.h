// A BlockTarget in memory: sparse, with faults a test can switch on.
#pragma once

#include <coroutine>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "dataplane/client/block_target.h"
#include "dataplane/runtime/env.h"

namespace sarsen::test {

class MemoryTarget final : public BlockTarget {
 public:
  MemoryTarget(Executor& executor, std::uint64_t size_bytes, bool read_only = false)
      : executor_(executor), size_bytes_(size_bytes), read_only_(read_only) {}

  std::uint64_t size_bytes() const override { return size_bytes_; }
  bool read_only() const override { return read_only_; }
  Task<Result<void>> read(std::uint64_t offset, std::span<std::byte> into) override;
  Task<Result<void>> write(std::uint64_t offset, std::span<const std::byte> from) override;
  Task<Result<void>> trim(std::uint64_t offset, std::uint64_t length) override;
  Task<Result<void>> write_zeroes(std::uint64_t offset, std::uint64_t length,
                                  bool keep_allocated) override;
  Task<Result<void>> flush() override;
  Task<Result<std::vector<BlockStatus>>> status(std::uint64_t offset, std::uint64_t length,
                                                std::uint32_t runs_max) override;

  // Every operation answers this from now on (nothing: they succeed).
  void fail_with(std::optional<Error> error) { failure_ = std::move(error); }
  // Operations wait until release() once this is set.
  void hold() { held_ = true; }
  void release();
  std::size_t waiting() const { return waiters_.size(); }

 private:
  using Block = std::vector<std::byte>;
  struct Turn;  // co_await: the operation's place among the others
  Result<void> outcome() const;
  // Calls visit(block index, offset in the block, offset in the range, length).
  template <typename Visit>
  static void for_each_block(std::uint64_t offset, std::uint64_t length, Visit visit);

  Executor& executor_;
  std::uint64_t size_bytes_;
  bool read_only_;
  bool held_ = false;
  std::optional<Error> failure_;
  std::vector<std::coroutine_handle<>> waiters_;
  std::map<std::uint64_t, Block> blocks_;  // the allocated ones, by index
};

}  // namespace sarsen::test
