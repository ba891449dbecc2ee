#include "dataplane/blockd/fuse/device_state.h"

#include <gtest/gtest.h>

namespace sarsen::fuse {
namespace {

DeviceState example() {
  DeviceState state;
  state.negotiated = {38, kHasResend, 1u << 20};
  state.file_name = "rbd@a";
  state.sector_bytes = 512;
  state.loop_number = 7;
  state.backing = {0x2a, 2};
  state.user = {std::byte{1}, std::byte{2}};
  return state;
}

// A device may stay mapped across any number of upgrades: these bytes are read for ever.
TEST(DeviceState, has_the_same_bytes_in_every_version) {
  const unsigned char expected[] = {
      'S',  'K', 'F', 'D', 1,    0,   0,    0,                          // magic, version
      38,   0,   0,   0,   0,    0,   0x10, 0,                          // minor, largest transfer
      0,    0,   0,   0,   0x80, 0,   0,    0,                          // flags of the kernel
      0,    2,   0,   0,   7,    0,   0,    0,                          // sector, loop number
      0x2a, 0,   0,   0,   0,    0,   0,    0, 2, 0, 0, 0, 0, 0, 0, 0,  // device, inode
      5,    0,   'r', 'b', 'd',  '@', 'a',  2, 0, 1, 2};
  const auto bytes = encode(example());
  ASSERT_EQ(bytes.size(), sizeof(expected));
  EXPECT_EQ(std::memcmp(bytes.data(), expected, sizeof(expected)), 0);
}

TEST(DeviceState, comes_back_as_it_was_and_with_fields_of_a_later_version) {
  auto bytes = encode(example());
  for (int i = 0; i < 2; ++i) {
    const auto state = decode_device_state(bytes);
    ASSERT_TRUE(state);
    EXPECT_EQ(state->file_name, "rbd@a");
    EXPECT_EQ(state->loop_number, 7u);
    EXPECT_EQ(state->backing, example().backing);
    EXPECT_EQ(state->user, example().user);
    EXPECT_TRUE(state->negotiated.can_resend());
    bytes[4] = std::byte{2};
    bytes.resize(bytes.size() + 9);
  }
}

TEST(DeviceState, is_refused_when_cut_or_foreign) {
  auto bytes = encode(example());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_device_state(std::span(bytes).first(size))) << size;
  }
  bytes[0] = std::byte{0};
  EXPECT_FALSE(decode_device_state(bytes));
}

}  // namespace
}  // namespace sarsen::fuse
