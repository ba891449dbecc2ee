#include "dataplane/blockd/fuse/keeper_link.h"

#include <algorithm>
#include <chrono>

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace sarsen::fuse {
namespace {

using keeper::Client;
using keeper::Descriptor;
using keeper::KeeperError;

// Between attempts to reach a keeper; a new one starts within a second or so.
constexpr int kRetryMsMin = 10;
constexpr int kRetryMsMax = 500;

bool is_disconnected(const Error& error) {
  return &error.category() == &keeper::keeper_errors() &&
         error.code() == static_cast<int>(KeeperError::disconnected);
}

std::vector<int> numbers(const std::vector<Descriptor>& descriptors) {
  std::vector<int> numbers;
  for (const Descriptor& descriptor : descriptors) numbers.push_back(descriptor.get());
  return numbers;
}

}  // namespace

KeeperLink::KeeperLink(std::string socket_path)
    : socket_path_(std::move(socket_path)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Result<std::unique_ptr<KeeperLink>> KeeperLink::start(std::string socket_path) {
  std::unique_ptr<KeeperLink> link(new KeeperLink(std::move(socket_path)));
  link->watcher_ = std::thread([raw = link.get()] { raw->watch(); });
  SARSEN_TRY(link->with_keeper([](Client& client) { return client.hello(); }));
  return link;
}

KeeperLink::~KeeperLink() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_watcher();
  watcher_.join();
}

void KeeperLink::wake_watcher() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof(one));
}

// Waits, without the lock, for the keeper to hang up; then for the next one to listen.
void KeeperLink::watch() {
  int retry_ms = kRetryMsMin;
  for (;;) {
    int connection = -1;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      if (!client_ && refill()) {
        retry_ms = kRetryMsMin;
        connected_.notify_all();
      }
      if (client_) connection = client_->descriptor();
    }
    pollfd polled[2] = {{wake_.get(), POLLIN, 0}, {connection, POLLRDHUP, 0}};
    const int timeout = connection >= 0 ? -1 : retry_ms;
    if (connection < 0) retry_ms = std::min(2 * retry_ms, kRetryMsMax);
    if (::poll(polled, 2, timeout) <= 0) continue;
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t drained = ::read(wake_.get(), &count, sizeof(count));
    if (polled[1].revents == 0) continue;
    const std::lock_guard lock(mutex_);
    if (client_ && client_->descriptor() == connection) client_.reset();
  }
}

Result<void> KeeperLink::refill() {
  auto client = Client::connect(socket_path_);
  if (!client) return sarsen::fail(client.error());
  SARSEN_TRY(client->hello());
  for (const auto& [name, record] : records_) {
    SARSEN_TRY(
        client->put(name, record.kind, record.value, record.state, numbers(record.descriptors)));
  }
  client_.emplace(std::move(*client));
  ++refills_;
  return {};
}

template <typename Call>
auto KeeperLink::with_keeper(Call call) -> decltype(call(std::declval<Client&>())) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kReconnectMs);
  Lock lock(mutex_);
  for (;;) {
    if (!connected_.wait_until(lock, deadline, [&] { return client_.has_value(); })) {
      return sarsen::fail(Error(keeper::keeper_errors(),
                                static_cast<int>(KeeperError::disconnected), socket_path_));
    }
    auto outcome = call(*client_);
    if (outcome || !is_disconnected(outcome.error())) return outcome;
    client_.reset();
    wake_watcher();
  }
}

Result<std::vector<keeper::Held>> KeeperLink::recover() {
  auto all = with_keeper([](Client& client) -> Result<std::vector<keeper::Held>> {
    auto listed = client.list();
    if (!listed) return sarsen::fail(listed.error());
    std::vector<keeper::Held> complete;
    for (const keeper::Held& each : *listed) {
      auto held = client.get(each.name);
      if (!held) return sarsen::fail(held.error());
      complete.push_back(std::move(*held));
    }
    return complete;
  });
  if (!all) return all;
  const std::lock_guard lock(mutex_);
  for (const keeper::Held& held : *all) {
    // A failed device has no descriptors; putting it again would make it look whole.
    if (held.failed) continue;
    Record record{held.kind, held.value, held.state, {}};
    for (const Descriptor& each : held.descriptors) {
      record.descriptors.emplace_back(::fcntl(each.get(), F_DUPFD_CLOEXEC, 0));
    }
    records_.insert_or_assign(held.name, std::move(record));
  }
  return all;
}

Result<void> KeeperLink::put(const std::string& name, std::string_view kind, std::uint64_t value,
                             std::span<const std::byte> state, std::span<const int> descriptors) {
  Record record{std::string(kind), value, {state.begin(), state.end()}, {}};
  for (const int each : descriptors) {
    record.descriptors.emplace_back(::fcntl(each, F_DUPFD_CLOEXEC, 0));
  }
  {
    const std::lock_guard lock(mutex_);
    records_.insert_or_assign(name, std::move(record));
  }
  return with_keeper(
      [&](Client& client) { return client.put(name, kind, value, state, descriptors); });
}

Result<void> KeeperLink::drop(const std::string& name) {
  {
    const std::lock_guard lock(mutex_);
    records_.erase(name);
  }
  const auto outcome = with_keeper([&](Client& client) { return client.drop(name); });
  if (!outcome && outcome.error().code() == static_cast<int>(KeeperError::not_found)) return {};
  return outcome;
}

Result<std::uint64_t> KeeperLink::session() {
  const auto next = with_keeper([&](Client& client) { return client.session(session_); });
  if (!next) return next;
  const std::lock_guard lock(mutex_);
  session_ = std::max(session_, *next);
  return next;
}

Result<void> KeeperLink::fail(const std::string& name) {
  {
    const std::lock_guard lock(mutex_);
    records_.erase(name);
  }
  return with_keeper([&](Client& client) { return client.fail(name); });
}

std::uint64_t KeeperLink::refills() const {
  const std::lock_guard lock(mutex_);
  return refills_;
}

}  // namespace sarsen::fuse
