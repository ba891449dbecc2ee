#include "tests/model/payload.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "dataplane/base/assert.h"
#include "dataplane/base/crc32c.h"

namespace sarsen::model {
namespace {

constexpr std::uint32_t kMagic = 0x53724264;
constexpr std::size_t kHeaderBytes = 32;
constexpr std::size_t kWords = (kBlockBytes - kHeaderBytes) / sizeof(std::uint64_t);
using Words = std::array<std::uint64_t, kWords>;

struct Header {
  std::uint64_t image;
  std::uint64_t block;
  std::uint64_t write;
  std::uint32_t checksum;
  std::uint32_t magic;
};
static_assert(sizeof(Header) == kHeaderBytes);

Header header_of(const PayloadName& name) {
  Header header{name.image, name.block.value, name.write.value, 0, kMagic};
  header.checksum = crc32c(std::as_bytes(std::span(&header, 1)).first(24));
  return header;
}

// No word depends on the one before it, so that compilers fill and compare many at once.
Words words_of(const PayloadName& name) {
  const std::uint64_t seed = (name.image * 0x9e3779b97f4a7c15u) ^
                             (name.block.value * 0xbf58476d1ce4e5b9u) ^
                             (name.write.value * 0x94d049bb133111ebu);
  Words words;
  for (std::size_t i = 0; i < kWords; ++i) {
    const std::uint64_t word = seed + i * 0xd1342543de82ef95u;
    words[i] = word ^ (word >> 31);
  }
  return words;
}

std::optional<PayloadName> name_in_header(ConstBlockBytes block) {
  Header header;
  std::memcpy(&header, block.data(), sizeof(header));
  const PayloadName name{header.image, BlockIndex(header.block), WriteId(header.write)};
  const Header expected = header_of(name);
  if (std::memcmp(&header, &expected, sizeof(header)) != 0) return std::nullopt;
  return name;
}

bool all_zeros(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

void fill_block(BlockBytes into, const PayloadName& name) {
  SARSEN_ASSERT(name.write.value != 0, "write id 0 stands for zeros");
  const Header header = header_of(name);
  const Words words = words_of(name);
  std::memcpy(into.data(), &header, sizeof(header));
  std::memcpy(into.data() + kHeaderBytes, words.data(), sizeof(words));
}

void fill_blocks(std::span<std::byte> into, std::uint64_t image, BlockIndex first, WriteId write) {
  SARSEN_ASSERT(into.size() % kBlockBytes == 0, "payloads are whole blocks");
  for (std::uint64_t i = 0; i < into.size() / kBlockBytes; ++i) {
    fill_block(into.subspan(i * kBlockBytes).first<kBlockBytes>(),
               {image, BlockIndex(first.value + i), write});
  }
}

std::optional<PayloadName> read_block(ConstBlockBytes block) {
  if (block[28] == std::byte{0} && all_zeros(block)) return PayloadName{};
  const std::optional<PayloadName> name = name_in_header(block);
  if (!name) return std::nullopt;
  const Words words = words_of(*name);
  if (std::memcmp(block.data() + kHeaderBytes, words.data(), sizeof(words)) != 0) {
    return std::nullopt;
  }
  return name;
}

std::string describe_block(ConstBlockBytes block) {
  if (all_zeros(block)) return "zeros";
  const std::optional<PayloadName> name = name_in_header(block);
  if (!name) return "bytes that no write made";
  std::string text = "write " + std::to_string(name->write.value) + " to block " +
                     std::to_string(name->block.value) + " of image " + std::to_string(name->image);
  const Words words = words_of(*name);
  std::array<std::byte, sizeof(words)> expected;
  std::memcpy(expected.data(), words.data(), sizeof(words));
  const auto [bad, unused] =
      std::mismatch(block.begin() + kHeaderBytes, block.end(), expected.begin());
  if (bad == block.end()) return text;
  return text + " up to byte " + std::to_string(bad - block.begin()) + ", then other bytes";
}

}  // namespace sarsen::model
