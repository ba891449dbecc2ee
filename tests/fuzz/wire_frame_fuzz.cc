// Headers and bodies of the wire protocol: whatever decodes encodes to the same bytes, and nothing
// else happens. The first byte says what the rest is: a header, a header whose checksum is put
// right, or the body of one of the messages.
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "dataplane/base/assert.h"
#include "dataplane/base/codec.h"
#include "dataplane/base/crc32c.h"
#include "dataplane/wire/codec.h"
#include "dataplane/wire/error.h"
#include "dataplane/wire/frame.h"

namespace sarsen::wire {
namespace {

void try_header(std::span<const std::byte> input, bool put_right) {
  if (input.size() < kHeaderBytes) return;
  std::array<std::byte, kHeaderBytes> bytes{};
  std::copy_n(input.begin(), kHeaderBytes, bytes.begin());
  if (put_right) {
    store_little_endian(&bytes[0], kMagic);
    bytes[4] = std::byte{kVersion};
    store_little_endian(&bytes[60], crc32c(std::span(bytes).first(60)));
  }
  const auto header = decode_header(bytes);
  if (!header) return;
  std::array<std::byte, kHeaderBytes> again{};
  encode_header(*header, again);
  SARSEN_ASSERT(again == bytes, "I-WIRE-1");
  const auto rest = input.subspan(kHeaderBytes);
  if (rest.size() >= header->body_bytes) (void)check_body(*header, rest.first(header->body_bytes));
}

template <typename Message>
void try_body(std::span<const std::byte> body) {
  const auto message = decode<Message>(body);
  if (!message) return;
  SARSEN_ASSERT(std::ranges::equal(encode(*message), body), "I-WIRE-1");
  if constexpr (std::is_same_v<Message, ReadReply>) {
    (void)answers(*message, {100, 20000}, 4096);
  }
  if constexpr (std::is_same_v<Message, ErrorReply>) {
    const Error error = from_reply(*message);
    (void)error.message();
    (void)to_reply(error);
  }
}

using Try = void (*)(std::span<const std::byte>);
constexpr Try kTries[] = {
    [](std::span<const std::byte> input) { try_header(input, false); },
    [](std::span<const std::byte> input) { try_header(input, true); },
    try_body<Hello>,
    try_body<HelloReply>,
    try_body<PgHello>,
    try_body<PgHelloReply>,
    try_body<Changed>,
    try_body<ReadRequest>,
    try_body<ReadReply>,
    try_body<WriteRequest>,
    try_body<TrimRequest>,
    try_body<WriteZeroesRequest>,
    try_body<RemoveRequest>,
    try_body<BarrierRequest>,
    try_body<StatusRequest>,
    try_body<StatusReply>,
    try_body<ErrorReply>,
};

}  // namespace
}  // namespace sarsen::wire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  if (input.empty()) return 0;
  const auto kind = std::to_integer<std::size_t>(input[0]);
  if (kind < std::size(sarsen::wire::kTries)) sarsen::wire::kTries[kind](input.subspan(1));
  return 0;
}
