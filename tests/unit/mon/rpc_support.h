// A mon on a unix socket in a folder of its own, and a client of it.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "dataplane/membership/rpc/mon_client.h"
#include "dataplane/mon/mon_server.h"
#include "tests/unit/mon/memory_map_store.h"

namespace sarsen {

class MonOnSocket {
 public:
  MonOnSocket() {
    std::string name = (std::filesystem::temp_directory_path() / "mon_rpc.XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    start();
  }
  ~MonOnSocket() {
    stop();
    std::filesystem::remove_all(folder_);
  }
  MonOnSocket(const MonOnSocket&) = delete;
  MonOnSocket& operator=(const MonOnSocket&) = delete;

  void start() {
    mon_ = Mon::start(store, [] { return kWallTimeNs; }, {}).value();
    server_ = MonServer::start(*mon_, {address()}).value();
  }
  // The socket's name goes, as after a kill it would not; the state stays.
  void stop() {
    server_.reset();
    mon_.reset();
  }
  Address address() const { return "unix:" + folder_ + "/run/mon.sock"; }
  Mon& mon() { return *mon_; }
  std::unique_ptr<MonClient> client() const {
    return MonClient::create({.mon = address(), .call_max = seconds(20)}).value();
  }

  MemoryMapStore store;

 private:
  std::string folder_;
  std::unique_ptr<Mon> mon_;
  std::unique_ptr<MonServer> server_;
};

// Tries until it holds; the test's own time limit ends it otherwise.
template <typename Predicate>
void await(Predicate predicate) {
  while (!predicate()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

}  // namespace sarsen
