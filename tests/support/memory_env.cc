#include "tests/support/memory_env.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace sarsen::test {

void MemoryExecutor::run_until_idle() {
  while (!ready_.empty()) {
    if (order_) std::swap(ready_.front(), ready_[order_->below(ready_.size())]);
    const auto handle = ready_.front();
    ready_.pop_front();
    handle.resume();
  }
}

void MemoryClock::advance(Duration duration) {
  now_ = now_ + duration;
  IntrusiveList<SleepOperation> later;
  while (!sleeping_.empty()) {
    SleepOperation& operation = sleeping_.pop_front();
    if (operation.deadline() <= now_) {
      executor_.schedule(operation.finish());
    } else {
      later.push_back(operation);
    }
  }
  sleeping_.splice_back(later);
}

void MemoryClock::withdraw(SleepOperation& operation, bool resume) {
  operation.unlink();
  if (resume) executor_.schedule(operation.finish());
}

Result<Buffer> MemoryBuffers::allocate(std::size_t bytes) {
  const std::size_t size = round_up(bytes, kBlockBytes);
  if (size > bytes_max_ - bytes_used_) return fail(make_error(RuntimeError::out_of_memory));
  auto* data = static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, size));
  if (data == nullptr) return fail(make_error(RuntimeError::out_of_memory));
  bytes_used_ += size;
  bytes_used_most_ = std::max(bytes_used_most_, bytes_used_);
  return Buffer(*this, data, size);
}

void MemoryBuffers::release(std::byte* data, std::size_t size) {
  bytes_used_ -= size;
  std::free(data);
}

// One direction of a connection.
struct MemoryPipe {
  Executor& executor;
  std::size_t bytes_max;
  std::vector<std::byte> bytes;  // the first `taken` were received
  std::size_t taken = 0;
  bool ended = false;  // by the sending side: what is left can be received
  bool reset = false;  // by the receiving side
  std::coroutine_handle<> receiver, sender;

  std::size_t held() const { return bytes.size() - taken; }
  std::size_t take(std::span<std::byte> into) {
    const std::size_t count = std::min(into.size(), held());
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(taken), count, into.begin());
    taken += count;
    if (taken == bytes.size()) clear();
    return count;
  }
  // Gives how much of `piece` there was room for.
  std::size_t put(std::span<const std::byte> piece) {
    const std::size_t count = std::min(bytes_max - held(), piece.size());
    bytes.insert(bytes.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }
  void clear() {
    bytes.clear();
    taken = 0;
  }
  void wake(std::coroutine_handle<>& waiter) {
    if (waiter) executor.schedule(std::exchange(waiter, {}));
  }
  void close(bool& why) {
    why = true;
    wake(receiver);
    wake(sender);
  }
};

namespace {

// Suspends until the other side changes the pipe.
struct Wait {
  std::coroutine_handle<>& slot;
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> waiter) {
    SARSEN_ASSERT(!slot, "one receive and one send at a time");
    slot = waiter;
  }
  void await_resume() const {}
};

class MemoryConnection final : public Connection {
 public:
  MemoryConnection(std::shared_ptr<MemoryPipe> in, std::shared_ptr<MemoryPipe> out,
                   std::size_t receive_bytes)
      : in_(std::move(in)), out_(std::move(out)), receive_bytes_(receive_bytes) {}
  ~MemoryConnection() override { close(); }

  Task<Result<std::size_t>> receive(std::span<std::byte> into) override {
    const auto pipe = in_;
    const std::size_t most = receive_bytes_;
    while (pipe->held() == 0 && !pipe->ended && !pipe->reset) co_await Wait{pipe->receiver};
    if (pipe->reset) co_return fail(make_error(RuntimeError::connection_reset));
    const std::size_t count = pipe->take(into.first(std::min(into.size(), most)));
    pipe->wake(pipe->sender);
    co_return count;
  }

  Task<Result<void>> send(std::span<const std::span<const std::byte>> pieces) override {
    const auto pipe = out_;
    for (auto piece : pieces) {
      while (!piece.empty()) {
        while (pipe->held() >= pipe->bytes_max && !pipe->ended && !pipe->reset) {
          co_await Wait{pipe->sender};
        }
        if (pipe->ended || pipe->reset) co_return fail(make_error(RuntimeError::connection_reset));
        piece = piece.subspan(pipe->put(piece));
        pipe->wake(pipe->receiver);
      }
    }
    co_return Result<void>();
  }

  void close() override {
    if (closed_) return;
    closed_ = true;
    in_->clear();
    in_->close(in_->reset);
    out_->close(out_->ended);
  }
  Address peer() const override { return "memory"; }

 private:
  std::shared_ptr<MemoryPipe> in_, out_;
  std::size_t receive_bytes_;
  bool closed_ = false;
};

}  // namespace

class MemoryNetwork::MemoryListener final : public Listener {
 public:
  MemoryListener(MemoryNetwork& network, Address address)
      : network_(network), address_(std::move(address)) {
    network_.listeners_[address_] = this;
  }
  ~MemoryListener() override { close(); }

  Task<Result<std::unique_ptr<Connection>>> accept() override {
    while (arrived_.empty() && !closed_) co_await Wait{accepter_};
    if (closed_) co_return fail(make_error(RuntimeError::stopped));
    auto connection = std::move(arrived_.front());
    arrived_.pop_front();
    co_return connection;
  }
  void close() override {
    if (closed_) return;
    closed_ = true;
    network_.listeners_.erase(address_);
    if (accepter_) network_.executor_.schedule(std::exchange(accepter_, {}));
  }
  Address address() const override { return address_; }

  void arrive(std::unique_ptr<Connection> connection) {
    arrived_.push_back(std::move(connection));
    if (accepter_) network_.executor_.schedule(std::exchange(accepter_, {}));
  }

 private:
  MemoryNetwork& network_;
  Address address_;
  bool closed_ = false;
  std::deque<std::unique_ptr<Connection>> arrived_;
  std::coroutine_handle<> accepter_;
};

std::pair<std::unique_ptr<Connection>, std::unique_ptr<Connection>> MemoryNetwork::pair() {
  auto there =
      std::make_shared<MemoryPipe>(MemoryPipe{executor_, pipe_bytes_, {}, 0, false, false, {}, {}});
  auto back =
      std::make_shared<MemoryPipe>(MemoryPipe{executor_, pipe_bytes_, {}, 0, false, false, {}, {}});
  return {std::make_unique<MemoryConnection>(back, there, receive_bytes_),
          std::make_unique<MemoryConnection>(there, back, receive_bytes_)};
}

Result<std::unique_ptr<Listener>> MemoryNetwork::listen(Address address) {
  if (listeners_.contains(address)) return fail(make_error(RuntimeError::address_in_use, address));
  return std::make_unique<MemoryListener>(*this, std::move(address));
}

Task<Result<std::unique_ptr<Connection>>> MemoryNetwork::connect(Address address) {
  const auto found = listeners_.find(address);
  if (found == listeners_.end()) {
    co_return fail(make_error(RuntimeError::connection_refused, address));
  }
  auto [ours, theirs] = pair();
  found->second->arrive(std::move(theirs));
  co_return std::move(ours);
}

}  // namespace sarsen::test
