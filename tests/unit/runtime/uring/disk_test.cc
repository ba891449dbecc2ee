#include <sys/stat.h>

#include "dataplane/runtime/scope.h"
#include "dataplane/runtime/uring/uring_disk.h"
#include "tests/unit/runtime/uring/uring_testing.h"

namespace sarsen {
namespace {

class UringDiskTest : public testing::Test {
 protected:
  void SetUp() override {
    auto made = BufferArena::create({.bytes = 4 * kMiB}, *reactor_);
    ASSERT_TRUE(made) << made.error().message();
    arena_ = *std::move(made);
    auto file = DiskFile::open(path_, OpenMode::exclusive);
    ASSERT_TRUE(file) << file.error().message();
    file_ = *std::move(file);
  }

  std::unique_ptr<UringDisk> disk_with(UringDiskLimits limits) {
    return std::make_unique<UringDisk>(file_, *file_->reopen(), *reactor_, limits);
  }
  // One operation from start to end.
  Result<void> run(DiskOperation operation) {
    std::optional<Result<void>> outcome;
    reactor_->run_task(await(operation, outcome));
    return *outcome;
  }
  static Task<void> await(DiskOperation& operation, std::optional<Result<void>>& outcome) {
    outcome = co_await operation;
  }

  static constexpr std::uint64_t kDiskBytes = 2 * kMiB;
  TemporaryDirectory directory_;
  std::string path_ = directory_.file_of("disk", kDiskBytes);
  std::unique_ptr<Reactor> reactor_ = make_reactor();
  std::unique_ptr<BufferArena> arena_;
  std::shared_ptr<DiskFile> file_;
};

// Data in registered buffers takes another path through the kernel than other memory.
TEST_F(UringDiskTest, reads_what_was_written_from_registered_and_from_other_memory) {
  const auto disk = disk_with({});
  const auto buffer = arena_->allocate(8 * kKiB);
  const AlignedMemory other(8 * kKiB);
  fill(buffer->span(), 1);
  ASSERT_TRUE(run(disk->write_durable(ByteOffset(4096), buffer->span())));
  ASSERT_TRUE(run(disk->read(ByteOffset(4096), other.span())));
  EXPECT_TRUE(same(buffer->span(), other.span()));
  fill(other.span(), 2);
  ASSERT_TRUE(run(disk->write(ByteOffset(64 * kKiB), other.span())));
  ASSERT_TRUE(run(disk->flush()));
  ASSERT_TRUE(run(disk->read(ByteOffset(64 * kKiB), buffer->span())));
  EXPECT_TRUE(same(buffer->span(), other.span()));
}

// A short transfer that was taken for a whole one loses the tail of an acknowledged write.
TEST_F(UringDiskTest, completes_transfers_that_come_in_pieces) {
  const auto disk = disk_with({.transfer_bytes_max = 12 * kKiB});
  const AlignedMemory written(256 * kKiB);
  const AlignedMemory read(256 * kKiB);
  fill(written.span(), 3);
  const auto before = reactor_->counters().submissions;
  ASSERT_TRUE(run(disk->write(ByteOffset(0), written.span())));
  ASSERT_TRUE(run(disk->read(ByteOffset(0), read.span())));
  EXPECT_GE(reactor_->counters().submissions - before, 2 * 22u);
  EXPECT_TRUE(same(written.span(), read.span()));
}

Task<void> write_block(Disk& disk, std::uint64_t block, std::span<const std::byte> data) {
  const auto outcome = co_await disk.write(ByteOffset(block * kBlockBytes), data);
  EXPECT_TRUE(outcome);
}

Task<void> write_every_block(Reactor& reactor, Disk& disk, std::span<const std::byte> data) {
  Scope scope(reactor);
  for (std::uint64_t block = 0; block < data.size() / kBlockBytes; ++block) {
    scope.spawn(write_block(disk, block, data.subspan(block * kBlockBytes, kBlockBytes)));
  }
  co_await scope.join();
}

// Bursts above the bound wait for their turn; none is lost or refused.
TEST_F(UringDiskTest, more_operations_than_may_be_in_flight_wait_and_all_complete) {
  const auto disk = disk_with({.in_flight_max = 3});
  const AlignedMemory written(kMiB);
  const AlignedMemory read(kMiB);
  fill(written.span(), 4);
  reactor_->run_task(write_every_block(*reactor_, *disk, written.span()));
  ASSERT_TRUE(run(disk->read(ByteOffset(0), read.span())));
  EXPECT_TRUE(same(written.span(), read.span()));
}

// Offsets may come from a corrupt record: a value, never an abort, and never a write elsewhere.
TEST_F(UringDiskTest, a_range_that_is_not_of_the_disk_is_refused) {
  const auto disk = disk_with({});
  const AlignedMemory memory(8 * kKiB);
  const auto refused = [&](std::uint64_t offset, std::span<std::byte> span) {
    const auto outcome = run(disk->read(ByteOffset(offset), span));
    return !outcome && is(outcome.error(), RuntimeError::bad_argument);
  };
  EXPECT_TRUE(refused(kDiskBytes - kBlockBytes, memory.span()));
  EXPECT_TRUE(refused(~std::uint64_t{0} - kBlockBytes + 1, memory.span()));
  EXPECT_TRUE(refused(512, memory.span()));
  EXPECT_TRUE(refused(0, memory.span().subspan(512, kBlockBytes)));
  EXPECT_TRUE(refused(0, memory.span().first(100)));
  EXPECT_TRUE(run(disk->read(ByteOffset(0), {})));
}

// A file that was cut short under us must not give a read of stale memory, nor a loop for ever.
TEST_F(UringDiskTest, a_read_beyond_the_end_of_a_shortened_file_is_an_io_error) {
  const auto disk = disk_with({});
  std::filesystem::resize_file(path_, 6 * kKiB);
  const AlignedMemory memory(8 * kKiB);
  const auto outcome = run(disk->read(ByteOffset(0), memory.span()));
  ASSERT_FALSE(outcome);
  EXPECT_TRUE(is(outcome.error(), RuntimeError::io_error)) << outcome.error().message();
  EXPECT_NE(outcome.error().message().find(path_), std::string::npos);
}

// Trimmed space goes back to the file system below.
TEST_F(UringDiskTest, a_discard_gives_the_space_back) {
  const auto disk = disk_with({});
  const AlignedMemory memory(kMiB);
  fill(memory.span(), 5);
  ASSERT_TRUE(run(disk->write(ByteOffset(0), memory.span())));
  ASSERT_TRUE(run(disk->flush()));
  struct stat before{};
  ASSERT_EQ(stat(path_.c_str(), &before), 0);
  ASSERT_TRUE(run(disk->discard(ByteOffset(0), kMiB)));
  struct stat after{};
  ASSERT_EQ(stat(path_.c_str(), &after), 0);
  EXPECT_LE(after.st_blocks + 1024, before.st_blocks);
  EXPECT_EQ(after.st_size, before.st_size);
}

// What a person opened to look at is never changed.
TEST_F(UringDiskTest, a_disk_opened_to_inspect_refuses_to_write) {
  auto file = DiskFile::open(path_, OpenMode::inspect);
  ASSERT_TRUE(file) << file.error().message();
  auto disk = open_disk(*file, *reactor_);
  ASSERT_TRUE(disk) << disk.error().message();
  const AlignedMemory memory(kBlockBytes);
  EXPECT_TRUE(run((*disk)->read(ByteOffset(0), memory.span())));
  const auto outcome = run((*disk)->write(ByteOffset(0), memory.span()));
  ASSERT_FALSE(outcome);
  EXPECT_TRUE(is(outcome.error(), RuntimeError::read_only)) << outcome.error().message();
}

Task<void> write_repeatedly(Disk& disk, std::span<const std::byte> data, int count) {
  for (int i = 0; i < count; ++i) {
    const auto outcome = co_await disk.write_durable(ByteOffset(0), data);
    EXPECT_TRUE(outcome);
  }
}

// The latency path: a durable write at queue depth 1 is one entry into the kernel.
TEST_F(UringDiskTest, a_write_at_depth_one_costs_one_system_call) {
  const auto disk = disk_with({});
  const auto buffer = arena_->allocate(8 * kKiB);
  fill(buffer->span(), 6);
  const auto before = reactor_->counters();
  reactor_->run_task(write_repeatedly(*disk, buffer->span(), 100));
  const auto& after = reactor_->counters();
  EXPECT_LE(after.system_calls - before.system_calls, 105u);
}

// RocksDB's threads see what the shard wrote, and the shard what they wrote.
TEST_F(UringDiskTest, blocking_and_ring_i_o_meet_on_the_same_blocks) {
  const auto disk = disk_with({});
  auto blocking = open_blocking_disk(file_);
  ASSERT_TRUE(blocking) << blocking.error().message();
  EXPECT_EQ((*blocking)->info().size_bytes, kDiskBytes);
  const AlignedMemory memory(3 * kMiB / 2 + kBlockBytes);
  const AlignedMemory read(kMiB + kBlockBytes);
  const auto aligned = memory.span().first(kMiB + kBlockBytes);
  const auto unaligned = memory.span().subspan(100, kMiB + kBlockBytes);
  for (const auto& span : {aligned, unaligned}) {
    fill(span, 7);
    ASSERT_TRUE((*blocking)->write(ByteOffset(kBlockBytes), span));
    ASSERT_TRUE((*blocking)->flush());
    ASSERT_TRUE(run(disk->read(ByteOffset(kBlockBytes), read.span())));
    EXPECT_TRUE(same(span, read.span()));
    std::memset(span.data(), 0, span.size());
    ASSERT_TRUE((*blocking)->read(ByteOffset(kBlockBytes), span));
    EXPECT_TRUE(same(span, read.span()));
  }
  EXPECT_FALSE((*blocking)->read(ByteOffset(kDiskBytes), aligned));
  EXPECT_FALSE((*blocking)->write(ByteOffset(1), aligned));
}

}  // namespace
}  // namespace sarsen
