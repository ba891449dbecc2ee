// WriteCache: writes that completed and are not certain to be on stable media, in the order of
// their completion. Sector by sector, because a durable write may settle a part of an older entry.
//
// Not thread-safe: under the disk's lock.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <span>
#include <vector>

namespace sarsen::sim {

struct UnflushedWrite {
  std::uint64_t number = 0;  // rises with completion
  std::uint64_t offset = 0;
  std::vector<std::byte> data;
  std::vector<std::uint8_t> live;  // per sector: 1 while its fate is open
  std::size_t live_count = 0;
};

class WriteCache {
 public:
  explicit WriteCache(std::uint64_t device_bytes);

  std::list<UnflushedWrite>& writes() { return writes_; }
  bool empty() const { return writes_.empty(); }
  std::uint64_t bytes() const { return bytes_; }
  // The number that the next write will have; a flush that starts now covers those below.
  std::uint64_t next_number() const { return next_number_; }

  void add(std::uint64_t offset, std::span<const std::byte> data);
  // The range got bytes that are newer than those of every entry below `number`.
  void settle(std::uint64_t offset, std::uint64_t size, std::uint64_t number);
  std::list<UnflushedWrite>::iterator remove(std::list<UnflushedWrite>::iterator entry);
  void clear();
  // True when an entry may touch the range; quick, and wrong only on the safe side.
  bool touches(std::uint64_t offset, std::uint64_t size) const;

  // Calls `action(offset, bytes)` for each run of live sectors.
  static void for_each_live_run(
      const UnflushedWrite& entry,
      const std::function<void(std::uint64_t, std::span<const std::byte>)>& action);

 private:
  static constexpr std::uint64_t kRegionBytes = 64 * 1024;
  void count(const UnflushedWrite& entry, int change);

  std::list<UnflushedWrite> writes_;
  std::uint64_t bytes_ = 0;
  std::uint64_t next_number_ = 1;
  std::vector<std::uint32_t> region_entries_;
};

}  // namespace sarsen::sim
