#include "dataplane/blockd/fuse/device_state.h"

#include "dataplane/base/assert.h"
#include "dataplane/base/codec.h"

namespace sarsen::fuse {
namespace {

constexpr std::uint32_t kMagic = 0x44464b53;  // "SKFD"
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kFileNameBytesMax = 255;
constexpr std::size_t kFixedBytes = 256;

}  // namespace

std::vector<std::byte> encode(const DeviceState& state) {
  SARSEN_ASSERT(state.file_name.size() <= kFileNameBytesMax, "a file name is short");
  SARSEN_ASSERT(state.user.size() <= kUserStateBytesMax, "the user's state is bounded");
  std::vector<std::byte> bytes(kFixedBytes + state.file_name.size() + state.user.size());
  ByteWriter writer(bytes);
  writer.u32(kMagic);
  writer.u32(kVersion);
  writer.u32(state.negotiated.minor);
  writer.u32(state.negotiated.transfer_bytes_max);
  writer.u64(state.negotiated.flags);
  writer.u32(state.sector_bytes);
  writer.u32(state.loop_number);
  writer.u64(state.backing.device);
  writer.u64(state.backing.inode);
  writer.prefixed_text<std::uint16_t>(state.file_name);
  writer.prefixed_bytes<std::uint16_t>(state.user);
  SARSEN_ASSERT(writer.ok(), "a device's state fits its buffer");
  bytes.resize(writer.offset());
  return bytes;
}

std::optional<DeviceState> decode_device_state(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const bool known = reader.u32() == kMagic && reader.u32() >= kVersion;
  DeviceState state;
  state.negotiated.minor = reader.u32();
  state.negotiated.transfer_bytes_max = reader.u32();
  state.negotiated.flags = reader.u64();
  state.sector_bytes = reader.u32();
  state.loop_number = reader.u32();
  state.backing.device = reader.u64();
  state.backing.inode = reader.u64();
  state.file_name = reader.prefixed_text<std::uint16_t>(kFileNameBytesMax);
  const auto user = reader.prefixed_bytes<std::uint16_t>(kUserStateBytesMax);
  state.user.assign(user.begin(), user.end());
  if (!known || !reader.ok()) return std::nullopt;
  return state;
}

}  // namespace sarsen::fuse
