#include "dataplane/store/metadata/device_table.h"

#include <algorithm>
#include <string>

#include "dataplane/store/metadata/metadata_error.h"

namespace sarsen {
namespace {

struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

Unexpected bad_geometry(std::string detail) {
  return fail(make_error(MetadataError::bad_geometry, std::move(detail)));
}

Result<void> check_sizes(const TableGeometry& geometry) {
  if (geometry.unit_bytes < kBlockBytes || geometry.unit_bytes % kBlockBytes != 0) {
    return bad_geometry("unit_bytes is " + std::to_string(geometry.unit_bytes) +
                        ", must be a multiple of 4096");
  }
  if (geometry.chunk_bytes == 0 || geometry.chunk_bytes % geometry.unit_bytes != 0) {
    return bad_geometry("chunk_bytes is " + std::to_string(geometry.chunk_bytes) +
                        ", must be a multiple of unit_bytes");
  }
  const std::uint64_t units_per_chunk = geometry.chunk_bytes / geometry.unit_bytes;
  if (geometry.chunk_count == 0 || units_per_chunk > 0xffffffffu / geometry.chunk_count) {
    return bad_geometry(std::to_string(geometry.chunk_count) + " chunks of " +
                        std::to_string(units_per_chunk) + " units cannot be counted in 32 bits");
  }
  if (geometry.region_bytes < 4 * kBlockBytes || geometry.region_bytes % kBlockBytes != 0) {
    return bad_geometry("region_bytes is " + std::to_string(geometry.region_bytes) +
                        ", must be a multiple of 4096 and at least 16384");
  }
  return {};
}

// The four region ranges and the chunk area: on the device, aligned, disjoint.
Result<void> check_geometry(const TableGeometry& geometry, std::uint64_t device_bytes) {
  SARSEN_TRY(check_sizes(geometry));
  std::vector<Range> ranges;
  for (const auto& region : geometry.regions) {
    for (const ByteOffset mirror : region) {
      ranges.push_back({mirror.value, mirror.value + geometry.region_bytes});
    }
  }
  ranges.push_back({geometry.chunk_area.value,
                    geometry.chunk_area.value + geometry.chunk_bytes * geometry.chunk_count});
  std::ranges::sort(ranges, {}, &Range::begin);
  std::uint64_t free_from = 0;
  for (const Range& range : ranges) {
    if (range.begin % kBlockBytes != 0 || range.begin < free_from || range.end > device_bytes) {
      return bad_geometry("the range at " + std::to_string(range.begin) +
                          " is not aligned, overlaps another, or leaves the device");
    }
    free_from = range.end;
  }
  return {};
}

TableState empty_state(const TableGeometry& geometry) {
  TableState state;
  state.chunk_bytes = geometry.chunk_bytes;
  state.unit_bytes = geometry.unit_bytes;
  state.owners.resize(geometry.chunk_count);
  return state;
}

}  // namespace

std::uint64_t DeviceTable::recommended_region_bytes(std::uint32_t chunk_count,
                                                    std::uint32_t metadata_file_count) {
  constexpr std::uint64_t kBytesPerFile = 96;
  constexpr std::uint64_t kRecordCount = 128;
  const std::uint64_t snapshot = 4ull * chunk_count + kBytesPerFile * metadata_file_count;
  return round_up(2 * snapshot, kBlockBytes) + kRecordCount * kBlockBytes;
}

DeviceTable::DeviceTable(BlockingDisk& disk, const TableGeometry& geometry)
    : disk_(disk),
      geometry_(geometry),
      device_hash_(device_hash(geometry.device_uuid)),
      regions_{TableRegion(disk, geometry.regions[0], geometry.region_bytes, device_hash_),
               TableRegion(disk, geometry.regions[1], geometry.region_bytes, device_hash_)} {}

Result<void> DeviceTable::format(BlockingDisk& disk, const TableGeometry& geometry) {
  SARSEN_TRY(check_geometry(geometry, disk.info().size_bytes));
  DeviceTable table(disk, geometry);
  // Records of an older table must be gone before the new snapshot can be found.
  for (TableRegion& region : table.regions_) SARSEN_TRY(region.erase());
  SARSEN_TRY(disk.flush());
  table.active_ = 1;  // so that the first snapshot goes to region 0
  return table.switch_region_locked(empty_state(geometry));
}

// ------------------------------------------------------------------------------------- opening

Result<std::unique_ptr<DeviceTable>> DeviceTable::open(BlockingDisk& disk,
                                                       const TableGeometry& geometry) {
  SARSEN_TRY(check_geometry(geometry, disk.info().size_bytes));
  std::unique_ptr<DeviceTable> table(new DeviceTable(disk, geometry));
  SARSEN_TRY(table->load());
  return table;
}

Result<void> DeviceTable::load() {
  std::array<TableRegionScan, 2> scans;
  for (std::size_t region = 0; region < 2; ++region) {
    auto scan = regions_[region].scan();
    if (!scan) return fail(std::move(scan).error());
    scans[region] = *std::move(scan);
  }
  SARSEN_TRY(choose_region(scans));
  SARSEN_TRY(replay(scans[active_]));
  return heal(scans);
}

Result<void> DeviceTable::choose_region(std::array<TableRegionScan, 2>& scans) {
  active_ = scans[0].generation >= scans[1].generation ? 0 : 1;
  const TableRegionScan& chosen = scans[active_];
  const std::uint64_t orphan = std::max(scans[0].orphan_generation, scans[1].orphan_generation);
  if (orphan > chosen.generation || (chosen.superseded() && chosen.generation != 0)) {
    return fail(make_error(MetadataError::corrupt, "device table: the snapshot after generation " +
                                                       std::to_string(chosen.generation) +
                                                       " is bad in both mirrors"));
  }
  if (chosen.generation == 0) {
    return fail(make_error(MetadataError::not_found, "device table: no valid snapshot"));
  }
  generation_ = chosen.generation;
  next_index_ = chosen.records.size();
  end_ = chosen.end;
  return {};
}

Result<void> DeviceTable::replay(const TableRegionScan& scan) {
  auto state = decode_snapshot(scan.records.front().payload);
  if (!state) return fail(std::move(state).error());
  state_ = *std::move(state);
  if (state_.chunk_bytes != geometry_.chunk_bytes || state_.unit_bytes != geometry_.unit_bytes ||
      state_.owners.size() > geometry_.chunk_count) {
    return bad_geometry("the table was formatted for " + std::to_string(state_.owners.size()) +
                        " chunks of " + std::to_string(state_.chunk_bytes) + " bytes");
  }
  state_.owners.resize(geometry_.chunk_count);
  for (std::size_t i = 1; i < scan.records.size(); ++i) {
    auto changes = decode_changes(scan.records[i].payload);
    if (!changes) return fail(std::move(changes).error());
    for (const TableChange& change : *changes) SARSEN_TRY(state_.apply(change));
  }
  return state_.check();
}

Result<void> DeviceTable::heal(std::array<TableRegionScan, 2>& scans) {
  TableRegion& other = regions_[1 - active_];
  // What cannot be read there may be a newer snapshot that nobody was told of. It must not turn up
  // at a later opening, after changes to the older one.
  if (scans[1 - active_].unreadable) SARSEN_TRY(other.erase());
  stats_.repairs += scans[active_].repairs.size();
  const bool repaired = regions_[active_].repair(scans[active_]).has_value();
  for (TableRegion& region : regions_) region.forget();
  SARSEN_TRY(flush_locked());
  if (repaired && prove_last_record(scans[active_])) return {};
  // A mirror that cannot be repaired in place is left for the other region.
  const TableState same = state_;
  return switch_region_locked(same);
}

// The flush of the last record may have failed, and the device have dropped it while it still
// answers reads from its cache: a flush now would prove nothing (see store/flush_guard.h).
bool DeviceTable::prove_last_record(const TableRegionScan& scan) {
  const TableRegionScan::Record& last = scan.records.back();
  const AlignedBuffer record = encode_record({.device_hash = device_hash_,
                                              .generation = generation_,
                                              .index = next_index_ - 1,
                                              .kind = last.kind},
                                             last.payload);
  stats_.bytes_written += 2 * record.size();
  stats_.flushes += 2;
  return regions_[active_].write_again(end_ - record.size(), record.span()).has_value();
}

// ------------------------------------------------------------------------------------- changes

Unexpected DeviceTable::failed_locked(Error error) {
  failure_ = error;
  return fail(std::move(error));
}

Result<void> DeviceTable::flush_locked() {
  ++stats_.flushes;
  auto flushed = disk_.flush();
  if (!flushed) return failed_locked(std::move(flushed).error());
  return {};
}

// One record in the active region. The caller made sure that it fits.
Result<void> DeviceTable::append_locked(std::span<const std::byte> payload) {
  const AlignedBuffer record = encode_record({.device_hash = device_hash_,
                                              .generation = generation_,
                                              .index = next_index_,
                                              .kind = TableRecordKind::changes},
                                             payload);
  SARSEN_TRY(regions_[active_].write(end_, record.span()));
  stats_.bytes_written += 2 * record.size();
  ++stats_.records_written;
  SARSEN_TRY(flush_locked());
  end_ += record.size();
  ++next_index_;
  return {};
}

Result<void> DeviceTable::switch_region_locked(const TableState& next) {
  const std::vector<std::byte> payload = encode_snapshot(next);
  const AlignedBuffer snapshot = encode_record({.device_hash = device_hash_,
                                                .generation = generation_ + 1,
                                                .index = 0,
                                                .kind = TableRecordKind::snapshot},
                                               payload);
  // Room for one record of changes and the closing record.
  if (snapshot.size() + 2 * kBlockBytes > geometry_.region_bytes) {
    return fail(make_error(MetadataError::table_full,
                           "a snapshot of " + std::to_string(snapshot.size()) + " bytes"));
  }
  TableRegion& target = regions_[1 - active_];
  // I-META-4: from here on the older generation gets no change, whatever happens.
  if (auto written = target.write(0, snapshot.span()); !written) {
    return failed_locked(std::move(written).error());
  }
  stats_.bytes_written += 2 * snapshot.size();
  ++stats_.snapshots_written;
  SARSEN_TRY(flush_locked());
  // Tells a later opening that the new snapshot existed, should it rot in both mirrors. It needs no
  // flush of its own, and its failure costs only that warning.
  if (generation_ != 0 && end_ + kBlockBytes <= geometry_.region_bytes) {
    const AlignedBuffer closing = encode_record({.device_hash = device_hash_,
                                                 .generation = generation_,
                                                 .index = next_index_,
                                                 .kind = TableRecordKind::superseded},
                                                {});
    if (regions_[active_].write(end_, closing.span())) stats_.bytes_written += 2 * closing.size();
  }
  active_ = 1 - active_;
  ++generation_;
  next_index_ = 1;
  end_ = snapshot.size();
  return {};
}

void DeviceTable::apply_all(TableState& state, std::span<const TableChange> changes) {
  for (const TableChange& change : changes) {
    const auto applied = state.apply(change);
    SARSEN_ASSERT(applied.has_value(), "a change fits the table that it was made for");
  }
}

Result<void> DeviceTable::commit_locked(std::span<const TableChange> changes) {
  if (failure_) return fail(*failure_);
  const std::vector<std::byte> payload = encode_changes(changes);
  const bool fits =
      end_ + record_size_bytes(payload.size()) + kBlockBytes <= geometry_.region_bytes;
  if (fits && append_locked(payload)) {
    apply_all(state_, changes);
    return {};
  }
  if (failure_) return fail(*failure_);
  // A region that is full, or whose blocks cannot be written, is left for the other one.
  TableState next = state_;
  apply_all(next, changes);
  SARSEN_TRY(switch_region_locked(next));
  state_ = std::move(next);
  return {};
}

Result<void> DeviceTable::commit(std::vector<TableChange> changes) {
  const std::lock_guard lock(mutex_);
  return commit_locked(changes);
}

Result<ChunkIndex> DeviceTable::grant_chunk(ChunkOwner owner) {
  SARSEN_ASSERT(!owner.is_free(), "a chunk is granted to somebody");
  const std::lock_guard lock(mutex_);
  const std::uint32_t chunks_free = state_.count(ChunkOwner::free());
  const std::uint32_t kept = owner.is_metadata() ? 0 : geometry_.metadata_reserve_chunks;
  if (chunks_free <= kept) {
    return fail(make_error(MetadataError::no_space,
                           std::to_string(chunks_free) + " chunks are free, " +
                               std::to_string(kept) + " of them kept for the metadata zone"));
  }
  const auto found = std::ranges::find(state_.owners, ChunkOwner::free());
  const ChunkIndex chunk(static_cast<std::uint32_t>(found - state_.owners.begin()));
  const TableChange change = SetOwner{chunk, ChunkOwner::free(), owner};
  SARSEN_TRY(commit_locked({&change, 1}));
  return chunk;
}

Result<void> DeviceTable::return_chunk(ChunkIndex chunk, ChunkOwner owner) {
  const std::lock_guard lock(mutex_);
  if (chunk.value >= state_.owners.size() || owner.is_free() ||
      !(state_.owners[chunk.value] == owner)) {
    return fail(make_error(MetadataError::bad_request, "chunk " + std::to_string(chunk.value) +
                                                           " is returned by somebody else"));
  }
  const TableChange change = SetOwner{chunk, owner, ChunkOwner::free()};
  return commit_locked({&change, 1});
}

// ------------------------------------------------------------------------------------- looking

Result<ByteOffset> DeviceTable::chunk_offset(ChunkIndex chunk) const {
  if (chunk.value >= geometry_.chunk_count) {
    return fail(make_error(MetadataError::bad_request, "chunk " + std::to_string(chunk.value)));
  }
  return ByteOffset(geometry_.chunk_area.value + chunk.value * geometry_.chunk_bytes);
}

std::vector<ChunkOwner> DeviceTable::owners() const {
  const std::lock_guard lock(mutex_);
  return state_.owners;
}

TableState DeviceTable::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

TableStats DeviceTable::stats() const {
  const std::lock_guard lock(mutex_);
  TableStats stats = stats_;
  stats.generation = generation_;
  stats.chunks_free = state_.count(ChunkOwner::free());
  stats.chunks_metadata = state_.count(ChunkOwner::metadata());
  return stats;
}

}  // namespace sarsen
