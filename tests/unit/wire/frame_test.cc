#include "dataplane/wire/frame.h"

#include <array>
#include <string>

#include <gtest/gtest.h>

#include "dataplane/wire/codec.h"
#include "dataplane/wire/error.h"

namespace sarsen::wire {
namespace {

FrameHeader example_header() {
  FrameHeader header;
  header.type = MessageType::write;
  header.data_bytes = 4;
  header.tenant = 7;
  header.request_id = 0x0102030405060708;
  header.deadline_us = 5'000'000;
  header.trace = {0x1112131415161718, 0x191a1b1c1d1e1f20};
  return header;
}

WriteRequest example_write() {
  WriteRequest write;
  write.object = {{PoolId(1), PgNumber(0x2a), PgEpoch(3)}, ImageId(0x99), ObjectNumber(5)};
  write.range = {8192, 4};
  write.origin.attachment = {HolderId(0x77), AttachEpoch(2), SessionId(6)};
  write.origin.operation = OperationId(1000);
  write.origin.first_unacknowledged = OperationId(998);
  write.origin.generation = {BranchId(1), SnapshotGeneration(4)};
  const std::array data{std::byte{0xde}, std::byte{0xad}, std::byte{0xbe}, std::byte{0xef}};
  append_checksums(write.range, data, write.checksums);
  return write;
}

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[std::to_integer<unsigned>(bytes[i]) >> 4];
    text += kDigits[std::to_integer<unsigned>(bytes[i]) & 15];
    text += i % 16 == 15 ? '\n' : ' ';
  }
  return text;
}

// The bytes of the worked example in docs/wire_protocol.md: a build that writes others cannot talk
// to the ones that are out there.
TEST(WireFrame, has_the_bytes_of_the_worked_example) {
  const auto body = encode(example_write());
  FrameHeader header = example_header();
  describe_body(header, body);
  std::array<std::byte, kHeaderBytes> bytes{};
  encode_header(header, bytes);
  EXPECT_EQ(hex(bytes),
            "53 57 49 52 01 00 11 00 64 00 00 00 04 00 00 00\n"
            "cf 94 e8 71 07 00 00 00 08 07 06 05 04 03 02 01\n"
            "40 4b 4c 00 00 00 00 00 18 17 16 15 14 13 12 11\n"
            "20 1f 1e 1d 1c 1b 1a 19 00 00 00 00 03 aa c1 a0\n");
  EXPECT_EQ(hex(body),
            "01 00 00 00 2a 00 00 00 03 00 00 00 00 00 00 00\n"
            "99 00 00 00 00 00 00 00 05 00 00 00 00 00 00 00\n"
            "00 20 00 00 04 00 00 00 77 00 00 00 00 00 00 00\n"
            "02 00 00 00 00 00 00 00 06 00 00 00 00 00 00 00\n"
            "e8 03 00 00 00 00 00 00 e6 03 00 00 00 00 00 00\n"
            "01 00 00 00 04 00 00 00 00 00 00 00 01 00 00 00\n"
            "8e 77 dc f1 ");
}

TEST(WireFrame, gives_back_the_header_that_it_encoded) {
  FrameHeader header = example_header();
  header.reply = header.error = true;
  header.traffic_class = TrafficClass::background;
  std::array<std::byte, kHeaderBytes> bytes{};
  encode_header(header, bytes);
  const auto decoded = decode_header(bytes);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(*decoded, header);
}

// One flipped bit must never be taken for another frame, wherever it is.
TEST(WireFrame, refuses_a_header_with_any_bit_flipped) {
  std::array<std::byte, kHeaderBytes> bytes{};
  encode_header(example_header(), bytes);
  for (std::size_t bit = 0; bit < kHeaderBytes * 8; ++bit) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(decode_header(bytes)) << bit;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

TEST(WireFrame, refuses_lengths_that_no_frame_may_have) {
  const auto code_of = [](const FrameHeader& header) {
    std::array<std::byte, kHeaderBytes> bytes{};
    encode_header(header, bytes);
    const auto decoded = decode_header(bytes);
    return decoded ? 0 : decoded.error().code();
  };
  FrameHeader header = example_header();
  header.data_bytes = kDataBytesMax;
  header.body_bytes = kBodyBytesMax;
  EXPECT_EQ(code_of(header), 0);
  header.data_bytes = kDataBytesMax + 1;
  EXPECT_EQ(code_of(header), static_cast<int>(WireError::too_long));
  header = example_header();
  header.error = true;  // an error that is no reply
  EXPECT_EQ(code_of(header), static_cast<int>(WireError::malformed));
  header = example_header();
  header.traffic_class = TrafficClass(5);
  EXPECT_EQ(code_of(header), static_cast<int>(WireError::malformed));
  header = example_header();
  header.version = 2;
  EXPECT_EQ(code_of(header), static_cast<int>(WireError::bad_version));
}

TEST(WireFrame, refuses_a_body_that_does_not_match_its_checksum) {
  auto body = encode(example_write());
  FrameHeader header = example_header();
  describe_body(header, body);
  EXPECT_TRUE(check_body(header, body));
  body[50] ^= std::byte{4};
  EXPECT_FALSE(check_body(header, body));
}

}  // namespace
}  // namespace sarsen::wire
