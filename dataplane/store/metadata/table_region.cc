#include "dataplane/store/metadata/table_region.h"

#include <algorithm>
#include <string>

#include "dataplane/store/metadata/metadata_error.h"

namespace sarsen {
namespace {

constexpr int kReadAttempts = 5;

}  // namespace

// Error: whatever the device answers beside "this block cannot be read". One that is gone says
// nothing about its blocks, and must not make a table look empty or bad.
Result<TableRegion::Image> TableRegion::load(std::size_t mirror) {
  const std::size_t block_count = region_bytes_ / kBlockBytes;
  Image image{AlignedBuffer(region_bytes_), std::vector<bool>(block_count, true)};
  if (disk_.read(mirrors_[mirror], image.bytes.span())) return image;
  // Find out which blocks it was: the others are still worth having.
  for (std::size_t block = 0; block < block_count; ++block) {
    const std::uint64_t offset = block * kBlockBytes;
    auto read = disk_.read(ByteOffset(mirrors_[mirror].value + offset),
                           image.bytes.span(offset, kBlockBytes));
    for (int attempt = 1; attempt < kReadAttempts && !read; ++attempt) {
      read = disk_.read(ByteOffset(mirrors_[mirror].value + offset),
                        image.bytes.span(offset, kBlockBytes));
    }
    if (!read && !is(read.error(), RuntimeError::io_error)) return fail(read.error());
    image.readable[block] = read.has_value();
  }
  return image;
}

std::optional<TableRecordView> TableRegion::parse(const Image& image, std::uint64_t offset) const {
  if (offset >= region_bytes_ || !image.readable[offset / kBlockBytes]) return std::nullopt;
  const auto view = parse_record(image.bytes.span(offset, region_bytes_ - offset), device_hash_);
  if (!view) return std::nullopt;
  for (std::uint64_t at = offset; at < offset + view->size_bytes; at += kBlockBytes) {
    if (!image.readable[at / kBlockBytes]) return std::nullopt;
  }
  return view;
}

// The newest valid snapshot at the start of either mirror.
std::optional<TableRecordView> TableRegion::parse_snapshot(std::uint64_t& generation) const {
  std::optional<TableRecordView> newest;
  for (const Image& image : images_) {
    const auto view = parse(image, 0);
    if (!view || view->identity.kind != TableRecordKind::snapshot || view->identity.index != 0) {
      continue;
    }
    if (!newest || view->identity.generation > newest->identity.generation) newest = view;
  }
  generation = newest ? newest->identity.generation : 0;
  return newest;
}

// Record by record, each from whichever mirror has it, until neither has the next.
void TableRegion::read_records(TableRegionScan& scan) {
  while (scan.end < region_bytes_ && !scan.superseded()) {
    std::array<std::optional<TableRecordView>, 2> views;
    for (std::size_t mirror = 0; mirror < 2; ++mirror) {
      auto view = parse(images_[mirror], scan.end);
      if (!view || view->identity.generation != scan.generation ||
          view->identity.index != scan.records.size() ||
          (view->identity.kind == TableRecordKind::snapshot) != scan.records.empty()) {
        continue;
      }
      views[mirror] = view;
    }
    if (!views[0] && !views[1]) return;
    const std::size_t good = views[0] ? 0 : 1;
    const std::size_t other = 1 - good;
    const TableRecordView& view = *views[good];
    if (!views[other] || !std::ranges::equal(view.payload, views[other]->payload)) {
      scan.repairs.push_back({other, scan.end, view.size_bytes});
    }
    scan.records.push_back(
        {view.identity.kind, std::vector<std::byte>(view.payload.begin(), view.payload.end())});
    scan.end += view.size_bytes;
  }
}

// I-META-3: nothing of this generation may follow the place where neither mirror has a record.
Result<void> TableRegion::check_end(TableRegionScan& scan) const {
  const std::size_t end_block = scan.end / kBlockBytes;
  if (scan.generation != 0 && scan.end < region_bytes_ && !scan.superseded() &&
      !images_[0].readable[end_block] && !images_[1].readable[end_block]) {
    return fail(make_error(RuntimeError::io_error,
                           "device table: both mirrors are unreadable where record " +
                               std::to_string(scan.records.size()) + " would be"));
  }
  for (std::uint64_t offset = scan.end; offset < region_bytes_; offset += kBlockBytes) {
    for (const Image& image : images_) {
      const auto view = parse(image, offset);
      if (!view) continue;
      const std::uint64_t generation = view->identity.generation;
      if (scan.generation != 0 && generation == scan.generation &&
          view->identity.index >= scan.records.size()) {
        return fail(make_error(MetadataError::corrupt,
                               "device table: record " + std::to_string(scan.records.size()) +
                                   " of generation " + std::to_string(generation) +
                                   " is bad in both mirrors, record " +
                                   std::to_string(view->identity.index) + " is not"));
      }
      if (generation != scan.generation) {
        scan.orphan_generation = std::max(scan.orphan_generation, generation);
      }
    }
  }
  return {};
}

Result<TableRegionScan> TableRegion::scan() {
  for (std::size_t mirror = 0; mirror < 2; ++mirror) {
    auto image = load(mirror);
    if (!image) return fail(image.error());
    images_[mirror] = *std::move(image);
  }
  TableRegionScan scan;
  for (const Image& image : images_) {
    if (std::ranges::find(image.readable, false) != image.readable.end()) scan.unreadable = true;
  }
  if (parse_snapshot(scan.generation)) read_records(scan);
  SARSEN_TRY(check_end(scan));
  for (std::size_t mirror = 0; mirror < 2; ++mirror) {
    for (std::uint64_t offset = scan.end; offset < region_bytes_; offset += kBlockBytes) {
      if (images_[mirror].readable[offset / kBlockBytes]) continue;
      scan.blanks.push_back({mirror, offset, kBlockBytes});
    }
  }
  return scan;
}

Result<void> TableRegion::repair(const TableRegionScan& scan) {
  for (const auto& repair : scan.repairs) {
    SARSEN_TRY(
        disk_.write(ByteOffset(mirrors_[repair.mirror].value + repair.offset),
                    images_[1 - repair.mirror].bytes.span(repair.offset, repair.size_bytes)));
  }
  const AlignedBuffer zeros(kBlockBytes);
  for (const auto& blank : scan.blanks) {
    SARSEN_TRY(disk_.write(ByteOffset(mirrors_[blank.mirror].value + blank.offset), zeros.span()));
  }
  return {};
}

void TableRegion::forget() {
  images_ = {};
}

Result<void> TableRegion::write(std::uint64_t offset, std::span<const std::byte> record) {
  SARSEN_ASSERT(offset + record.size() <= region_bytes_, "a record stays within its region");
  for (const ByteOffset mirror : mirrors_) {
    SARSEN_TRY(disk_.write(ByteOffset(mirror.value + offset), record));
  }
  return {};
}

Result<void> TableRegion::write_again(std::uint64_t offset, std::span<const std::byte> record) {
  for (const ByteOffset mirror : mirrors_) {
    SARSEN_TRY(disk_.write(ByteOffset(mirror.value + offset), record));
    SARSEN_TRY(disk_.flush());
  }
  return {};
}

Result<void> TableRegion::erase() {
  const AlignedBuffer zeros(region_bytes_);
  return write(0, zeros.span());
}

}  // namespace sarsen
