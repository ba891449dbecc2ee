// The two sides of a FUSE server for its tests: a kernel that is a queue of packets, and a target
// in memory whose operations wait until the test lets them go.
#pragma once

#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "dataplane/blockd/fuse/fuse_channel.h"
#include "dataplane/blockd/fuse/fuse_protocol.h"
#include "dataplane/client/block_target.h"
#include "dataplane/runtime/condition.h"
#include "tests/unit/runtime/manual_env.h"

namespace sarsen::fuse {

using Bytes = std::vector<std::byte>;

template <typename T>
Bytes bytes_of(const T& value) {
  const auto* data = reinterpret_cast<const std::byte*>(&value);
  return {data, data + sizeof(value)};
}

inline Bytes text(std::string_view value) {
  Bytes bytes(value.size());
  std::memcpy(bytes.data(), value.data(), value.size());
  return bytes;
}

struct Answer {
  int error = 0;
  Bytes body;
  template <typename T>
  T as() const {
    T value{};
    std::memcpy(&value, body.data(), std::min(sizeof(T), body.size()));
    return value;
  }
};

class FakeKernel final : public Channel {
 public:
  explicit FakeKernel(Executor& executor) : arrived_(executor) {}

  // Queues a request and gives its `unique`.
  std::uint64_t ask(std::uint32_t opcode, std::uint64_t node, Bytes body) {
    const std::uint64_t unique = next_unique_ += 2;
    push(opcode, node, unique, std::move(body));
    return unique;
  }
  std::uint64_t ask_again(std::uint32_t opcode, std::uint64_t node, Bytes body) {
    const std::uint64_t unique = (next_unique_ += 2) | kUniqueResent;
    push(opcode, node, unique, std::move(body));
    return unique;
  }
  std::uint64_t ask_write(std::uint64_t offset, const Bytes& data) {
    fuse_write_in in{};
    in.offset = offset;
    in.size = static_cast<std::uint32_t>(data.size());
    Bytes body = bytes_of(in);
    body.insert(body.end(), data.begin(), data.end());
    return ask(FUSE_WRITE, kFileNode, std::move(body));
  }
  std::uint64_t ask_read(std::uint64_t offset, std::uint32_t size) {
    fuse_read_in in{};
    in.offset = offset;
    in.size = size;
    return ask(FUSE_READ, kFileNode, bytes_of(in));
  }
  // What receive() gives when the queue is empty: -EAGAIN, or how the connection ended.
  void end_with(int error) {
    end_ = error;
    arrived_.notify_all();
  }
  bool answered(std::uint64_t unique) const { return answers.contains(unique); }

  Task<void> wait_readable() override {
    if (packets_.empty() && end_ == -EAGAIN && !closed_) co_await arrived_.wait();
  }
  int receive(std::span<std::byte> into) override {
    if (packets_.empty()) return end_;
    const Bytes packet = std::move(packets_.front());
    packets_.pop_front();
    if (into.size() < packet.size()) return -EIO;  // as the kernel does: it is lost
    std::copy(packet.begin(), packet.end(), into.begin());
    return static_cast<int>(packet.size());
  }
  int send(std::span<const std::span<const std::byte>> pieces) override {
    Bytes packet;
    for (const auto& piece : pieces) packet.insert(packet.end(), piece.begin(), piece.end());
    fuse_out_header header{};
    if (packet.size() < sizeof(header)) return EINVAL;
    std::memcpy(&header, packet.data(), sizeof(header));
    if (header.len != packet.size()) return EINVAL;
    if (header.unique == 0) {
      notifications.push_back(header.error);
      return resend_error;
    }
    if (answers.contains(header.unique)) return ENOENT;
    answers[header.unique] = {-header.error, Bytes(packet.begin() + sizeof(header), packet.end())};
    return 0;
  }
  void close() override {
    closed_ = true;
    arrived_.notify_all();
  }
  std::size_t queued() const { return packets_.size(); }

  std::map<std::uint64_t, Answer> answers;
  std::vector<int> notifications;
  int resend_error = 0;

 private:
  void push(std::uint32_t opcode, std::uint64_t node, std::uint64_t unique, Bytes body) {
    fuse_in_header header{};
    header.len = static_cast<std::uint32_t>(sizeof(header) + body.size());
    header.opcode = opcode;
    header.unique = unique;
    header.nodeid = node;
    Bytes packet = bytes_of(header);
    packet.insert(packet.end(), body.begin(), body.end());
    packets_.push_back(std::move(packet));
    arrived_.notify_all();
  }

  std::deque<Bytes> packets_;
  Condition arrived_;
  std::uint64_t next_unique_ = 0;
  int end_ = -EAGAIN;
  bool closed_ = false;
};

class FakeTarget final : public BlockTarget {
 public:
  FakeTarget(Executor& executor, std::uint64_t size) : data(size), released_(executor) {}

  std::uint64_t size_bytes() const override { return data.size(); }
  bool read_only() const override { return false; }
  Task<Result<void>> read(std::uint64_t offset, std::span<std::byte> into) override {
    SARSEN_CO_TRY(co_await turn("read"));
    std::copy_n(data.begin() + static_cast<std::ptrdiff_t>(offset), into.size(), into.begin());
    co_return Result<void>();
  }
  Task<Result<void>> write(std::uint64_t offset, std::span<const std::byte> from) override {
    SARSEN_CO_TRY(co_await turn("write"));
    std::copy(from.begin(), from.end(), data.begin() + static_cast<std::ptrdiff_t>(offset));
    co_return Result<void>();
  }
  Task<Result<void>> trim(std::uint64_t offset, std::uint64_t length) override {
    return zero("trim", offset, length);
  }
  Task<Result<void>> write_zeroes(std::uint64_t offset, std::uint64_t length,
                                  bool keep_allocated) override {
    return zero(keep_allocated ? "zero and keep" : "zero", offset, length);
  }
  Task<Result<void>> flush() override { return turn("flush"); }
  Task<Result<std::vector<BlockStatus>>> status(std::uint64_t offset, std::uint64_t length,
                                                std::uint32_t) override {
    // Allocated but for the second quarter.
    const std::uint64_t quarter = data.size() / 4;
    const std::uint64_t run_end = offset < quarter       ? quarter
                                  : offset < 2 * quarter ? 2 * quarter
                                                         : data.size();
    const BlockStatus run{std::min(run_end, offset + length) - offset,
                          offset < quarter || offset >= 2 * quarter};
    co_return std::vector<BlockStatus>{run};
  }

  // Lets waiting operations go on.
  void release() {
    holding = false;
    released_.notify_all();
  }

  Bytes data;
  bool holding = false;
  std::optional<Error> failure;
  std::vector<std::string> calls;
  std::uint32_t waiting = 0;

 private:
  Task<Result<void>> turn(std::string name) {
    calls.push_back(name);
    ++waiting;
    while (holding) co_await released_.wait();
    --waiting;
    if (failure) co_return fail(*failure);
    co_return Result<void>();
  }
  Task<Result<void>> zero(std::string name, std::uint64_t offset, std::uint64_t length) {
    SARSEN_CO_TRY(co_await turn(name));
    std::fill_n(data.begin() + static_cast<std::ptrdiff_t>(offset), length, std::byte{0});
    co_return Result<void>();
  }
  Condition released_;
};

}  // namespace sarsen::fuse
