// The rest of what RocksDB wants of its world, beside the file system.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <rocksdb/env.h>

namespace sarsen {

// Our file system, RocksDB's default threads, and nothing in file contents that differs between two
// runs: the calendar stands still and the database's identity is `identity`. (The session id that
// RocksDB puts into each table file still differs; it has a fixed length.)
std::unique_ptr<rocksdb::Env> make_metadata_env(std::shared_ptr<rocksdb::FileSystem> file_system,
                                                std::string identity);

// Passes warnings and errors on, one line each; drops everything when `log` is empty.
std::shared_ptr<rocksdb::Logger> make_metadata_logger(std::function<void(std::string_view)> log);

}  // namespace sarsen
