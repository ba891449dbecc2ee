#include "dataplane/store/metadata/metadata_damage.h"

#include <memory>
#include <utility>

#include <rocksdb/options.h>
#include <rocksdb/sst_file_reader.h>

namespace sarsen {

// Walks forward to the first bad block and backward to the last one. A file whose index cannot be
// read is damaged whole.
std::optional<DamagedRange> examine_table_file(const rocksdb::Options& options,
                                               const std::string& path, DamagedRange file) {
  rocksdb::SstFileReader reader(options);
  if (!reader.Open(path).ok()) return file;
  rocksdb::ReadOptions read;
  read.verify_checksums = true;
  read.fill_cache = false;
  const std::unique_ptr<rocksdb::Iterator> walk(reader.NewIterator(read));
  std::string first = file.first;
  for (walk->SeekToFirst(); walk->Valid(); walk->Next()) first = walk->key().ToString();
  if (walk->status().ok()) return std::nullopt;
  std::string last = file.last;
  for (walk->SeekToLast(); walk->Valid(); walk->Prev()) last = walk->key().ToString();
  file.first = std::move(first);
  file.last = std::move(last);
  return file;
}

}  // namespace sarsen
