// What the metadata database costs on a device of memory: time to open it, and bytes written to the
// device per update of a leaf. Prints one line per figure.
//
//   metadata_bench [leaves] [updates per flush] [flushes] [MiB up to which a merge takes
//   everything]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "dataplane/base/rng.h"
#include "dataplane/store/metadata/metadata_db.h"
#include "tests/unit/store/metadata/memory_disk.h"
#include "tests/unit/store/metadata/zone_fixture.h"

namespace sarsen::test {
namespace {

using Steady = std::chrono::steady_clock;

double milliseconds_since(Steady::time_point start) {
  return std::chrono::duration<double, std::milli>(Steady::now() - start).count();
}

template <typename T>
T must(Result<T> result) {
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().message().c_str());
    std::abort();
  }
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

TableGeometry big_geometry(std::uint64_t device_bytes) {
  TableGeometry geometry = small_geometry();
  geometry.chunk_bytes = 64 * kMiB;
  geometry.unit_bytes = 64 * kKiB;
  geometry.chunk_count = static_cast<std::uint32_t>(device_bytes / geometry.chunk_bytes) - 1;
  geometry.region_bytes = DeviceTable::recommended_region_bytes(geometry.chunk_count);
  const std::uint64_t region = geometry.region_bytes;
  geometry.regions = {
      {{ByteOffset(0), ByteOffset(2 * region)}, {ByteOffset(region), ByteOffset(3 * region)}}};
  geometry.chunk_area = ByteOffset(4 * region);
  return geometry;
}

std::string leaf_key(std::uint64_t leaf) {
  std::string key(32, '\0');
  std::snprintf(key.data(), key.size(), "pool%08llx", static_cast<unsigned long long>(leaf));
  return key;
}

std::string leaf_value(Rng& rng) {
  std::string value(500, '\0');
  for (std::size_t i = 0; i < value.size(); i += 4) {
    const std::uint64_t word = rng.next();
    std::memcpy(value.data() + i, &word, 4);
  }
  return value;
}

struct Process {
  Zone zone;
  std::unique_ptr<MetadataDb> db;
};

Process start(MemoryDisk& disk, const TableGeometry& geometry, bool create,
              std::uint64_t whole_merge_mib = 256) {
  Process process{must(Zone::open(disk, geometry)), nullptr};
  MetadataDbOptions options;
  options.create = create;
  options.compaction.whole_merge_bytes_max = whole_merge_mib * kMiB;
  process.db = must(MetadataDb::open(*process.zone.files, options));
  return process;
}

void measure_open(const char* what, MemoryDisk& disk, const TableGeometry& geometry) {
  constexpr int kRounds = 20;
  const std::uint64_t writes = disk.writes();
  const std::uint64_t flushes = disk.flushes();
  double table_ms = 0;
  double database_ms = 0;
  double close_ms = 0;
  for (int i = 0; i < kRounds; ++i) {
    auto began = Steady::now();
    Zone zone = must(Zone::open(disk, geometry));
    table_ms += milliseconds_since(began);
    began = Steady::now();
    auto db = must(MetadataDb::open(*zone.files, {}));
    database_ms += milliseconds_since(began);
    began = Steady::now();
    db.reset();
    close_ms += milliseconds_since(began);
  }
  std::printf(
      "open %-14s table %.2f ms, database %.2f ms, close %.2f ms, %.1f writes, %.1f flushes\n",
      what, table_ms / kRounds, database_ms / kRounds, close_ms / kRounds,
      static_cast<double>(disk.writes() - writes) / kRounds,
      static_cast<double>(disk.flushes() - flushes) / kRounds);
}

void load(MetadataDb& db, std::uint64_t leaves, Rng& rng) {
  MetadataBatch batch;
  for (std::uint64_t leaf = 0; leaf < leaves; ++leaf) {
    batch.put(MetadataFamily::index, leaf_key(leaf), leaf_value(rng));
    if (leaf % 256 == 255 || leaf + 1 == leaves) {
      must(db.write(batch));
      batch.clear();
    }
  }
  must(db.flush());
}

std::uint64_t merge(MetadataDb& db) {
  std::uint64_t steps = 0;
  while (must(db.compact_step()).worked) ++steps;
  return steps;
}

void measure_updates(Process& process, MemoryDisk& disk, std::uint64_t leaves,
                     std::uint64_t updates_per_flush, std::uint64_t flushes) {
  Rng rng(7);
  MetadataDb& db = *process.db;
  const std::uint64_t before = disk.bytes_written();
  double flush_ms = 0;
  double merge_ms = 0;
  double merge_ms_max = 0;
  MetadataBatch batch;
  for (std::uint64_t flush = 0; flush < flushes; ++flush) {
    for (std::uint64_t i = 0; i < updates_per_flush; ++i) {
      batch.put(MetadataFamily::index, leaf_key(rng.below(leaves)), leaf_value(rng));
      if (i % 64 == 63) {
        must(db.write(batch));
        batch.clear();
      }
    }
    auto began = Steady::now();
    must(db.flush());
    flush_ms += milliseconds_since(began);
    began = Steady::now();
    merge(db);
    const double ms = milliseconds_since(began);
    merge_ms += ms;
    merge_ms_max = std::max(merge_ms_max, ms);
  }
  const std::uint64_t updates = updates_per_flush * flushes;
  const auto written = static_cast<double>(disk.bytes_written() - before);
  std::printf(
      "updates %llu of %llu leaves, flush every %llu: %.0f bytes per update (%.3f per user byte)\n",
      static_cast<unsigned long long>(updates), static_cast<unsigned long long>(leaves),
      static_cast<unsigned long long>(updates_per_flush), written / static_cast<double>(updates),
      written / static_cast<double>(updates) / 4096);
  std::printf(
      "  flush %.0f ms each, merge %.0f ms per flush, %.0f ms the longest; device table %.1f KiB, "
      "zone %u chunks\n",
      flush_ms / static_cast<double>(flushes), merge_ms / static_cast<double>(flushes),
      merge_ms_max, static_cast<double>(process.zone.table->stats().bytes_written) / 1024,
      process.zone.table->stats().chunks_metadata);
}

void run(std::uint64_t leaves, std::uint64_t updates_per_flush, std::uint64_t flushes,
         std::uint64_t whole_merge_mib) {
  {
    const TableGeometry geometry = small_geometry();
    MemoryDisk disk(8 * kMiB);
    must(DeviceTable::format(disk, geometry));
    const auto began = Steady::now();
    start(disk, geometry, true);
    std::printf("create: %.2f ms\n", milliseconds_since(began));
    measure_open("empty", disk, geometry);
  }
  const std::uint64_t device_bytes = 8 * kGiB;
  const TableGeometry geometry = big_geometry(device_bytes);
  {
    MemoryDisk disk(device_bytes);
    must(DeviceTable::format(disk, geometry));
    Rng rng(1);
    load(*start(disk, geometry, true).db, 100'000, rng);
    measure_open("100k keys", disk, geometry);
  }
  MemoryDisk disk(device_bytes);
  must(DeviceTable::format(disk, geometry));
  Process process = start(disk, geometry, true, whole_merge_mib);
  Rng rng(2);
  load(*process.db, leaves, rng);
  measure_updates(process, disk, leaves, updates_per_flush, flushes);
}

}  // namespace
}  // namespace sarsen::test

int main(int argc, char** argv) {
  const auto argument = [&](int i, std::uint64_t otherwise) {
    return argc > i ? std::strtoull(argv[i], nullptr, 10) : otherwise;
  };
  sarsen::test::run(argument(1, 260'000), argument(2, 65'536), argument(3, 32), argument(4, 256));
}
