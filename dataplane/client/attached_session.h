// AttachedSession: what ImageSession::open() makes. Cuts ranges into objects, lets operations that
// overlap go one after the other, and hands each part to the ObjectCaller.
//
// Bounded    in_flight_bytes_max bytes of reads and writes; parts_max parts of one operation side
//            by side.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "dataplane/client/image_session.h"
#include "dataplane/client/object_caller.h"
#include "dataplane/runtime/range_lock.h"
#include "dataplane/runtime/semaphore.h"

namespace sarsen {

// The parts of [offset, offset + length), in order. An empty range has none.
std::vector<ObjectPart> split_by_object(std::uint64_t offset, std::uint64_t length);

class AttachedSession final : public ImageSession {
 public:
  AttachedSession(const Env& env, MapSource& map, ImageSessionOptions options);

  Task<void> stop() override;
  bool fenced() const override { return caller_.fenced(); }
  ImageSessionStats stats() const override;

  std::uint64_t size_bytes() const override { return caller_.image().size_bytes; }
  bool read_only() const override { return caller_.attachment().mode == AttachMode::read_only; }
  Task<Result<void>> read(std::uint64_t offset, std::span<std::byte> into) override;
  Task<Result<void>> write(std::uint64_t offset, std::span<const std::byte> from) override;
  Task<Result<void>> trim(std::uint64_t offset, std::uint64_t length) override;
  Task<Result<void>> write_zeroes(std::uint64_t offset, std::uint64_t length,
                                  bool keep_allocated) override;
  Task<Result<void>> flush() override;
  Task<Result<std::vector<BlockStatus>>> status(std::uint64_t offset, std::uint64_t length,
                                                std::uint32_t runs_max) override;

 private:
  // Sends one part; called when it is the part's turn.
  using SendPart = std::function<Task<Result<void>>(ObjectPart, CallerPatience)>;

  Result<void> check(std::uint64_t offset, std::uint64_t length, bool change) const;
  Task<Result<void>> run(std::uint64_t offset, std::uint64_t length, bool change, SendPart send);
  Task<Result<void>> run_parts(const std::vector<ObjectPart>* parts, std::size_t* next, bool change,
                               const SendPart* send, CallerPatience patience);
  Task<Result<void>> run_part(ObjectPart part, bool change, const SendPart* send,
                              CallerPatience patience);
  Task<Result<std::vector<wire::Run>>> part_status(ObjectPart part, std::uint32_t runs_max,
                                                   CallerPatience patience);
  Task<Result<std::vector<BlockStatus>>> status_until(std::uint64_t offset, std::uint64_t length,
                                                      std::uint32_t runs_max,
                                                      CallerPatience patience);
  Deadline operation_deadline() const;

  const Env& env_;
  const ImageSessionOptions options_;
  ObjectCaller caller_;
  RangeLockTable<wire::ObjectNumber> locks_;
  Semaphore in_flight_bytes_;
  ImageSessionStats stats_;
  Gate operations_;
};

}  // namespace sarsen
