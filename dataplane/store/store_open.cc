#include "dataplane/store/store_open.h"

#include <algorithm>
#include <set>
#include <utility>

#include "dataplane/base/codec.h"
#include "dataplane/store/error.h"

namespace sarsen {
namespace {

constexpr std::uint64_t kUnitBytesMin = 16 * kKiB;
constexpr std::uint64_t kUnitBytesMax = 64 * kKiB;
// Segments that are left for the next recovery.
constexpr std::size_t kSegmentReserve = 1;

// A fiftieth of the chunks, at least 1 MiB's worth (a quarter on the smallest test devices), is
// kept for merging the index.
std::uint32_t metadata_reserve(const StoreGeometry& geometry) {
  const std::uint64_t wanted = std::max<std::uint64_t>(
      geometry.chunk_count / 50, (1 * kMiB + geometry.chunk_bytes - 1) / geometry.chunk_bytes);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(wanted, geometry.chunk_count / 4));
}

}  // namespace

TableGeometry table_geometry(const Superblock& superblock) {
  const StoreGeometry& geometry = superblock.geometry;
  TableGeometry table;
  table.device_uuid = superblock.device;
  for (std::uint32_t region = 0; region < 2; ++region) {
    for (std::uint32_t mirror = 0; mirror < 2; ++mirror) {
      table.regions[region][mirror] = geometry.table_region(region, mirror);
    }
  }
  table.region_bytes = geometry.table_region_bytes;
  table.chunk_area = geometry.chunks_start();
  table.chunk_bytes = geometry.chunk_bytes;
  table.chunk_count = geometry.chunk_count;
  table.unit_bytes = static_cast<std::uint32_t>(
      std::clamp(geometry.chunk_bytes / 16, kUnitBytesMin, kUnitBytesMax));
  table.metadata_reserve_chunks = metadata_reserve(geometry);
  return table;
}

MetadataDbOptions db_options(const Superblock& superblock, const StoreLimits& limits) {
  MetadataDbOptions options;
  options.cache_bytes = limits.metadata_cache_bytes;
  const std::uint64_t reserve =
      metadata_reserve(superblock.geometry) * superblock.geometry.chunk_bytes;
  // A merge must fit the reserve together with what it replaces.
  options.compaction.whole_merge_bytes_max =
      std::min<std::uint64_t>(options.compaction.whole_merge_bytes_max, reserve / 2);
  options.manifest_bytes_max =
      std::clamp<std::uint64_t>(reserve / 128, 4 * kKiB, options.manifest_bytes_max);
  // The smallest flush takes two units in each family: on a small device fewer of them may wait for
  // a merge than would be good for amplification.
  const std::uint64_t flush_bytes_min =
      2 * kMetadataFamilies * table_geometry(superblock).unit_bytes;
  options.compaction.level0_files_max = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(
      reserve / 2 / flush_bytes_min, 2, options.compaction.level0_files_max));
  options.compaction.level0_files_min =
      std::min(options.compaction.level0_files_min, options.compaction.level0_files_max);
  return options;
}

namespace {

struct OpenedIndex {
  std::unique_ptr<DeviceTable> table;
  std::unique_ptr<MetadataFiles> files;
  std::unique_ptr<MetadataDb> db;
  IndexRoots roots;
  std::map<std::uint32_t, std::string> bitmaps;  // by chunk
};

Result<std::uint64_t> number_at(const MetadataDb& db, std::string_view key) {
  auto value = db.get(MetadataFamily::meta, key);
  if (!value) return fail(value.error());
  if (!*value) return 0;
  if ((*value)->size() != sizeof(std::uint64_t)) {
    return fail(make_error(StoreError::corrupt_index, std::string(key)));
  }
  return load_little_endian<std::uint64_t>(reinterpret_cast<const std::byte*>((*value)->data()));
}

}  // namespace

Result<IndexRoots> read_index_roots(const MetadataDb& db, const Superblock& superblock) {
  IndexRoots roots;
  auto live_from = number_at(db, kLiveFromKey);
  if (!live_from) return fail(live_from.error());
  roots.live_from = SegmentGeneration(*live_from);
  for (std::uint32_t lane = 0; lane < superblock.geometry.lane_count; ++lane) {
    auto applied = number_at(db, applied_key(LaneId(lane)));
    if (!applied) return fail(applied.error());
    roots.applied.emplace_back(*applied);
  }
  return roots;
}

namespace {

// On a thread of the pool.
Result<OpenedIndex> open_parts(BlockingDisk& disk, const Superblock& superblock,
                               const StoreLimits& limits) {
  OpenedIndex opened;
  auto table = DeviceTable::open(disk, table_geometry(superblock));
  if (!table) return fail(table.error());
  opened.table = *std::move(table);
  opened.files = MetadataFiles::open(disk, *opened.table);
  auto db = MetadataDb::open(*opened.files, db_options(superblock, limits));
  if (!db) return fail(db.error());
  opened.db = *std::move(db);

  auto roots = read_index_roots(*opened.db, superblock);
  if (!roots) return fail(roots.error());
  opened.roots = *std::move(roots);
  auto cursor = opened.db->cursor(MetadataFamily::allocator, {}, {});
  for (; cursor.valid(); cursor.next()) {
    auto key = decode_chunk_key(std::as_bytes(std::span(cursor.key())));
    if (!key) return fail(key.error());
    opened.bitmaps[key->chunk.value] = std::string(cursor.value());
  }
  if (auto status = cursor.status(); !status) return fail(status.error());
  return opened;
}

Result<void> load_lanes(StoreState& state, const std::map<std::uint32_t, std::string>& bitmaps) {
  const StoreGeometry& geometry = state.superblock.geometry;
  const auto owners = state.table->owners();
  for (std::uint32_t chunk = 0; chunk < owners.size(); ++chunk) {
    if (!owners[chunk].is_lane()) continue;
    const LaneId id = owners[chunk].lane_id();
    if (id.value >= state.lanes.size()) {
      return fail(
          make_error(StoreError::corrupt_index, "chunk of lane " + std::to_string(id.value)));
    }
    const BlockIndex first((geometry.chunks_start().value + chunk * geometry.chunk_bytes) /
                           kBlockBytes);
    ExtentAllocator& allocator = state.lanes[id.value].allocator;
    const auto stored = bitmaps.find(chunk);
    if (stored == bitmaps.end()) {
      allocator.add_chunk(ChunkIndex(chunk), first, geometry.blocks_per_chunk());
      continue;
    }
    SARSEN_TRY(allocator.load(ChunkIndex(chunk), first, geometry.blocks_per_chunk(),
                              std::as_bytes(std::span(stored->second))));
  }
  return {};
}

// Promises homes to the blocks of a record; false when one cannot be promised.
bool promise_homes(StoreState& state, const JournalRecord& record, std::uint64_t& mask) {
  Lane& lane = state.lanes[record.lane.value];
  bool all = true;
  const std::uint32_t blocks = std::min(record.block_count, 64U);
  each_leaf_part(record.first_block, blocks, [&](std::uint32_t first, std::uint32_t count) {
    for (const PendingPiece& piece : state.overlay.look(record.object, first, count)) {
      if (piece.pending && piece.kind == PendingKind::journal) continue;
      for (std::uint32_t i = 0; i < piece.block_count; ++i) {
        if (lane.allocator.reserve(1, Purpose::destage)) {
          mask |= std::uint64_t{1} << (piece.first_block + i - record.first_block);
        } else {
          all = false;
        }
      }
    }
  });
  return all;
}

}  // namespace

Task<Result<Superblock>> format_store(Env& env, Disk& disk, BlockingDisk& blocking_disk,
                                      FormatOptions options) {
  auto geometry = choose_geometry(disk.info().size_bytes, options.sizes);
  if (!geometry) co_return fail(geometry.error());
  Superblock superblock;
  superblock.device = options.device == Uuid{} ? make_uuid(env.random) : options.device;
  superblock.cluster = options.cluster;
  superblock.osd_id = options.osd_id;
  superblock.sequence = 1;
  superblock.formatted_wall_time_ns = env.clock.wall_time_ns();
  superblock.journal_salt = env.random.next();
  superblock.geometry = *geometry;

  // The old superblocks first: a format that was interrupted must not look like the old store.
  auto zeros = env.buffers.allocate(kBlockBytes);
  if (!zeros) co_return fail(zeros.error());
  std::fill_n(zeros->data(), kBlockBytes, std::byte{0});
  for (const ByteOffset offset : geometry->superblocks()) {
    SARSEN_CO_TRY(co_await disk.write(offset, zeros->span(0, kBlockBytes)));
  }
  SARSEN_CO_TRY(co_await disk.flush());

  const StoreLimits limits;
  auto made = co_await env.blocking.run([&]() -> Result<void> {
    SARSEN_TRY(DeviceTable::format(blocking_disk, table_geometry(superblock)));
    auto table = DeviceTable::open(blocking_disk, table_geometry(superblock));
    if (!table) return fail(table.error());
    auto files = MetadataFiles::open(blocking_disk, **table);
    MetadataDbOptions db = db_options(superblock, limits);
    db.create = true;
    auto opened = MetadataDb::open(*files, db);
    if (!opened) return fail(opened.error());
    SARSEN_TRY((*opened)->flush());
    (*opened)->close();
    return {};
  });
  if (!made) co_return fail(made.error());
  // Last: from here on the device is a store.
  SARSEN_CO_TRY(co_await write_superblock(env, disk, superblock));
  co_return superblock;
}

Task<Result<IndexRoots>> open_index(StoreState& state) {
  auto reading = co_await read_superblock(state.env, state.disk);
  if (!reading) co_return fail(reading.error());
  state.recovery.superblock_copies_bad = reading->copies_bad;
  state.superblock = reading->superblock;
  SARSEN_CO_TRY(co_await prove_superblock(state.env, state.disk, *reading));
  ++state.superblock.start_count;
  ++state.superblock.sequence;
  SARSEN_CO_TRY(co_await write_superblock(state.env, state.disk, state.superblock));

  auto opened = co_await state.env.blocking.run(
      [&state] { return open_parts(state.blocking_disk, state.superblock, state.limits); });
  if (!opened) co_return fail(opened.error());
  state.table = std::move(opened->table);
  state.files = std::move(opened->files);
  state.db = std::move(opened->db);
  state.leaves = std::make_unique<LeafCache>(state.env, *state.db, state.limits.leaf_cache_bytes);
  for (std::uint32_t id = 0; id < state.superblock.geometry.lane_count; ++id) {
    state.lanes.push_back({.id = LaneId(id),
                           .allocator = ExtentAllocator(LaneId(id), {}),
                           .last_issued = LaneSequence(state.superblock.run_base()),
                           .applied = opened->roots.applied[id],
                           // What recovery accepts is recorded before anything newer is written.
                           .evident = LaneSequence(state.superblock.run_base()),
                           .carried = 0,
                           .superseded = {}});
  }
  SARSEN_CO_TRY(load_lanes(state, opened->bitmaps));
  co_return std::move(opened->roots);
}

Task<Result<Replayed>> replay_journal(StoreState& state, IndexRoots roots) {
  auto journal = co_await recover_journal(state.env, state.disk, state.superblock, roots.live_from,
                                          [&roots](LaneId lane, LaneSequence sequence) {
                                            return lane.value < roots.applied.size() &&
                                                   sequence <= roots.applied[lane.value];
                                          });
  if (!journal) co_return fail(journal.error());
  RecoveryReport& report = state.recovery;
  report.records_replayed = journal->records.size();
  report.records_rolled_back = journal->records_rolled_back;
  report.headers_rebuilt = journal->headers_rebuilt;
  for (const LostRecords& lost : journal->lost) {
    report.records_lost += lost.end.value - lost.first.value;
  }
  if (report.records_lost > 0) {
    co_return fail(make_error(
        StoreError::corrupt_journal,
        std::to_string(report.records_lost) + " records whose blocks are not known any more"));
  }

  state.pool = std::make_unique<SegmentPool>(
      state.env.executor, SegmentGeneration(state.superblock.run_base() | 1), kSegmentReserve);
  std::set<std::uint32_t> used;
  for (const RecoveredSegment& segment : journal->segments) {
    used.insert(segment.segment);
    state.pool->add_in_use({.segment = segment.segment, .generation = segment.generation});
  }
  for (std::uint32_t i = 0; i < state.superblock.geometry.segment_count; ++i) {
    if (!used.contains(i)) state.pool->add_free(i);
  }

  Replayed replayed{.ends = std::move(journal->ends), .unproven = {}, .tight = false};
  // First all extents, so that no promise takes a block that a record names.
  for (const RecoveredRecord& recovered : journal->records) {
    if (recovered.record.lane.value >= state.lanes.size()) {
      co_return fail(make_error(StoreError::corrupt_journal, "a record of an unknown lane"));
    }
    for (const DeviceRun& run : recovered.record.runs) {
      SARSEN_CO_TRY(state.lanes[recovered.record.lane.value].allocator.mark_used(run));
    }
  }
  for (RecoveredRecord& recovered : journal->records) {
    std::uint64_t mask = 0;
    if (recovered.record.kind == RecordKind::write) {
      replayed.tight |= !promise_homes(state, recovered.record, mask);
    }
    if (recovered.unproven) replayed.unproven.push_back(recovered);
    if (recovered.payload_lost) report.blocks_corrupt += recovered.record.block_count;
    apply_record(state, recovered, mask);
    state.segments[recovered.generation].push_back(std::move(recovered));
  }
  co_return replayed;
}

}  // namespace sarsen
