// The embedded map store: RocksDB in a folder of the host (docs/map_store.md has the format).
//
// Lifecycle  create() once, in a folder that is new or empty: rule M1. open() claims it; the claim
//            ends with the object or with the process, however that ends.
// Threads    One at a time. Calls block, for a synced write.
#pragma once

#include <memory>
#include <string>

#include "dataplane/mon/store/map_store.h"

namespace sarsen {

class RocksdbMapStore final : public MapStore {
 public:
  // Writes the first state and closes. Error: exists, io_error.
  static Result<void> create(const std::string& folder, const MonState& state);
  // Error: absent, in_use, corrupt, format_unsupported, io_error.
  static Result<std::unique_ptr<RocksdbMapStore>> open(const std::string& folder);
  ~RocksdbMapStore() override;

  Result<MonState> load() override;
  Result<void> commit(const MonState& from, const MonState& to) override;

 private:
  struct Database;
  explicit RocksdbMapStore(std::unique_ptr<Database> database);
  std::unique_ptr<Database> database_;
};

}  // namespace sarsen
