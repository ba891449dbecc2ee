// Reading and writing the contents of metadata files (metadata_files.h).
#include <algorithm>
#include <cstring>

#include "dataplane/store/metadata/metadata_error.h"
#include "dataplane/store/metadata/metadata_files.h"

namespace sarsen {
namespace {

// A device that cannot read a block now and then can the next time.
constexpr int kReadAttempts = 5;

}  // namespace

// ------------------------------------------------------------------------------------- writing

FileWriter::FileWriter(MetadataFiles& files, MetadataFiles::NodePtr node)
    : files_(files), node_(std::move(node)), staged_(kStagedBlocks * kBlockBytes) {}

FileWriter::~FileWriter() {
  files_.release(node_);
}

// Ends the block that is being filled.
void FileWriter::seal() {
  const auto block = staged_.span(std::size_t{staged_sealed_} * kBlockBytes, kBlockBytes);
  seal_file_block(block, files_.map_.device_seed, node_->serial, written_blocks_ + staged_sealed_,
                  static_cast<std::uint16_t>(partial_bytes_));
  ++staged_sealed_;
  partial_bytes_ = 0;
}

Result<void> FileWriter::grow(std::uint32_t block_count) {
  const std::lock_guard lock(files_.mutex_);
  while (capacity_blocks_ < block_count) {
    for (std::size_t copy = 0; copy < (node_->mirrored ? 2u : 1u); ++copy) {
      SARSEN_TRY(files_.extend_locked(*node_, copy));
    }
    capacity_blocks_ += files_.map_.blocks_per_unit();
  }
  return {};
}

Result<void> FileWriter::write_staged() {
  if (staged_sealed_ == 0) return {};
  SARSEN_TRY(grow(written_blocks_ + staged_sealed_));
  const auto blocks = staged_.span(0, std::size_t{staged_sealed_} * kBlockBytes);
  const std::size_t copies = node_->mirrored ? 2 : 1;
  for (std::size_t copy = 0; copy < copies; ++copy) {
    SARSEN_TRY(files_.map_.write(node_->extents[copy], written_blocks_, blocks));
  }
  written_blocks_ += staged_sealed_;
  staged_sealed_ = 0;
  files_.bytes_written_ += copies * blocks.size();
  return {};
}

// Takes from `data` what fits in the block that is being filled.
Result<void> FileWriter::append_some(std::span<const std::byte>& data) {
  const std::size_t size =
      std::min<std::size_t>(data.size(), kFileBlockPayloadBytes - partial_bytes_);
  std::memcpy(staged_.data() + std::size_t{staged_sealed_} * kBlockBytes + sizeof(FileBlockHeader) +
                  partial_bytes_,
              data.data(), size);
  partial_bytes_ += static_cast<std::uint32_t>(size);
  length_bytes_ += size;
  data = data.subspan(size);
  if (partial_bytes_ == kFileBlockPayloadBytes) seal();
  return staged_sealed_ == kStagedBlocks ? write_staged() : Result<void>();
}

Result<void> FileWriter::append(std::span<const std::byte> data) {
  if (failure_) return fail(*failure_);
  if (ended_in_mid_block_ && !data.empty()) {
    return fail(make_error(MetadataError::bad_request,
                           "append to " + node_->name + " after a sync that ended in mid-block"));
  }
  while (!data.empty()) {
    if (auto appended = append_some(data); !appended) {
      failure_ = appended.error();
      return appended;
    }
  }
  const std::lock_guard lock(files_.mutex_);
  node_->length_bytes = length_bytes_;
  return {};
}

Result<void> FileWriter::sync() {
  if (failure_) return fail(*failure_);
  if (partial_bytes_ == 0 && staged_sealed_ == 0 && node_->in_table &&
      node_->durable.length_bytes == length_bytes_) {
    return {};
  }
  if (partial_bytes_ != 0) {
    // I-META-5. A file with fixed block positions can do this only at its end.
    ended_in_mid_block_ = !node_->mirrored;
    seal();
  }
  auto synced = write_staged();
  if (synced) synced = files_.sync(*node_, written_blocks_);
  if (!synced) failure_ = synced.error();
  return synced;
}

// ------------------------------------------------------------------------------------- reading

FileReader::FileReader(MetadataFiles& files, MetadataFiles::NodePtr node)
    : files_(files), node_(std::move(node)), file_(node_->durable) {}

FileReader::~FileReader() {
  files_.release(node_);
}

namespace {

// False when the device answers that it cannot read the block, also when asked again. Whatever
// else it answers (it is gone) says nothing about the block.
Result<bool> read_copy(const UnitMap& map, const std::vector<UnitExtent>& extents,
                       std::uint32_t block, std::span<std::byte> into) {
  Result<void> read;
  for (int attempt = 0; attempt < kReadAttempts; ++attempt) {
    read = map.read(extents, block, into);
    if (read) return true;
    if (!is(read.error(), RuntimeError::io_error)) return fail(read.error());
  }
  return false;
}

}  // namespace

// Reads both copies, takes each block from one that is good, and rewrites one that is not.
Result<void> FileReader::load_mirrored() {
  const UnitMap& map = files_.map_;
  std::uint64_t healed = 0;
  contents_.reserve(file_.length_bytes);
  for (std::uint32_t block = 0; block < file_.block_count; ++block) {
    std::array<AlignedBuffer, 2> copies{AlignedBuffer(kBlockBytes), AlignedBuffer(kBlockBytes)};
    std::array<std::optional<std::span<const std::byte>>, 2> contents;
    for (std::size_t copy = 0; copy < 2; ++copy) {
      const auto read = read_copy(map, file_.copies[copy], block, copies[copy].span());
      if (!read) return fail(read.error());
      if (!*read) continue;
      contents[copy] = open_file_block(copies[copy].span(), map.device_seed, file_.serial, block);
    }
    if (!contents[0] && !contents[1]) {
      files_.note_damage(node_->name, block);
      return fail(make_error(MetadataError::corrupt, "block " + std::to_string(block) + " of " +
                                                         node_->name + " is bad in both copies"));
    }
    const std::size_t good = contents[0] ? 0 : 1;
    if (!contents[1 - good]) {
      // Best effort: the good copy still serves when this one cannot be written.
      if (map.write(file_.copies[1 - good], block, copies[good].span())) ++healed;
    }
    contents_.insert(contents_.end(), contents[good]->begin(), contents[good]->end());
  }
  if (contents_.size() != file_.length_bytes) {
    return fail(make_error(MetadataError::corrupt,
                           node_->name + " has " + std::to_string(contents_.size()) +
                               " bytes, the table says " + std::to_string(file_.length_bytes)));
  }
  files_.bytes_read_ += 2ull * file_.block_count * kBlockBytes;
  const std::lock_guard lock(files_.mutex_);
  files_.stats_.blocks_healed += healed;
  return {};
}

// The blocks of a single-copy file. A block that stays unreadable is damage like one that is bad.
Result<void> FileReader::read_blocks(std::uint32_t first_block, std::span<std::byte> into) const {
  const UnitMap& map = files_.map_;
  auto whole = map.read(file_.copies[0], first_block, into);
  if (whole || !is(whole.error(), RuntimeError::io_error)) return whole;
  for (std::size_t offset = 0; offset < into.size(); offset += kBlockBytes) {
    const auto block = first_block + static_cast<std::uint32_t>(offset / kBlockBytes);
    const auto one = read_copy(map, file_.copies[0], block, into.subspan(offset, kBlockBytes));
    if (!one) return fail(one.error());
    if (*one) continue;
    files_.note_damage(node_->name, block);
    return fail(make_error(MetadataError::corrupt, "block " + std::to_string(block) + " of " +
                                                       node_->name + " cannot be read"));
  }
  return {};
}

Result<std::size_t> FileReader::read(std::uint64_t offset, std::span<std::byte> into) const {
  if (offset >= file_.length_bytes || into.empty()) return 0;
  into = into.first(std::min<std::uint64_t>(into.size(), file_.length_bytes - offset));
  if (file_.mirrored) {
    std::memcpy(into.data(), contents_.data() + offset, into.size());
    return into.size();
  }
  const UnitMap& map = files_.map_;
  const auto first = static_cast<std::uint32_t>(offset / kFileBlockPayloadBytes);
  const auto last = static_cast<std::uint32_t>((offset + into.size() - 1) / kFileBlockPayloadBytes);
  AlignedBuffer blocks(std::size_t{last - first + 1} * kBlockBytes);
  SARSEN_TRY(read_blocks(first, blocks.span()));
  std::size_t done = 0;
  for (std::uint32_t block = first; block <= last; ++block) {
    const auto contents =
        open_file_block(blocks.span(std::size_t{block - first} * kBlockBytes, kBlockBytes),
                        map.device_seed, file_.serial, block);
    const std::size_t skipped =
        block == first ? offset - std::uint64_t{block} * kFileBlockPayloadBytes : 0;
    const std::size_t size =
        std::min<std::size_t>(into.size() - done, kFileBlockPayloadBytes - skipped);
    if (!contents || contents->size() < skipped + size) {
      files_.note_damage(node_->name, block);
      return fail(make_error(MetadataError::corrupt,
                             "block " + std::to_string(block) + " of " + node_->name));
    }
    std::memcpy(into.data() + done, contents->data() + skipped, size);
    done += size;
  }
  files_.bytes_read_ += blocks.size();
  return into.size();
}

}  // namespace sarsen
