#include "dataplane/cli/overlay_disk.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace sarsen {
namespace {

constexpr std::uint64_t kDeviceBytes = 16 * kBlockBytes;

// A device of which a write would be a failure of the test.
class ReadOnlyDevice final : public BlockingDisk {
 public:
  ReadOnlyDevice() { info_.size_bytes = kDeviceBytes; }
  const DiskInfo& info() const override { return info_; }
  Result<void> read(ByteOffset offset, std::span<std::byte> into) override {
    for (std::size_t i = 0; i < into.size(); ++i) {
      into[i] = static_cast<std::byte>((offset.value + i) / kBlockBytes);
    }
    return {};
  }
  Result<void> write(ByteOffset, std::span<const std::byte>) override {
    ADD_FAILURE() << "a write reached the device";
    return {};
  }
  Result<void> flush() override { return {}; }

 private:
  DiskInfo info_;
};

std::vector<std::byte> first_bytes(OverlayImage& image) {
  std::vector<std::byte> all(kDeviceBytes);
  EXPECT_TRUE(image.read(ByteOffset(0), all));
  std::vector<std::byte> firsts;
  for (std::size_t at = 0; at < all.size(); at += kBlockBytes) firsts.push_back(all[at]);
  return firsts;
}

// fsck's promise: what recovery writes is what recovery reads, and the device does not change.
TEST(OverlayImage, shows_writes_and_keeps_them_from_the_device) {
  ReadOnlyDevice device;
  OverlayImage image(device);
  const std::vector<std::byte> data(2 * kBlockBytes, std::byte{0xee});
  ASSERT_TRUE(image.write(ByteOffset(3 * kBlockBytes), data));
  const auto seen = first_bytes(image);
  for (std::size_t block = 0; block < seen.size(); ++block) {
    const bool written = block == 3 || block == 4;
    EXPECT_EQ(seen[block], written ? std::byte{0xee} : static_cast<std::byte>(block)) << block;
  }
}

// The store is opened on the device as it is, not on what an earlier look wrote.
TEST(OverlayImage, clear_gives_the_device_back) {
  ReadOnlyDevice device;
  OverlayImage image(device);
  const std::vector<std::byte> data(kBlockBytes, std::byte{0xee});
  ASSERT_TRUE(image.write(ByteOffset(0), data));
  image.clear();
  EXPECT_EQ(first_bytes(image)[0], std::byte{0});
}

// A check of a large device must end with an error, not with the machine out of memory.
TEST(OverlayImage, is_bounded) {
  ReadOnlyDevice device;
  OverlayImage image(device, 2 * kBlockBytes);
  const std::vector<std::byte> data(kBlockBytes, std::byte{1});
  ASSERT_TRUE(image.write(ByteOffset(0), data));
  ASSERT_TRUE(image.write(ByteOffset(kBlockBytes), data));
  ASSERT_TRUE(image.write(ByteOffset(0), data)) << "overwriting takes no more";
  const auto refused = image.write(ByteOffset(2 * kBlockBytes), data);
  ASSERT_FALSE(refused);
  EXPECT_TRUE(is(refused.error(), RuntimeError::no_space));
  EXPECT_EQ(first_bytes(image)[2], std::byte{2}) << "a refused write leaves no trace";
}

// Offsets come from structures that may be corrupt.
TEST(OverlayImage, refuses_a_write_outside_of_the_device) {
  ReadOnlyDevice device;
  OverlayImage image(device);
  const std::vector<std::byte> data(kBlockBytes);
  EXPECT_FALSE(image.write(ByteOffset(kDeviceBytes), data));
  EXPECT_FALSE(image.write(ByteOffset(1), data));
}

}  // namespace
}  // namespace sarsen
