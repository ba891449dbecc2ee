#include "dataplane/store/leaf_cache.h"

#include <string>
#include <string_view>
#include <utility>

#include "dataplane/store/error.h"
#include "dataplane/store/index/index_leaf_codec.h"
#include "dataplane/store/metadata/metadata_db.h"

namespace sarsen {
namespace {

// A list node, a hash slot, a shared pointer's block.
constexpr std::uint64_t kNodeOverheadBytes = 160;

using Loaded = std::vector<Result<LeafPointer>>;

// Runs on a thread of the pool.
Loaded load_leaves(const MetadataDb& db, const std::vector<LeafKey>& keys) {
  std::vector<LeafKeyBytes> encoded;
  encoded.reserve(keys.size());
  for (const LeafKey& key : keys) encoded.push_back(encode_leaf_key(key));
  std::vector<std::string_view> views;
  views.reserve(keys.size());
  for (const LeafKeyBytes& bytes : encoded) {
    views.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  auto values = db.multi_get(MetadataFamily::index, views);
  Loaded loaded;
  loaded.reserve(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (!values[i]) {
      loaded.push_back(fail(index_error(values[i].error())));
    } else if (!*values[i]) {
      loaded.push_back(std::make_shared<const IndexLeaf>());
    } else {
      auto leaf = decode_leaf(std::as_bytes(std::span(**values[i])), encoded[i]);
      if (leaf) {
        loaded.push_back(std::make_shared<const IndexLeaf>(*std::move(leaf)));
      } else {
        loaded.push_back(fail(make_error(StoreError::corrupt_index, leaf.error().message())));
      }
    }
  }
  return loaded;
}

}  // namespace

LeafPointer LeafCache::find(const LeafKey& key) {
  const auto found = nodes_.find(key);
  if (found == nodes_.end()) return nullptr;
  by_use_.splice(by_use_.begin(), by_use_, found->second);
  return found->second->leaf;
}

Task<Result<std::vector<LeafPointer>>> LeafCache::get(std::vector<LeafKey> keys) {
  std::vector<LeafPointer> leaves(keys.size());
  while (true) {
    std::vector<LeafKey> missing;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      leaves[i] = find(keys[i]);
      if (leaves[i]) continue;
      missing.push_back(keys[i]);
      places.push_back(i);
    }
    if (missing.empty()) co_return leaves;
    const std::uint64_t version = version_;
    loads_ += missing.size();
    const MetadataDb& db = db_;
    auto loaded = co_await env_.blocking.run([&db, &missing] { return load_leaves(db, missing); });
    // A publish meanwhile may have superseded what was read: look again.
    if (version_ != version) continue;
    for (std::size_t i = 0; i < missing.size(); ++i) {
      if (!loaded[i]) co_return fail(loaded[i].error());
      leaves[places[i]] = *loaded[i];
      insert(missing[i], *std::move(loaded[i]));
    }
    evict();
    co_return leaves;
  }
}

void LeafCache::publish(const LeafKey& key, LeafPointer leaf) {
  ++version_;
  insert(key, std::move(leaf));
  evict();
}

void LeafCache::insert(const LeafKey& key, LeafPointer leaf) {
  const std::uint64_t bytes = leaf->memory_bytes() + kNodeOverheadBytes;
  if (const auto found = nodes_.find(key); found != nodes_.end()) {
    bytes_ += bytes - found->second->bytes;
    found->second->leaf = std::move(leaf);
    found->second->bytes = bytes;
    by_use_.splice(by_use_.begin(), by_use_, found->second);
    return;
  }
  by_use_.push_front({.key = key, .leaf = std::move(leaf), .bytes = bytes});
  nodes_[key] = by_use_.begin();
  bytes_ += bytes;
}

void LeafCache::evict() {
  while (bytes_ > bytes_max_ && by_use_.size() > 1) {
    bytes_ -= by_use_.back().bytes;
    nodes_.erase(by_use_.back().key);
    by_use_.pop_back();
  }
}

}  // namespace sarsen
