// A BlockTarget whose data is a file: it outlives a server that is killed. Operations take a while,
// so that many are in flight at any moment, and none is carried out before its time is over: what a
// killed server had accepted and not done must come back from the kernel or be missed.
#pragma once

#include <cerrno>
#include <string>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataplane/client/block_target.h"
#include "dataplane/runtime/env.h"

namespace sarsen {

class FileTarget final : public BlockTarget {
 public:
  // `delay_max`: each operation waits a random time up to this one.
  FileTarget(Env& env, int file, Duration delay_max)
      : env_(env), file_(file), delay_max_(delay_max) {
    size_ = static_cast<std::uint64_t>(::lseek(file, 0, SEEK_END));
  }
  void grow(std::uint64_t bytes) {
    size_ += bytes;
    if (::ftruncate(file_, static_cast<off_t>(size_)) != 0) std::abort();
  }

  std::uint64_t size_bytes() const override { return size_; }
  bool read_only() const override { return false; }

  Task<Result<void>> read(std::uint64_t offset, std::span<std::byte> into) override {
    co_await delay();
    co_return outcome(::pread(file_, into.data(), into.size(), static_cast<off_t>(offset)) ==
                          static_cast<ssize_t>(into.size()),
                      "pread");
  }
  Task<Result<void>> write(std::uint64_t offset, std::span<const std::byte> from) override {
    co_await delay();
    co_return outcome(::pwrite(file_, from.data(), from.size(), static_cast<off_t>(offset)) ==
                          static_cast<ssize_t>(from.size()),
                      "pwrite");
  }
  Task<Result<void>> trim(std::uint64_t offset, std::uint64_t length) override {
    ++trims;
    return punch(offset, length);
  }
  Task<Result<void>> write_zeroes(std::uint64_t offset, std::uint64_t length, bool) override {
    return punch(offset, length);
  }
  Task<Result<void>> flush() override {
    ++flushes;
    co_return Result<void>();
  }
  Task<Result<std::vector<BlockStatus>>> status(std::uint64_t, std::uint64_t length,
                                                std::uint32_t) override {
    co_return std::vector<BlockStatus>{{length, true}};
  }

  std::uint64_t trims = 0;
  std::uint64_t flushes = 0;

 private:
  Task<void> delay() {
    if (delay_max_.value > 0) {
      const auto wait = env_.random.next() % static_cast<std::uint64_t>(delay_max_.value);
      co_await env_.clock.sleep(Duration(static_cast<std::int64_t>(wait)));
    }
  }
  Task<Result<void>> punch(std::uint64_t offset, std::uint64_t length) {
    co_await delay();
    co_return outcome(::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                  static_cast<off_t>(offset), static_cast<off_t>(length)) == 0,
                      "punch a hole");
  }
  static Result<void> outcome(bool good, const char* doing) {
    if (good) return {};
    return fail(error_from_errno(errno, doing));
  }

  Env& env_;
  int file_;
  Duration delay_max_;
  std::uint64_t size_ = 0;
};

}  // namespace sarsen
