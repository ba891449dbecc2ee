#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>

#include "dataplane/runtime/uring/uring_disk.h"
#include "tests/unit/runtime/uring/uring_testing.h"

namespace sarsen {
namespace {

// The block layer has a value for each way a device fails; all of them expel the device.
TEST(RuntimeErrors, what_the_block_layer_says_of_a_bad_device_is_an_io_error) {
  for (const int value : {EIO, ENODATA, EREMOTEIO, ENOLINK, EILSEQ}) {
    EXPECT_TRUE(is(error_from_errno(value, "read"), RuntimeError::io_error)) << value;
  }
  EXPECT_TRUE(is(error_from_errno(ENODEV, "read"), RuntimeError::device_gone));
}

// Two processes on one store destroy it; the second must be told who is in the way.
TEST(DiskFile, a_file_is_opened_by_one_holder_at_a_time) {
  const TemporaryDirectory directory;
  const std::string path = directory.file_of("store", 64 * kKiB);
  auto first = DiskFile::open(path, OpenMode::exclusive);
  ASSERT_TRUE(first) << first.error().message();
  const auto second = DiskFile::open(path, OpenMode::exclusive);
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message().find("another process has this store open"), std::string::npos)
      << second.error().message();
  expect_in_child([&]() -> std::string {
    return DiskFile::open(path, OpenMode::exclusive) ? "a child opened it too" : "";
  });
  EXPECT_TRUE(DiskFile::open(path, OpenMode::inspect)) << "looking is allowed";
  first->reset();
  EXPECT_TRUE(DiskFile::open(path, OpenMode::exclusive)) << "free again";
}

// The claim must not end while a disk made from it is in use.
TEST(DiskFile, the_claim_lasts_as_long_as_a_disk_made_from_it) {
  const TemporaryDirectory directory;
  const std::string path = directory.file_of("store", 64 * kKiB);
  auto file = DiskFile::open(path, OpenMode::exclusive);
  ASSERT_TRUE(file);
  auto disk = open_blocking_disk(*std::move(file));
  ASSERT_TRUE(disk);
  EXPECT_FALSE(DiskFile::open(path, OpenMode::exclusive));
}

// Each mistake of a person gets its own sentence.
TEST(DiskFile, what_cannot_be_a_disk_is_refused_with_the_reason) {
  const TemporaryDirectory directory;
  const auto message = [](const std::string& path) {
    const auto file = DiskFile::open(path, OpenMode::inspect);
    return file ? std::string("opened") : file.error().message();
  };
  EXPECT_NE(message(directory.file("missing")).find("No such file"), std::string::npos);
  EXPECT_NE(message(directory.file("")).find("neither a block device"), std::string::npos);
  EXPECT_NE(message("/dev/null").find("neither a block device"), std::string::npos);
  EXPECT_NE(message(directory.file_of("small", 100)).find("100 bytes long"), std::string::npos);
  EXPECT_NE(message("/proc/self/status").find("O_DIRECT"), std::string::npos);
}

// The tail of a file that is no whole block is not used.
TEST(DiskFile, size_is_rounded_down_to_blocks) {
  const TemporaryDirectory directory;
  const auto file = DiskFile::open(directory.file_of("store", 70'000), OpenMode::exclusive);
  ASSERT_TRUE(file);
  EXPECT_EQ((*file)->info().size_bytes, 17u * kBlockBytes);
  EXPECT_TRUE((*file)->info().volatile_cache);
  EXPECT_FALSE((*file)->block_device());
}

// A loop device on a scratch file: a real block device for the tests that need one.
class LoopDevice {
 public:
  explicit LoopDevice(const std::string& backing) {
    const int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    const int file = open(backing.c_str(), O_RDWR | O_CLOEXEC);
    // Whoever else wants a free one may be faster.
    for (int attempt = 0; control >= 0 && file >= 0 && name_.empty() && attempt < 50; ++attempt) {
      attach(ioctl(control, LOOP_CTL_GET_FREE), file);
    }
    if (control >= 0) close(control);
    if (file >= 0) close(file);
  }
  ~LoopDevice() {
    if (!name_.empty()) ioctl(descriptor_, LOOP_CLR_FD, 0);
    if (descriptor_ >= 0) close(descriptor_);
  }
  LoopDevice(const LoopDevice&) = delete;
  LoopDevice& operator=(const LoopDevice&) = delete;

  bool exists() const { return !name_.empty(); }
  std::string path() const { return "/dev/" + name_; }
  bool set_write_cache(const char* kind) const {
    std::ofstream file("/sys/block/" + name_ + "/queue/write_cache");
    file << kind << std::flush;
    return file.good();
  }
  // Cache flushes that the device was asked for since it exists.
  std::uint64_t flushes() const {
    std::ifstream file("/sys/block/" + name_ + "/stat");
    std::uint64_t value = 0;
    for (int field = 1; field <= 16 && file >> value; ++field) {
    }
    return value;
  }

 private:
  void attach(int number, int file) {
    if (number < 0) return;
    name_ = "loop" + std::to_string(number);
    descriptor_ = open(path().c_str(), O_RDWR | O_CLOEXEC);
    loop_config config{};
    config.fd = static_cast<__u32>(file);
    if (descriptor_ >= 0 && ioctl(descriptor_, LOOP_CONFIGURE, &config) == 0) return;
    if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
    name_.clear();
  }

  std::string name_;
  int descriptor_ = -1;
};

class BlockDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!loop_.exists()) GTEST_SKIP() << "no loop device can be made here (needs root)";
  }
  TemporaryDirectory directory_;
  LoopDevice loop_{directory_.file_of("backing", 4 * kMiB)};
};

// mount, LVM and a second OSD all hold a device exclusively; so do we.
TEST_F(BlockDeviceTest, a_block_device_is_opened_by_one_holder_at_a_time) {
  const auto first = DiskFile::open(loop_.path(), OpenMode::exclusive);
  ASSERT_TRUE(first) << first.error().message();
  EXPECT_TRUE((*first)->block_device());
  EXPECT_EQ((*first)->info().size_bytes, 4 * kMiB);
  const auto second = DiskFile::open(loop_.path(), OpenMode::exclusive);
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message().find("the device is in use"), std::string::npos)
      << second.error().message();
  EXPECT_TRUE(open_blocking_disk(*first)) << "the holder itself opens it as often as it needs";
}

// Whether a plain write is durable decides the cost, and the safety, of every journal append.
TEST_F(BlockDeviceTest, the_volatile_cache_is_what_the_kernel_says) {
  for (const auto& [kind, is_volatile] :
       {std::pair{"write through", false}, {"write back", true}}) {
    if (!loop_.set_write_cache(kind)) GTEST_SKIP() << "sysfs is read-only here";
    const auto file = DiskFile::open(loop_.path(), OpenMode::exclusive);
    ASSERT_TRUE(file) << file.error().message();
    EXPECT_EQ((*file)->info().volatile_cache, is_volatile) << kind;
  }
}

Task<void> use_device(Reactor&, Disk& disk, std::span<std::byte> memory, std::string& complaint) {
  fill(memory, 9);
  if (!co_await disk.write_durable(ByteOffset(0), memory)) complaint += "write ";
  if (!co_await disk.discard(ByteOffset(kMiB), kMiB)) complaint += "discard ";
  if (!co_await disk.flush()) complaint += "flush ";
  if (!co_await disk.read(ByteOffset(0), memory)) complaint += "read ";
}

// The commands of a block device differ from those of a file.
TEST_F(BlockDeviceTest, write_discard_flush_and_read_work_on_a_block_device) {
  const auto reactor = make_reactor();
  const auto file = DiskFile::open(loop_.path(), OpenMode::exclusive);
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_TRUE((*file)->info().can_discard);
  auto disk = open_disk(*file, *reactor);
  ASSERT_TRUE(disk) << disk.error().message();
  const AlignedMemory memory(64 * kKiB);
  const AlignedMemory expected(64 * kKiB);
  fill(expected.span(), 9);
  std::string complaint;
  reactor->run_task(use_device(*reactor, **disk, memory.span(), complaint));
  EXPECT_EQ(complaint, "");
  EXPECT_TRUE(same(memory.span(), expected.span()));
}

Task<void> write_once(Disk& disk, bool durable, std::span<const std::byte> data) {
  const auto outcome = durable ? co_await disk.write_durable(ByteOffset(0), data)
                               : co_await disk.write(ByteOffset(0), data);
  EXPECT_TRUE(outcome);
}

// An acknowledged write that sits in a volatile cache is lost with the power; a flush that nobody
// needs doubles the latency of every write.
TEST_F(BlockDeviceTest, a_durable_write_flushes_the_cache_if_and_only_if_it_is_volatile) {
  const AlignedMemory memory(8 * kKiB);
  for (const bool is_volatile : {true, false}) {
    if (!loop_.set_write_cache(is_volatile ? "write back" : "write through")) GTEST_SKIP();
    const auto reactor = make_reactor();
    const auto file = DiskFile::open(loop_.path(), OpenMode::exclusive);
    ASSERT_TRUE(file) << file.error().message();
    auto disk = open_disk(*file, *reactor);
    ASSERT_TRUE(disk) << disk.error().message();
    const auto begin = loop_.flushes();
    reactor->run_task(write_once(**disk, false, memory.span()));
    EXPECT_EQ(loop_.flushes(), begin);
    reactor->run_task(write_once(**disk, true, memory.span()));
    EXPECT_EQ(loop_.flushes() > begin, is_volatile);
  }
}

}  // namespace
}  // namespace sarsen
