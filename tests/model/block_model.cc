#include "tests/model/block_model.h"

#include <algorithm>

#include "dataplane/base/assert.h"

namespace sarsen::model {

BlockModel::BlockModel(std::uint64_t image, std::uint64_t block_count)
    : image_(image), blocks_(block_count) {
  Value never_written;
  never_written.zeros = true;
  never_written.effect_end = never_written.first_end = 0;
  for (auto& values : blocks_) values.push_back(never_written);
}

// ----------------------------------------------------------------------------------------- writes

WriteId BlockModel::begin(BlockIndex first, std::uint64_t count, bool zeros) {
  SARSEN_ASSERT(first.value + count <= blocks_.size(), "operations stay within the image");
  const WriteId id(next_write_++);
  Value value;
  value.write = id;
  value.zeros = zeros;
  value.optional = true;
  value.begun = value.last_begin = ++time_;
  for (std::uint64_t i = 0; i < count; ++i) blocks_[first.value + i].push_back(value);
  open_writes_[id.value] = {first, count, time_};
  return id;
}

BlockModel::Range BlockModel::end_write(WriteId id) {
  const auto found = open_writes_.find(id.value);
  SARSEN_ASSERT(found != open_writes_.end(), "a write ends once");
  const Range range = found->second;
  open_writes_.erase(found);
  return range;
}

BlockModel::Value* BlockModel::find(BlockIndex block, WriteId write) {
  for (Value& value : blocks_[block.value]) {
    if (value.write == write) return &value;
  }
  return nullptr;
}

void BlockModel::acknowledged(WriteId id) {
  const Range range = end_write(id);
  ++time_;
  ++writes_acknowledged_;
  for (std::uint64_t i = 0; i < range.count; ++i) {
    const BlockIndex block(range.first.value + i);
    Value* value = find(block, id);
    // Gone when a newer value was read before this one was acknowledged.
    if (value == nullptr) continue;
    value->optional = false;
    value->effect_end = time_;
    value->first_end = std::min(value->first_end, time_);
    value->touched = time_;
    prune(blocks_[block.value]);
  }
}

void BlockModel::refused(WriteId id) {
  const Range range = end_write(id);
  ++time_;
  for (std::uint64_t i = 0; i < range.count; ++i) {
    std::erase_if(blocks_[range.first.value + i], [id](const Value& v) { return v.write == id; });
  }
}

void BlockModel::unknown(WriteId id) {
  unknown_writes_[id.value] = end_write(id);
}

void BlockModel::recovered() {
  ++time_;
  for (const auto& [id, range] : unknown_writes_) {
    for (std::uint64_t i = 0; i < range.count; ++i) {
      Value* value = find(BlockIndex(range.first.value + i), WriteId(id));
      if (value != nullptr) value->effect_end = std::min(value->effect_end, time_);
    }
  }
  unknown_writes_.clear();
}

// ------------------------------------------------------------------------------------------ reads

ReadId BlockModel::begin_read(BlockIndex first, std::uint64_t count) {
  SARSEN_ASSERT(first.value + count <= blocks_.size(), "operations stay within the image");
  const ReadId id(next_read_++);
  reads_[id.value] = {first, count, ++time_};
  return id;
}

std::optional<std::string> BlockModel::end_read(ReadId id, std::span<const std::byte> bytes) {
  const auto found = reads_.find(id.value);
  SARSEN_ASSERT(found != reads_.end(), "a read ends once");
  const Range range = found->second;
  reads_.erase(found);
  SARSEN_ASSERT(bytes.size() == range.count * kBlockBytes, "a read gives what it asked for");
  ++time_;
  for (std::uint64_t i = 0; i < range.count; ++i) {
    auto violation = read_value(BlockIndex(range.first.value + i),
                                bytes.subspan(i * kBlockBytes, kBlockBytes), range.begun);
    if (violation) return violation;
  }
  return std::nullopt;
}

std::optional<std::string> BlockModel::read_value(BlockIndex block,
                                                  std::span<const std::byte> bytes,
                                                  std::uint64_t begun) {
  ++blocks_checked_;
  std::vector<Value>& values = blocks_[block.value];
  const auto name = read_block(bytes.first<kBlockBytes>());
  if (!name) return complaint(block, bytes, "torn or invented");
  const bool zeros = name->write.value == 0;
  if (!zeros && (name->image != image_ || name->block != block)) {
    return complaint(block, bytes, "another block's data");
  }
  std::vector<Value*> candidates;
  for (Value& value : values) {
    if (zeros ? value.zeros : !value.zeros && value.write == name->write)
      candidates.push_back(&value);
  }
  if (candidates.empty()) return complaint(block, bytes, "overwritten, refused, or never written");
  const bool legal = std::any_of(candidates.begin(), candidates.end(), [&](const Value* value) {
    return value->dead_since > begun && fits(values, after_read(*value, begun, time_));
  });
  if (!legal)
    return complaint(block, bytes, "stale: overwritten before the read began, or unread again");
  if (candidates.size() == 1) {
    *candidates.front() = after_read(*candidates.front(), begun, time_);
    prune(values);
  }
  return std::nullopt;
}

BlockModel::Value BlockModel::after_read(const Value& value, std::uint64_t begun,
                                         std::uint64_t ended) {
  Value read = value;
  // It took effect: by the end of this read, and by the time when it had to.
  read.optional = false;
  read.first_end = std::min({read.first_end, ended, read.effect_end});
  read.last_begin = std::max(read.last_begin, begun);
  read.touched = ended;
  return read;
}

// Whether no order of the operations on `a` and `b` exists.
bool BlockModel::conflict(const Value& a, const Value& b) {
  if (a.optional || b.optional) return false;
  const bool a_forward = a.first_end < a.last_begin;
  const bool b_forward = b.first_end < b.last_begin;
  if (a_forward && b_forward) return a.first_end < b.last_begin && b.first_end < a.last_begin;
  const auto within = [](const Value& inner, const Value& outer) {
    return inner.last_begin > outer.first_end && inner.first_end < outer.last_begin;
  };
  if (a_forward) return within(b, a);
  if (b_forward) return within(a, b);
  return false;
}

bool BlockModel::fits(const std::vector<Value>& values, const Value& changed) {
  return std::none_of(values.begin(), values.end(), [&changed](const Value& other) {
    return other.write != changed.write && conflict(other, changed);
  });
}

// Drops values that no read can return any more: one that certainly took effect has begun after
// they were certainly in place, and every open read began after that.
void BlockModel::prune(std::vector<Value>& values) {
  if (values.size() == 1) return;
  const std::uint64_t oldest_read = reads_.empty() ? time_ : reads_.begin()->second.begun;
  for (Value& value : values) {
    if (value.dead_since != kNever) continue;
    const std::uint64_t in_place = std::min(value.first_end, value.effect_end);
    const bool dead = std::any_of(values.begin(), values.end(), [&](const Value& other) {
      return !other.optional && other.write != value.write && other.first_end != kNever &&
             other.last_begin > in_place;
    });
    if (dead) value.dead_since = time_;
  }
  std::erase_if(values, [oldest_read](const Value& value) {
    return value.dead_since != kNever && value.dead_since <= oldest_read &&
           value.touched <= oldest_read;
  });
}

std::string BlockModel::complaint(BlockIndex block, std::span<const std::byte> bytes,
                                  const char* what) const {
  std::string text = "block " + std::to_string(block.value) + " of image " +
                     std::to_string(image_) + " read as " +
                     describe_block(bytes.first<kBlockBytes>()) + " (" + what + "); may be:";
  for (const Value& value : blocks_[block.value]) {
    if (value.dead_since != kNever) continue;
    text += value.zeros ? " zeros" : " write " + std::to_string(value.write.value);
    text += value.optional ? "?" : "";
  }
  return text;
}

}  // namespace sarsen::model
