#include <sys/socket.h>
#include <sys/un.h>

#include "dataplane/runtime/scope.h"
#include "dataplane/runtime/uring/socket_address.h"
#include "dataplane/runtime/uring/uring_network.h"
#include "tests/unit/runtime/uring/uring_testing.h"

namespace sarsen {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

struct Pair {
  std::unique_ptr<Connection> client;
  std::unique_ptr<Connection> server;
};

class UringNetworkTest : public testing::Test {
 protected:
  Task<void> accept_into(Listener& listener, std::unique_ptr<Connection>& into) {
    auto accepted = co_await listener.accept();
    EXPECT_TRUE(accepted) << accepted.error().message();
    if (accepted) into = *std::move(accepted);
  }
  Task<Pair> make_pair(Address address) {
    Pair pair;
    auto listener = network_.listen(address);
    EXPECT_TRUE(listener) << listener.error().message();
    Scope scope(*reactor_);
    scope.spawn(accept_into(**listener, pair.server));
    auto connected = co_await network_.connect((*listener)->address());
    EXPECT_TRUE(connected) << connected.error().message();
    co_await scope.join();
    if (connected) pair.client = *std::move(connected);
    co_return pair;
  }
  Task<void> connect_into(Address address, std::optional<Error>& error) {
    const auto connected = co_await network_.connect(address);
    if (!connected) error = connected.error();
  }
  std::optional<Error> connect_error(const Address& address) {
    std::optional<Error> error;
    reactor_->run_task(connect_into(address, error));
    return error;
  }

  TemporaryDirectory directory_;
  std::unique_ptr<Reactor> reactor_ = make_reactor();
  UringNetwork network_{*reactor_, {.connect_timeout = milliseconds(300)}};
  const Address unix_ = "unix:" + directory_.file("s");
};

Task<std::string> receive_text(Connection& connection, std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t done = 0; done < size;) {
    const auto got = co_await connection.receive(
        std::as_writable_bytes(std::span(text.data() + done, size - done)));
    EXPECT_TRUE(got) << got.error().message();
    if (!got || *got == 0) break;
    done += *got;
  }
  co_return text;
}

Task<void> talk(Task<Pair> making, std::string& heard, Address& peer) {
  const Pair pair = co_await std::move(making);
  peer = pair.client->peer();
  const std::span<const std::byte> hello[] = {bytes_of("he"), bytes_of(""), bytes_of("llo")};
  EXPECT_TRUE(co_await pair.client->send(hello));
  heard = co_await receive_text(*pair.server, 5);
  const std::span<const std::byte> answer[] = {bytes_of("world")};
  EXPECT_TRUE(co_await pair.server->send(answer));
  heard += co_await receive_text(*pair.client, 5);
  pair.server->close();
  std::byte one{};
  const auto end = co_await pair.client->receive({&one, 1});
  EXPECT_TRUE(end && *end == 0) << "the peer's end is not an error";
}

// The two transports of every connection in the system.
TEST_F(UringNetworkTest, both_ends_hear_each_other_over_tcp_and_unix_sockets) {
  for (const Address& address : {Address("tcp:127.0.0.1:0"), Address("tcp:[::1]:0"), unix_}) {
    std::string heard;
    Address peer;
    reactor_->run_task(talk(make_pair(address), heard, peer));
    EXPECT_EQ(heard, "helloworld") << address;
    EXPECT_TRUE(peer.starts_with(address.substr(0, address.size() - 1))) << peer;
  }
}

Task<void> send_all(Connection& connection, std::span<const std::span<const std::byte>> pieces) {
  EXPECT_TRUE(co_await connection.send(pieces));
}

Task<void> transfer(Reactor& reactor, Task<Pair> making, std::size_t piece_size, bool& equal) {
  const Pair pair = co_await std::move(making);
  const AlignedMemory sent(4 * kMiB);
  fill(sent.span(), 1);
  std::vector<std::span<const std::byte>> pieces;
  for (std::size_t at = 0; at < sent.span().size(); at += piece_size) {
    pieces.push_back(sent.span().subspan(at, std::min(piece_size, sent.span().size() - at)));
  }
  Scope scope(reactor);
  scope.spawn(send_all(*pair.client, pieces));
  const std::string got = co_await receive_text(*pair.server, sent.span().size());
  co_await scope.join();
  equal = same(bytes_of(got), sent.span());
}

// More than the socket buffers hold, in more pieces than one system call takes.
TEST_F(UringNetworkTest, large_sends_arrive_whole_and_in_order) {
  for (const std::size_t piece : {std::size_t{1000}, std::size_t{4 * kMiB}}) {
    for (const Address& address : {Address("tcp:127.0.0.1:0"), unix_}) {
      bool equal = false;
      reactor_->run_task(transfer(*reactor_, make_pair(address), piece, equal));
      EXPECT_TRUE(equal) << address << " in pieces of " << piece;
    }
  }
}

Task<void> receive_into(Connection& connection, std::optional<Error>& error) {
  std::byte one{};
  const auto got = co_await connection.receive({&one, 1});
  if (!got) error = got.error();
}

Task<void> send_into(Connection& connection, std::optional<Error>& error) {
  const AlignedMemory much(8 * kMiB);
  const std::span<const std::byte> pieces[] = {much.span()};
  const auto sent = co_await connection.send(pieces);
  if (!sent) error = sent.error();
}

Task<void> close_under_calls(Reactor& reactor, Task<Pair> making, std::vector<Error>& errors) {
  const Pair pair = co_await std::move(making);
  std::optional<Error> receive_error;
  std::optional<Error> send_error;
  Scope scope(reactor);
  scope.spawn(receive_into(*pair.client, receive_error));
  scope.spawn(send_into(*pair.client, send_error));
  co_await reactor.sleep(milliseconds(1));  // both are in the kernel, most likely
  pair.client->close();
  pair.client->close();
  co_await scope.join();
  std::optional<Error> later_error;
  co_await receive_into(*pair.client, later_error);
  for (const auto& error : {receive_error, send_error, later_error}) {
    if (error) errors.push_back(*error);
  }
}

// A stop must not wait for a peer that says nothing.
TEST_F(UringNetworkTest, close_ends_pending_and_later_calls) {
  for (const Address& address : {Address("tcp:127.0.0.1:0"), unix_}) {
    std::vector<Error> errors;
    reactor_->run_task(close_under_calls(*reactor_, make_pair(address), errors));
    ASSERT_EQ(errors.size(), 3u);
    for (const auto& error : errors) {
      EXPECT_TRUE(is(error, RuntimeError::connection_reset)) << error.message();
    }
  }
}

Task<void> send_to_a_closed_peer(Task<Pair> making, std::optional<Error>& error) {
  const Pair pair = co_await std::move(making);
  pair.server->close();
  while (!error) co_await send_into(*pair.client, error);
}

// A broken pipe is a value; SIGPIPE would end the process.
TEST_F(UringNetworkTest, sending_to_a_peer_that_is_gone_is_a_reset_and_no_signal) {
  std::optional<Error> error;
  reactor_->run_task(send_to_a_closed_peer(make_pair(unix_), error));
  ASSERT_TRUE(error);
  EXPECT_TRUE(is(*error, RuntimeError::connection_reset)) << error->message();
}

// What a person typed is judged before anything is tried.
TEST_F(UringNetworkTest, bad_addresses_are_refused_with_what_is_expected) {
  for (const char* address :
       {"", "tcp:", "tcp:127.0.0.1", "tcp:127.0.0.1:", "tcp:127.0.0.1:65536", "tcp:host:80",
        "tcp:::1:80", "tcp:127.0.0.1:8x", "unix:", "udp:127.0.0.1:1"}) {
    const auto listener = network_.listen(address);
    ASSERT_FALSE(listener) << address;
    EXPECT_TRUE(is(listener.error(), RuntimeError::address_invalid)) << listener.error().message();
  }
  EXPECT_FALSE(network_.listen("unix:/" + std::string(200, 'x')));
  const auto parsed = parse_address("tcp:[2001:db8::1]:4711");
  ASSERT_TRUE(parsed);
  EXPECT_EQ(format_address(*parsed), "tcp:[2001:db8::1]:4711");
}

// Nobody there is something to retry; a wrong path is told apart.
TEST_F(UringNetworkTest, connecting_to_nobody_is_refused) {
  Address free_port;
  {
    auto listener = network_.listen("tcp:127.0.0.1:0");
    ASSERT_TRUE(listener);
    free_port = (*listener)->address();
  }
  const auto refused = connect_error(free_port);
  ASSERT_TRUE(refused);
  EXPECT_TRUE(is(*refused, RuntimeError::connection_refused)) << refused->message();
  const auto missing = connect_error(unix_);
  ASSERT_TRUE(missing);
  EXPECT_TRUE(is(*missing, RuntimeError::not_found)) << missing->message();
}

// A node that reboots is not there for minutes: peers and clients go on trying.
TEST(RuntimeErrors, what_a_network_or_a_full_table_says_can_be_retried) {
  for (const int value : {ECONNREFUSED, EHOSTUNREACH, ENETUNREACH, EHOSTDOWN, ECONNRESET, EPIPE,
                          ECONNABORTED, ETIMEDOUT, EMFILE, ENFILE, ENOBUFS}) {
    const Error error = error_from_errno(value, "connect");
    EXPECT_TRUE(error.retryable()) << error.message();
  }
}

// A host that swallows packets must not hold a caller for the kernel's two minutes.
TEST_F(UringNetworkTest, a_connect_that_nobody_answers_times_out) {
  const UringNetwork no_backlog(*reactor_, {.listen_backlog = 0});
  auto listener = const_cast<UringNetwork&>(no_backlog).listen(unix_);
  ASSERT_TRUE(listener);
  std::vector<int> waiting;  // fills the backlog, so that the next one waits
  const auto address = parse_address(unix_);
  for (int i = 0; i < 4; ++i) {
    waiting.push_back(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
    if (connect(waiting.back(), address->get(), address->size) != 0) break;
  }
  const auto error = connect_error(unix_);
  for (const int descriptor : waiting) close(descriptor);
  ASSERT_TRUE(error);
  EXPECT_TRUE(is(*error, RuntimeError::timed_out)) << error->message();
}

// The socket of a daemon that was killed must not stop its successor...
TEST_F(UringNetworkTest, a_stale_unix_socket_is_replaced) {
  const auto address = parse_address(unix_);
  const int stale = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(bind(stale, address->get(), address->size), 0);
  close(stale);
  std::string heard;
  Address peer;
  reactor_->run_task(talk(make_pair(unix_), heard, peer));
  EXPECT_EQ(heard, "helloworld");
}

// ... but one that answers, or a file that is no socket, belongs to somebody.
TEST_F(UringNetworkTest, a_unix_path_in_use_is_never_taken_away) {
  auto first = network_.listen(unix_);
  ASSERT_TRUE(first);
  const auto second = network_.listen(unix_);
  ASSERT_FALSE(second);
  EXPECT_TRUE(is(second.error(), RuntimeError::address_in_use)) << second.error().message();
  const std::string file = directory_.file_of("file", 10);
  EXPECT_FALSE(network_.listen("unix:" + file));
  EXPECT_EQ(std::filesystem::file_size(file), 10u);
}

// Files that stay behind confuse people and the next start.
TEST_F(UringNetworkTest, closing_a_listener_removes_its_own_socket_file_and_no_other) {
  const std::string path = directory_.file("s");
  auto listener = network_.listen(unix_);
  ASSERT_TRUE(listener);
  EXPECT_TRUE(std::filesystem::exists(path));
  (*listener)->close();
  EXPECT_FALSE(std::filesystem::exists(path));
  auto again = network_.listen(unix_);
  ASSERT_TRUE(again);
  std::filesystem::remove(path);
  directory_.file_of("s", 1);
  (*again)->close();
  EXPECT_TRUE(std::filesystem::exists(path)) << "another's file";
}

Task<void> accept_error(Listener& listener, std::optional<Error>& error) {
  const auto accepted = co_await listener.accept();
  if (!accepted) error = accepted.error();
}

Task<void> close_under_accept(Reactor& reactor, Listener& listener, std::optional<Error>& error) {
  Scope scope(reactor);
  scope.spawn(accept_error(listener, error));
  co_await reactor.sleep(milliseconds(1));
  listener.close();
  co_await scope.join();
}

// A server's accept loop ends with its listener.
TEST_F(UringNetworkTest, closing_a_listener_ends_its_accept) {
  for (const Address& address : {Address("tcp:127.0.0.1:0"), unix_}) {
    auto listener = network_.listen(address);
    ASSERT_TRUE(listener);
    for (int round = 0; round < 2; ++round) {  // pending, and later
      std::optional<Error> error;
      reactor_->run_task(close_under_accept(*reactor_, **listener, error));
      ASSERT_TRUE(error);
      EXPECT_TRUE(is(*error, RuntimeError::stopped)) << error->message();
    }
  }
}

}  // namespace
}  // namespace sarsen
