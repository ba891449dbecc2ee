// The write side of a store: admission, small and large writes, zeros, removal.
//
// Invariants
//   I-STORE-3  no_space is decided before a sequence is assigned; an admitted write always finds
//   its
//              home, because it holds a reservation or overwrites blocks that have one.
//   I-STORE-4  A record that names extents is appended only after their data is on stable media
//   (S2).
#pragma once

#include <functional>

#include "dataplane/store/store_state.h"

namespace sarsen {

class StoreWrite final : public JournalObserver {
 public:
  explicit StoreWrite(StoreState& state) : state_(state) {}
  // How to get freed space back now: destage and checkpoint. Set once, before use.
  void set_reclaim(std::function<Task<Result<void>>()> reclaim) { reclaim_ = std::move(reclaim); }

  Task<Result<void>> write(WriteRequest request);
  Task<Result<void>> zero(ObjectKey object, BlockRange range, WriteStamp stamp);
  Task<Result<void>> remove(ObjectKey object, WriteStamp stamp);

  // Writes again what a recovery believed without proof, under new sequences (rule S1). All of it
  // is read before any is written: then the destager may free where it was.
  struct Again {
    JournalRecord record;
    Buffer data;
    std::size_t bytes = 0;
  };
  Task<Result<std::vector<Again>>> read_again(RecoveredRecord recovered);
  Task<Result<void>> write_again(Again piece);

  void on_durable(JournalRecord record, const JournalReceipt& receipt, std::uint64_t tag) override;

 private:
  Task<Result<void>> write_large(WriteRequest request);
  Task<Result<void>> write_in_pieces(WriteRequest request);
  std::uint64_t blocks_without_home(const ObjectKey& object, BlockRange range,
                                    bool look_at_leaves) const;
  std::optional<std::uint64_t> reserve_at_once(Lane& lane, const ObjectKey& object,
                                               BlockRange range, bool look_at_leaves);
  Task<Result<std::uint64_t>> reserve_homes(Lane& lane, ObjectKey object, BlockRange range);
  Task<Result<DeviceRuns>> allocate_extents(Lane& lane, std::uint32_t blocks);
  Task<Result<void>> write_run(DeviceRun run, std::span<const std::byte> data);
  Task<Result<void>> write_extents(std::span<const std::byte> data, DeviceRuns runs);
  Task<Result<void>> append(JournalRecord record, std::span<const std::byte> data,
                            std::uint64_t tag);

  Task<Result<void>> try_write(WriteRequest request);
  bool space_is_on_its_way() const;
  static bool may_come_back(const Lane& lane, std::uint32_t blocks);

  StoreState& state_;
  std::function<Task<Result<void>>()> reclaim_;
};

}  // namespace sarsen
