#include "dataplane/store/metadata/metadata_damage.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include <rocksdb/options.h>
#include <rocksdb/sst_file_reader.h>

namespace sarsen {
namespace {

// The eight bytes of `key` from `offset`, as a number that sorts like them.
std::uint64_t number_at(const std::string& key, std::size_t offset) {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    const auto byte = offset + i < key.size() ? static_cast<unsigned char>(key[offset + i]) : 0u;
    number = (number << 8) | byte;
  }
  return number;
}

std::string key_of(const std::string& prefix, std::uint64_t number) {
  std::string key = prefix;
  for (int shift = 56; shift >= 0; shift -= 8) key.push_back(static_cast<char>(number >> shift));
  return key;
}

// Walks the keys of one table file and steps over blocks that cannot be read.
class TableWalk {
 public:
  explicit TableWalk(rocksdb::SstFileReader& reader) : reader_(reader) {
    read_.verify_checksums = true;
    read_.fill_cache = false;
  }

  // With a new iterator: one that met a bad block does not recover.
  bool seek(const std::string& key) {
    walk_.reset(reader_.NewIterator(read_));
    walk_->Seek(key);
    return walk_->Valid();
  }
  bool valid() const { return walk_->Valid(); }
  bool failed() const { return !walk_->Valid() && !walk_->status().ok(); }
  std::string key() const { return walk_->key().ToString(); }
  void next() { walk_->Next(); }

  // A block after `before` is bad. Goes to the first key behind it that a seek can reach, at most
  // `last`, by halving the distance: the index of the file says for each key which block to read.
  bool step_over(const std::string& before, const std::string& last) {
    if (!seek(last)) return false;
    const auto differ = std::mismatch(before.begin(), before.end(), last.begin(), last.end());
    const std::string prefix(before.begin(), differ.first);
    std::uint64_t bad = number_at(before, prefix.size());
    std::uint64_t good = number_at(last, prefix.size());
    std::string found = last;
    while (good > bad + 1) {
      const std::uint64_t middle = bad + (good - bad) / 2;
      if (seek(key_of(prefix, middle))) {
        found = key();
        good = middle;
      } else {
        bad = middle;
      }
    }
    return seek(found);
  }

 private:
  rocksdb::SstFileReader& reader_;
  rocksdb::ReadOptions read_;
  std::unique_ptr<rocksdb::Iterator> walk_;
};

}  // namespace

// A file whose index cannot be read is damaged whole.
std::optional<DamagedRange> examine_table_file(const rocksdb::Options& options,
                                               const std::string& path, DamagedRange file) {
  rocksdb::SstFileReader reader(options);
  if (!reader.Open(path).ok()) return file;
  TableWalk walk(reader);
  DamagedRange damaged = file;
  bool any = false;
  std::string previous = file.first;
  walk.seek(file.first);
  for (;;) {
    for (; walk.valid(); walk.next()) previous = walk.key();
    if (!walk.failed()) break;
    if (!any) damaged.first = previous;
    any = true;
    damaged.last = file.last;
    if (!walk.step_over(previous, file.last)) break;
    damaged.last = walk.key();
  }
  if (!any) return std::nullopt;
  return damaged;
}

void collect_keys(const rocksdb::Options& options, const std::string& path,
                  const std::string& first, const std::string& last, std::set<std::string>& keys) {
  rocksdb::SstFileReader reader(options);
  if (!reader.Open(path).ok()) return;
  TableWalk walk(reader);
  std::string previous = first;
  walk.seek(first);
  for (;;) {
    for (; walk.valid() && walk.key() <= last; walk.next()) {
      previous = walk.key();
      keys.insert(previous);
    }
    if (!walk.failed() || !walk.step_over(previous, last)) return;
  }
}

}  // namespace sarsen
