#include "dataplane/blockd/image_state.h"

#include "dataplane/base/assert.h"
#include "dataplane/base/codec.h"

namespace sarsen::blockd {
namespace {

constexpr std::uint32_t kMagic = 0x4d494b53;  // "SKIM"
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kFixedBytes = 64;

bool is_known(AttachMode mode) {
  return mode == AttachMode::single_writer || mode == AttachMode::multi_writer ||
         mode == AttachMode::read_only;
}

}  // namespace

std::string_view name_of(Frontend frontend) {
  return frontend == Frontend::loop ? "loop" : "nbd";
}

std::vector<std::byte> encode(const ImageState& state) {
  SARSEN_ASSERT(state.name.size() <= kImageNameBytesMax, "an image's name is short");
  std::vector<std::byte> bytes(kFixedBytes + state.name.size());
  ByteWriter writer(bytes);
  writer.u32(kMagic);
  writer.u32(kVersion);
  writer.put(state.image);
  writer.put(state.holder);
  writer.put(state.attach_epoch);
  writer.u64(state.size_bytes);
  writer.u32(state.sector_bytes);
  writer.put(state.mode);
  writer.put(state.frontend);
  writer.prefixed_text<std::uint16_t>(state.name);
  SARSEN_ASSERT(writer.ok(), "an image's state fits its buffer");
  bytes.resize(writer.offset());
  return bytes;
}

std::optional<ImageState> decode_image_state(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const bool known = reader.u32() == kMagic && reader.u32() >= kVersion;
  ImageState state;
  state.image = reader.get<ImageId>();
  state.holder = reader.get<HolderId>();
  state.attach_epoch = reader.get<AttachEpoch>();
  state.size_bytes = reader.u64();
  state.sector_bytes = reader.u32();
  state.mode = reader.get<AttachMode>();
  state.frontend = reader.get<Frontend>();
  state.name = reader.prefixed_text<std::uint16_t>(kImageNameBytesMax);
  const bool frontend_known = state.frontend == Frontend::loop || state.frontend == Frontend::nbd;
  if (!known || !reader.ok() || !is_known(state.mode) || !frontend_known) return std::nullopt;
  return state;
}

}  // namespace sarsen::blockd
