#include "dataplane/cli/one_shard.h"

#include <utility>

namespace sarsen {

Result<void> run_on_one_shard(std::function<Task<void>(ShardContext)> work) {
  ShardRunnerOptions options;
  options.buffers.registered = false;
  // Nobody else waits for this shard; the overlay's reads block it on purpose.
  options.reactor.on_stall = [](Duration) {};
  auto runner = ShardRunner::start(options, std::move(work));
  if (!runner) return fail(runner.error());
  (*runner)->join();
  return {};
}

}  // namespace sarsen
