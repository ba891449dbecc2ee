#include "dataplane/blockd/fuse/fuse_server.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/unit/blockd/fuse_fakes.h"

namespace sarsen::fuse {
namespace {

constexpr std::uint64_t kSize = 4 * kMiB;

Task<void> serve_into(Server* server, std::optional<Result<End>>* end) {
  *end = co_await server->serve();
}

class FuseServer : public ::testing::Test {
 protected:
  void start(ServerOptions options = {}) {
    server.emplace(world.env(), kernel, target, std::move(options));
    scope.spawn(serve_into(&*server, &end));
    world.run();
  }
  void TearDown() override {
    target.release();
    if (server) server->stop();
    world.run();
    world.advance(milliseconds(10));
    EXPECT_TRUE(end.has_value());
  }
  // The answer to a request; fails the test when there is none.
  Answer answer(std::uint64_t unique) {
    world.run();
    EXPECT_TRUE(kernel.answered(unique));
    return kernel.answers[unique];
  }
  int error_of(std::uint64_t unique) { return answer(unique).error; }

  ManualEnv world;
  FakeKernel kernel{world.executor};
  FakeTarget target{world.executor, kSize};
  std::optional<Result<End>> end;
  std::optional<Server> server;
  Scope scope{world.executor};
};

fuse_init_in linux_6_18() {
  fuse_init_in in{};
  in.major = 7;
  in.minor = 45;
  in.flags = ~0u;
  in.flags2 = ~0u;
  return in;
}

Bytes pattern(std::size_t size, int seed) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 4096 + seed);
  return bytes;
}

// Without each of these the device is slow, or dies with its server.
TEST_F(FuseServer, negotiates_large_asynchronous_requests_and_resending) {
  start();
  const auto out = answer(kernel.ask(FUSE_INIT, 0, bytes_of(linux_6_18()))).as<fuse_init_out>();
  EXPECT_EQ(out.major, 7u);
  EXPECT_EQ(out.max_write, 1u << 20);
  EXPECT_EQ(out.max_pages, 256u);
  EXPECT_GE(out.max_background, 512u);
  EXPECT_TRUE(out.flags & FUSE_ASYNC_DIO);
  EXPECT_TRUE(out.flags & FUSE_MAX_PAGES);
  EXPECT_TRUE(out.flags & FUSE_INIT_EXT);
  EXPECT_TRUE(out.flags2 & (kHasResend >> 32));
  EXPECT_FALSE(out.flags & FUSE_WRITEBACK_CACHE) << "a page cache below the file system's";
  ASSERT_TRUE(server->negotiated());
  EXPECT_TRUE(server->negotiated()->can_resend());
}

// Flags beyond the 32nd exist only where INIT_EXT does; an old kernel leaves garbage there.
TEST_F(FuseServer, believes_extended_flags_only_when_they_exist) {
  start();
  fuse_init_in in = linux_6_18();
  in.minor = kMinorMin;
  in.flags &= ~static_cast<unsigned>(FUSE_INIT_EXT);
  answer(kernel.ask(FUSE_INIT, 0, bytes_of(in)));
  EXPECT_FALSE(server->negotiated()->can_resend());
}

TEST_F(FuseServer, answers_a_newer_major_with_its_own_and_goes_on) {
  start();
  fuse_init_in in = linux_6_18();
  in.major = 8;
  EXPECT_EQ(answer(kernel.ask(FUSE_INIT, 0, bytes_of(in))).as<fuse_init_out>().major, 7u);
  EXPECT_FALSE(server->negotiated());
  EXPECT_EQ(error_of(kernel.ask(FUSE_INIT, 0, bytes_of(linux_6_18()))), 0);
  EXPECT_TRUE(server->negotiated());
}

TEST_F(FuseServer, refuses_a_kernel_that_is_too_old) {
  start();
  fuse_init_in in{};
  in.major = 7;
  in.minor = 12;
  EXPECT_EQ(error_of(kernel.ask(FUSE_INIT, 0, bytes_of(in))), EPROTO);
  ASSERT_TRUE(end && !*end);
  EXPECT_TRUE(is(end->error(), RuntimeError::kernel_too_old));
}

// The loop driver takes size, unit of discard and the open flags from these.
TEST_F(FuseServer, describes_one_file) {
  start();
  const auto found = answer(kernel.ask(FUSE_LOOKUP, kRootNode, text(std::string("image\0", 6))));
  EXPECT_EQ(found.error, 0);
  EXPECT_EQ(found.as<fuse_entry_out>().nodeid, kFileNode);
  EXPECT_EQ(found.as<fuse_entry_out>().attr.size, kSize);
  EXPECT_TRUE(S_ISREG(found.as<fuse_entry_out>().attr.mode));
  EXPECT_EQ(error_of(kernel.ask(FUSE_LOOKUP, kRootNode, text(std::string("imag\0", 5)))), ENOENT);
  EXPECT_EQ(error_of(kernel.ask(FUSE_LOOKUP, kFileNode, text(std::string("image\0", 6)))), ENOENT);

  const Bytes no_flags(sizeof(fuse_open_in));
  const auto opened = answer(kernel.ask(FUSE_OPEN, kFileNode, no_flags)).as<fuse_open_out>();
  EXPECT_TRUE(opened.open_flags & FOPEN_DIRECT_IO);
  EXPECT_TRUE(opened.open_flags & FOPEN_PARALLEL_DIRECT_WRITES);
  EXPECT_EQ(error_of(kernel.ask(FUSE_OPEN, kRootNode, no_flags)), EISDIR);
  const auto root = answer(kernel.ask(FUSE_GETATTR, kRootNode, Bytes(16))).as<fuse_attr_out>();
  EXPECT_TRUE(S_ISDIR(root.attr.mode));
  EXPECT_EQ(answer(kernel.ask(FUSE_STATFS, kRootNode, {})).as<fuse_statfs_out>().st.bsize, 4096u);
  // ENOSYS is what makes the kernel stop asking (on every write, for the first of these).
  EXPECT_EQ(error_of(kernel.ask(FUSE_GETXATTR, kFileNode, Bytes(16))), ENOSYS);
  EXPECT_EQ(error_of(kernel.ask(FUSE_INTERRUPT, 0, Bytes(8))), ENOSYS);
  const std::uint64_t forget = kernel.ask(FUSE_FORGET, kFileNode, Bytes(8));
  world.run();
  EXPECT_FALSE(kernel.answered(forget)) << "the kernel takes an answer to FORGET as an error";
}

// Sizes on both sides of the copy threshold, which take different ways through the buffers.
TEST_F(FuseServer, writes_and_reads_what_it_is_asked_to) {
  start();
  std::uint64_t offset = 0;
  for (const std::size_t size : {512u, 4096u, 128u * 1024, 128u * 1024 + 512, 1u << 20}) {
    const Bytes data = pattern(size, static_cast<int>(size));
    const auto written = answer(kernel.ask_write(offset, data));
    EXPECT_EQ(written.error, 0);
    EXPECT_EQ(written.as<fuse_write_out>().size, size);
    EXPECT_EQ(answer(kernel.ask_read(offset, static_cast<std::uint32_t>(size))).body, data);
    offset += size;
  }
  EXPECT_EQ(server->counters().in_flight, 0u);
}

TEST_F(FuseServer, keeps_to_the_size_of_the_target) {
  start();
  EXPECT_EQ(answer(kernel.ask_read(kSize - 512, 4096)).body.size(), 512u);
  EXPECT_EQ(answer(kernel.ask_read(kSize, 4096)).body.size(), 0u);
  EXPECT_EQ(answer(kernel.ask_read(~0ull - 100, 4096)).body.size(), 0u);
  EXPECT_EQ(error_of(kernel.ask_write(kSize - 512, Bytes(1024))), EFBIG);
  EXPECT_TRUE(target.calls == std::vector<std::string>{"read"});
}

// The loop driver's discard and its two kinds of write-zeroes.
TEST_F(FuseServer, maps_fallocate_to_trim_and_zeroes) {
  target.data = pattern(kSize, 1);
  start();
  const auto allocate = [&](std::uint32_t mode, std::uint64_t offset, std::uint64_t length) {
    fuse_fallocate_in in{};
    in.mode = mode;
    in.offset = offset;
    in.length = length;
    return error_of(kernel.ask(FUSE_FALLOCATE, kFileNode, bytes_of(in)));
  };
  EXPECT_EQ(allocate(0x02 | 0x01, 4096, 8192), 0);
  EXPECT_EQ(allocate(0x10 | 0x01, 65536, 4096), 0);
  EXPECT_EQ(allocate(0x02 | 0x01, kSize - 4096, 1 << 30), 0);
  EXPECT_EQ(allocate(0x00, 0, 4096), EOPNOTSUPP);
  EXPECT_EQ(target.calls, (std::vector<std::string>{"trim", "zero and keep", "trim"}));
  EXPECT_EQ(target.data[4096 + 8191], std::byte{0});
  EXPECT_EQ(target.data[kSize - 1], std::byte{0});
  EXPECT_EQ(target.data[4096 + 8192], pattern(kSize, 1)[4096 + 8192]);
}

TEST_F(FuseServer, finds_data_and_holes) {
  start();
  const auto seek = [&](std::uint64_t offset, std::uint32_t whence) {
    fuse_lseek_in in{};
    in.offset = offset;
    in.whence = whence;
    return answer(kernel.ask(FUSE_LSEEK, kFileNode, bytes_of(in)));
  };
  EXPECT_EQ(seek(0, SEEK_HOLE).as<fuse_lseek_out>().offset, kSize / 4);
  EXPECT_EQ(seek(kSize / 4, SEEK_DATA).as<fuse_lseek_out>().offset, kSize / 2);
  EXPECT_EQ(seek(kSize / 2, SEEK_HOLE).as<fuse_lseek_out>().offset, kSize);
  EXPECT_EQ(seek(kSize, SEEK_DATA).error, ENXIO);
  EXPECT_EQ(seek(0, SEEK_CUR).error, EINVAL);
}

// One slow request must not make others wait: the loop device has 128 in flight.
TEST_F(FuseServer, serves_many_requests_side_by_side) {
  target.holding = true;
  start();
  std::vector<std::uint64_t> asked;
  for (std::uint64_t i = 0; i < 128; ++i) asked.push_back(kernel.ask_write(i * 4096, Bytes(4096)));
  world.run();
  EXPECT_EQ(target.waiting, 128u);
  target.release();
  world.run();
  for (const std::uint64_t unique : asked) EXPECT_TRUE(kernel.answered(unique));
  EXPECT_EQ(server->counters().in_flight_max, 128u);
}

// Memory and requests are bounded: the rest waits in the kernel, and nothing is lost.
TEST_F(FuseServer, leaves_requests_beyond_its_bound_in_the_kernel) {
  target.holding = true;
  ServerOptions options;
  options.requests_max = 4;
  start(std::move(options));
  for (int i = 0; i < 10; ++i) kernel.ask_read(0, 4096);
  world.run();
  EXPECT_EQ(target.waiting, 4u);
  EXPECT_EQ(kernel.queued(), 6u);
  target.release();
  world.run();
  EXPECT_EQ(kernel.answers.size(), 10u);
}

TEST_F(FuseServer, waits_for_memory_instead_of_failing) {
  std::vector<Buffer> taken;
  start();
  kernel.ask_read(0, 4096);
  world.run();
  while (auto buffer = world.env().buffers.allocate(kBlockBytes))
    taken.push_back(std::move(*buffer));
  const std::uint64_t small = kernel.ask_write(0, pattern(4096, 3));
  const std::uint64_t read = kernel.ask_read(0, 4096);
  world.run();
  EXPECT_FALSE(kernel.answered(read));
  EXPECT_GT(server->counters().memory_waits, 0u);
  taken.clear();
  world.advance(milliseconds(5));
  EXPECT_EQ(error_of(small), 0);
  EXPECT_EQ(answer(read).body, pattern(4096, 3));
}

TEST_F(FuseServer, passes_errors_of_the_target_on) {
  start();
  target.failure = make_error(RuntimeError::no_space);
  EXPECT_EQ(error_of(kernel.ask_write(0, Bytes(4096))), ENOSPC);
  target.failure = make_error(RuntimeError::device_gone);
  EXPECT_EQ(error_of(kernel.ask_read(0, 4096)), EIO);
  EXPECT_EQ(error_of(kernel.ask(FUSE_FSYNC, kFileNode, Bytes(16))), EIO);
  EXPECT_EQ(server->counters().errors, 3u);
}

// An upgrade: what the ending server gives up must be neither an error nor done.
TEST_F(FuseServer, leaves_cancelled_requests_to_the_next_server) {
  start();
  target.failure = make_error(RuntimeError::stopped);
  const std::uint64_t left = kernel.ask_write(0, Bytes(4096));
  world.run();
  EXPECT_FALSE(kernel.answered(left));
  EXPECT_EQ(server->counters().left, 1u);
}

// The first thing that a successor does, before it reads: or the requests would be forgotten.
TEST_F(FuseServer, asks_for_what_was_in_flight_when_it_takes_over) {
  ServerOptions options;
  options.negotiated = Negotiated{38, kHasResend, 1u << 20};
  fuse_read_in in{};
  in.size = 4096;
  const std::uint64_t again = kernel.ask_again(FUSE_READ, kFileNode, bytes_of(in));
  start(std::move(options));
  EXPECT_EQ(kernel.notifications, std::vector<int>{kNotifyResend});
  EXPECT_EQ(error_of(again), 0) << "the answer carries the mark, too";
  EXPECT_EQ(server->counters().resent, 1u);
}

TEST_F(FuseServer, says_so_when_the_kernel_cannot_resend) {
  kernel.resend_error = EINVAL;
  ServerOptions options;
  options.negotiated = Negotiated{};
  start(std::move(options));
  ASSERT_TRUE(end && !*end);
  EXPECT_TRUE(is(end->error(), RuntimeError::kernel_too_old));
}

TEST_F(FuseServer, tells_an_abort_from_an_unmount_after_finishing_its_work) {
  target.holding = true;
  start();
  kernel.ask_read(0, 4096);
  world.run();
  kernel.end_with(-ECONNABORTED);
  world.run();
  EXPECT_FALSE(end) << "a request still uses the target";
  target.release();
  world.run();
  ASSERT_TRUE(end && *end);
  EXPECT_EQ(**end, End::aborted);
}

TEST_F(FuseServer, survives_malformed_requests) {
  start();
  EXPECT_EQ(error_of(kernel.ask(FUSE_READ, kFileNode, Bytes(3))), EINVAL);
  fuse_write_in in{};
  in.size = 4096;
  EXPECT_EQ(error_of(kernel.ask(FUSE_WRITE, kFileNode, bytes_of(in))), EINVAL)
      << "without its data";
  EXPECT_EQ(error_of(kernel.ask(12345, kFileNode, {})), ENOSYS);
  EXPECT_EQ(error_of(kernel.ask_read(0, 4096)), 0);
}

TEST_F(FuseServer, announces_a_new_size) {
  start();
  target.data.resize(2 * kSize);
  server->announce_size();
  EXPECT_EQ(kernel.notifications, std::vector<int>{FUSE_NOTIFY_INVAL_INODE});
  const auto attr = answer(kernel.ask(FUSE_GETATTR, kFileNode, Bytes(16))).as<fuse_attr_out>();
  EXPECT_EQ(attr.attr.size, 2 * kSize);
}

}  // namespace
}  // namespace sarsen::fuse
