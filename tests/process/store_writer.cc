// store_writer PATH BLOCKS journal|home: writes BLOCKS blocks to an existing store, spread over
// objects of pool 1, family 7, and ends at once as in a crash (`journal`: the data is in the
// journal only) or after a checkpoint (`home`). What `sarsen device fsck` is tested with; it is no
// verb of sarsen, because nobody should be able to write into a store by hand.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <unistd.h>

#include "dataplane/base/crc32c.h"
#include "dataplane/cli/one_shard.h"
#include "dataplane/runtime/uring/disk_file.h"
#include "dataplane/store/store.h"

namespace sarsen {
namespace {

constexpr std::uint32_t kBlocksInObject = 40;

struct Job {
  std::shared_ptr<DiskFile> file;
  std::uint64_t blocks = 0;
  bool home = false;
};

void check(const Result<void>& outcome) {
  if (outcome) return;
  std::fprintf(stderr, "store_writer: %s\n", outcome.error().message().c_str());
  std::_Exit(2);
}

Task<void> write_blocks(ShardContext context, Job* job) {
  auto disk = open_disk(job->file, context.reactor);
  auto blocking = open_blocking_disk(job->file);
  if (!disk || !blocking) std::_Exit(2);
  StoreLimits limits;
  limits.idle_destage_after = seconds(3600);
  auto store = co_await Store::open(context.env, **disk, **blocking, limits);
  if (!store) check(fail(store.error()));
  auto buffer = context.env.buffers.allocate(kBlockBytes);
  if (!buffer) check(fail(buffer.error()));
  for (std::uint64_t i = 0; i < job->blocks; ++i) {
    const std::string text = "block " + std::to_string(i);
    std::memset(buffer->data(), static_cast<int>('a' + i % 26), kBlockBytes);
    std::memcpy(buffer->data(), text.data(), text.size());
    const std::vector<std::uint32_t> checksums{crc32c(buffer->span(0, kBlockBytes))};
    const ObjectKey object{.pool = PoolId(1), .family = 7, .object_number = i / kBlocksInObject};
    check(co_await (*store)->write({.object = object,
                                    .first_block = static_cast<std::uint32_t>(i % kBlocksInObject),
                                    .data = buffer->span(0, kBlockBytes),
                                    .checksums = checksums,
                                    .stamp = {}}));
  }
  if (!job->home) std::_Exit(0);
  check(co_await (*store)->checkpoint());
  co_await (*store)->stop();
}

}  // namespace
}  // namespace sarsen

int main(int argument_count, char** arguments) {
  using namespace sarsen;
  if (argument_count != 4) {
    std::fprintf(stderr, "usage: store_writer PATH BLOCKS journal|home\n");
    return 2;
  }
  auto file = DiskFile::open(arguments[1], OpenMode::exclusive);
  if (!file) check(fail(file.error()));
  Job job{.file = *std::move(file),
          .blocks = std::strtoull(arguments[2], nullptr, 10),
          .home = std::strcmp(arguments[3], "home") == 0};
  check(run_on_one_shard([&job](ShardContext context) { return write_blocks(context, &job); }));
  return 0;
}
