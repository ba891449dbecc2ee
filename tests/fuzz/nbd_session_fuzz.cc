// The NBD server against a client that says anything: the input is what the client sends, from its
// handshake flags on. The first byte says in what pieces the server receives it, and in what order
// ready coroutines run.
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "dataplane/blockd/nbd/nbd_server.h"
#include "dataplane/runtime/error.h"
#include "tests/support/memory_env.h"
#include "tests/support/memory_target.h"

namespace sarsen::nbd {
namespace {

class TwoExports final : public Exports {
 public:
  explicit TwoExports(Executor& executor)
      : disk_(std::make_shared<test::MemoryTarget>(executor, 256 * kKiB)),
        read_only_(std::make_shared<test::MemoryTarget>(executor, 256 * kKiB, true)) {}
  std::vector<ExportSummary> list() override { return {{"disk", "a disk"}, {"fixed", ""}}; }
  Task<Result<Export>> open(std::string name) override {
    if (name.empty() || name == "disk") co_return Export{{"disk", "a disk"}, disk_, 1};
    if (name == "fixed") co_return Export{{"fixed", ""}, read_only_, 512};
    co_return fail(make_error(RuntimeError::not_found, name));
  }

 private:
  std::shared_ptr<BlockTarget> disk_, read_only_;
};

Task<void> send_all(Connection* connection, std::span<const std::byte> bytes) {
  const std::array<std::span<const std::byte>, 1> pieces{bytes};
  (void)co_await connection->send(pieces);
}

Task<void> receive_all(Connection* connection) {
  std::vector<std::byte> buffer(4096);
  while (true) {
    const auto count = co_await connection->receive(buffer);
    if (!count || *count == 0) co_return;
  }
}

void talk(std::span<const std::byte> input) {
  constexpr std::size_t kPieces[] = {1, 7, 64, 4096, 1u << 20};
  const auto choice = std::to_integer<std::size_t>(input[0]);
  test::MemoryEnv env{{128u << 20, 1u << 20, kPieces[choice % std::size(kPieces)]}};
  if (choice >= 16) env.executor.shuffle(choice);
  TwoExports exports(env.executor);
  ServerLimits limits;
  limits.bytes_in_flight_max = limits.session.bytes_in_flight_max = kBudgetBytesMin;
  limits.session.requests_in_flight_max = 4;
  limits.session.options_max = 64;
  limits.session.receive_buffer_bytes = 16 * kKiB;
  Server server(env.env, exports, limits);
  (void)server.listen("memory");
  const auto connection = env.run(env.network.connect("memory"));
  Scope scope(env.executor);
  scope.spawn(receive_all(connection->get()));
  scope.spawn(send_all(connection->get(), input.subspan(1)));
  env.run_until_idle();
  (*connection)->close();
  env.run_until_idle();
  env.run(server.stop());
  SARSEN_ASSERT(env.buffers.bytes_used() == 0, "I-NBD-1");
}

}  // namespace
}  // namespace sarsen::nbd

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  if (!input.empty()) sarsen::nbd::talk(input);
  return 0;
}
