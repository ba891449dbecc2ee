// Shared by the tests of runtime/uring: a reactor, scratch files with direct I/O, ready-made
// memory.
#pragma once

#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dataplane/runtime/uring/buffer_arena.h"
#include "dataplane/runtime/uring/reactor.h"
#include "dataplane/runtime/uring/ring_operation.h"

namespace sarsen {

inline std::unique_ptr<Reactor> make_reactor(ReactorOptions options = {}) {
  auto reactor = Reactor::create(std::move(options));
  EXPECT_TRUE(reactor) << reactor.error().message();
  return *std::move(reactor);
}

// In the working directory, which is on a file system with direct I/O where /tmp may not be.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = std::filesystem::current_path() / "uring_test.XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  std::string file(const std::string& name) const { return path_ / name; }
  std::string file_of(const std::string& name, std::uint64_t bytes) const {
    std::ofstream(file(name)).close();
    std::filesystem::resize_file(file(name), bytes);
    return file(name);
  }

 private:
  std::filesystem::path path_;
};

// Block-aligned memory of its own, outside of any arena.
class AlignedMemory {
 public:
  explicit AlignedMemory(std::size_t size)
      : data_(static_cast<std::byte*>(aligned_alloc(kBlockBytes, size))), size_(size) {
    std::memset(data_, 0, size);
  }
  ~AlignedMemory() { free(data_); }
  AlignedMemory(const AlignedMemory&) = delete;
  AlignedMemory& operator=(const AlignedMemory&) = delete;
  std::span<std::byte> span() const { return {data_, size_}; }

 private:
  std::byte* data_;
  std::size_t size_;
};

inline void fill(std::span<std::byte> memory, unsigned seed) {
  for (std::size_t i = 0; i < memory.size(); ++i) {
    memory[i] = static_cast<std::byte>((i * 31 + i / 4096 + seed) & 0xff);
  }
}

inline bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

// Runs `work` in a child process, which may spoil its own limits and filters. What it returns is
// printed; an empty string is success.
inline void expect_in_child(const std::function<std::string()>& work) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const std::string complaint = work();
    if (!complaint.empty()) std::fprintf(stderr, "%s\n", complaint.c_str());
    _exit(complaint.empty() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "see above; status " << status;
}

// One no-op through the ring.
inline Task<void> no_operation(Reactor& reactor) {
  co_await RingOperation(reactor, [](io_uring_sqe& entry) { io_uring_prep_nop(&entry); });
}

}  // namespace sarsen
