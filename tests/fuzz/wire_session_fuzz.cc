// The two ends of an RPC connection against a peer that says anything. The input is a list of
// frames; magic numbers and checksums are put right, so that what comes after them is reached. The
// first byte chooses the end that is tested (the server, or the client with calls under way) and
// the order in which ready coroutines run.
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "dataplane/base/codec.h"
#include "dataplane/base/crc32c.h"
#include "dataplane/runtime/when_all.h"
#include "dataplane/wire/rpc_client.h"
#include "dataplane/wire/rpc_server.h"
#include "tests/support/memory_env.h"
#include "tests/support/memory_service.h"

namespace sarsen::wire {
namespace {

constexpr std::size_t kFramesMax = 32;
using Frame = std::vector<std::byte>;

FrameStreamLimits small_limits() {
  FrameStreamLimits limits;
  limits.receive_buffer_bytes = 96 * kKiB;
  return limits;
}

// header (64) body (as the header says, cut to what there is) data (the same), and so on.
std::vector<Frame> frames_of(std::span<const std::byte> input) {
  std::vector<Frame> frames;
  while (frames.size() < kFramesMax && input.size() >= kHeaderBytes) {
    std::array<std::byte, kHeaderBytes> header{};
    std::copy_n(input.begin(), kHeaderBytes, header.begin());
    input = input.subspan(kHeaderBytes);
    const auto length_at = [&](std::size_t at, std::size_t most) {
      const auto asked = load_little_endian<std::uint32_t>(&header[at]);
      const auto length = static_cast<std::uint32_t>(std::min<std::size_t>({asked, most}));
      store_little_endian(&header[at], length);
      return length;
    };
    const std::uint32_t body_bytes = length_at(8, std::min<std::size_t>(input.size(), 60'000));
    const std::uint32_t data_bytes = length_at(12, input.size() - body_bytes);
    const auto body = input.first(body_bytes);
    store_little_endian(&header[0], kMagic);
    header[4] = std::byte{kVersion};
    store_little_endian(&header[16], crc32c(body));
    store_little_endian(&header[60], crc32c(std::span(header).first(60)));
    const auto rest = input.first(body_bytes + data_bytes);
    Frame& frame = frames.emplace_back(header.begin(), header.end());
    frame.insert(frame.end(), rest.begin(), rest.end());
    input = input.subspan(rest.size());
  }
  return frames;
}

Task<void> send_all(Connection* connection, std::vector<Frame> frames) {
  for (const Frame& frame : frames) {
    const std::array<std::span<const std::byte>, 1> pieces{frame};
    (void)co_await connection->send(pieces);
  }
}

Task<void> receive_all(Connection* connection) {
  std::vector<std::byte> buffer(4096);
  while (true) {
    const auto count = co_await connection->receive(buffer);
    if (!count || *count == 0) co_return;
  }
}

void talk_to_server(std::span<const std::byte> input, std::uint64_t order) {
  test::MemoryEnv env{{64u << 20, 1u << 20, 1u << 20}};
  if (order != 0) env.executor.shuffle(order);
  test::MemoryService service(env.env);
  RpcServerLimits limits;
  limits.data_bytes_max = 8 * kMiB;
  limits.stream = small_limits();
  ServerIdentity identity;
  identity.operations_max = 4;
  identity.data_bytes_max = 4 * kMiB;
  RpcServer server(env.env, service, identity, limits);
  (void)server.listen("memory");
  const auto connection = env.run(env.network.connect("memory"));
  Scope scope(env.executor);
  scope.spawn(receive_all(connection->get()));
  scope.spawn(send_all(connection->get(), frames_of(input)));
  env.run_until_idle();
  (*connection)->close();
  env.run_until_idle();
  env.run(server.stop());
}

Task<void> accept_one(Listener* listener, std::unique_ptr<Connection>* connection) {
  *connection = *co_await listener->accept();
}

Task<void> make_calls(const Env* env, std::unique_ptr<RpcClient>* client) {
  Hello hello;
  const Deadline deadline = Deadline::after(env->clock, seconds(5));
  auto connected = co_await RpcClient::connect(env, "memory", hello, deadline, small_limits());
  if (!connected) co_return;
  *client = std::move(*connected);
  CallOptions options;
  options.deadline = Deadline::after(env->clock, seconds(5));
  std::vector<std::byte> bytes(20'000), written(4096);
  const ObjectAddress object;
  (void)co_await when_all(
      env->executor, (*client)->read({object, {100, 20'000}, {}, {}}, bytes, options),
      (*client)->call(StatusRequest{object, {0, 4096}, {}, {}, 4}, options),
      (*client)->write({object, {0, 4096}, {}, {}}, std::span(written), options));
}

void talk_to_client(std::span<const std::byte> input, std::uint64_t order) {
  test::MemoryEnv env{{64u << 20, 1u << 20, 1u << 20}};
  if (order != 0) env.executor.shuffle(order);
  auto listener = env.network.listen("memory");
  std::unique_ptr<Connection> connection;
  std::unique_ptr<RpcClient> client;
  Scope scope(env.executor);
  scope.spawn(accept_one(listener->get(), &connection));
  scope.spawn(make_calls(&env.env, &client));
  env.run_until_idle();
  scope.spawn(receive_all(connection.get()));
  // The answer to hello comes first; the others when the calls have been made, and half of the last
  // one when their deadline has passed.
  std::vector<Frame> frames = frames_of(input);
  if (frames.empty()) frames.emplace_back();
  const Frame last = std::move(frames.back());
  frames.pop_back();
  const auto half = last.begin() + std::ssize(last) / 2;
  const auto rest = frames.begin() + std::min<std::ptrdiff_t>(1, std::ssize(frames));
  scope.spawn(send_all(connection.get(), {frames.begin(), rest}));
  env.run_until_idle();
  std::vector<Frame> in_time(rest, frames.end());
  in_time.emplace_back(last.begin(), half);
  scope.spawn(send_all(connection.get(), std::move(in_time)));
  env.advance(seconds(5));
  scope.spawn(send_all(connection.get(), {Frame(half, last.end())}));
  env.run_until_idle();
  connection->close();
  env.run_until_idle();
  if (client) env.run(client->stop());
}

}  // namespace
}  // namespace sarsen::wire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  if (input.empty()) return 0;
  const auto choice = std::to_integer<std::uint64_t>(input[0]);
  const auto talk = choice % 2 == 0 ? sarsen::wire::talk_to_server : sarsen::wire::talk_to_client;
  talk(input.subspan(1), choice / 2);
  return 0;
}
