// LeafCache: decoded index leaves in memory, least recently used out first; the others are read
// from RocksDB by a blocking job.
//
// Shard    One.   Bounded by bytes_max (soft by one batch of loads).
// Borrows  Env, MetadataDb.
// Errors   corrupt_index: the stored leaf, or the part of RocksDB that holds it, fails its
// checksum.
//
// Leaves are immutable; the destager publishes new versions. What get() returns is current when it
// returns and may be superseded at the caller's next wait.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "dataplane/runtime/env.h"
#include "dataplane/store/index/index_leaf.h"
#include "dataplane/store/index/object_key.h"

namespace sarsen {

class MetadataDb;

using LeafPointer = std::shared_ptr<const IndexLeaf>;

class LeafCache {
 public:
  LeafCache(Env& env, MetadataDb& db, std::uint64_t bytes_max)
      : env_(env), db_(db), bytes_max_(bytes_max) {}

  // Null when it is not in memory.
  LeafPointer find(const LeafKey& key);
  // In the order of the keys; a leaf that does not exist is an empty one.
  Task<Result<std::vector<LeafPointer>>> get(std::vector<LeafKey> keys);
  void publish(const LeafKey& key, LeafPointer leaf);

  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t loads() const { return loads_; }

 private:
  struct Node {
    LeafKey key;
    LeafPointer leaf;
    std::uint64_t bytes = 0;
  };
  void insert(const LeafKey& key, LeafPointer leaf);
  void evict();

  Env& env_;
  MetadataDb& db_;
  const std::uint64_t bytes_max_;
  std::list<Node> by_use_;  // most recent first
  absl::flat_hash_map<LeafKey, std::list<Node>::iterator, std::hash<LeafKey>> nodes_;
  std::uint64_t bytes_ = 0;
  std::uint64_t version_ = 0;  // rises with each publish
  std::uint64_t loads_ = 0;
};

}  // namespace sarsen
