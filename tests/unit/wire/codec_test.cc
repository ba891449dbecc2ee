#include "dataplane/wire/codec.h"

#include <gtest/gtest.h>

#include "dataplane/base/crc32c.h"
#include "dataplane/runtime/error.h"
#include "dataplane/wire/error.h"
#include "tests/unit/wire/sample_messages.h"

namespace sarsen::wire {
namespace {

// What one version sends, the other must read; a field that is written and not read is lost data.
TEST(WireCodec, gives_back_every_message_that_it_encoded) {
  for_each_message([]<typename Message>() {
    Samples samples(17);
    for (int i = 0; i < 200; ++i) {
      const auto message = samples.make<Message>();
      ASSERT_TRUE(valid(message));
      const auto decoded = decode<Message>(encode(message));
      ASSERT_TRUE(decoded);
      EXPECT_EQ(*decoded, message);
    }
  });
}

// Two encodings of one value would have two checksums, and hide data in between.
TEST(WireCodec, refuses_bodies_that_are_shorter_or_longer_than_their_message) {
  for_each_message([]<typename Message>() {
    auto body = encode(Samples(3).make<Message>());
    for (std::size_t length = 0; length < body.size(); ++length) {
      EXPECT_FALSE(decode<Message>(std::span(body).first(length)));
    }
    body.push_back(std::byte{0});
    EXPECT_FALSE(decode<Message>(body));
  });
}

// Flipping any bit gives another value or a refusal, never the same value.
TEST(WireCodec, has_no_byte_without_a_meaning) {
  for_each_message([]<typename Message>() {
    const auto message = Samples(5).make<Message>();
    auto body = encode(message);
    for (std::size_t bit = 0; bit < std::min<std::size_t>(body.size(), 2000) * 8; ++bit) {
      body[bit / 8] ^= std::byte{1} << (bit % 8);
      const auto decoded = decode<Message>(body);
      if (decoded) {
        EXPECT_NE(*decoded, message);
        EXPECT_EQ(encode(*decoded), body);
      }
      body[bit / 8] ^= std::byte{1} << (bit % 8);
    }
  });
}

TEST(WireCodec, refuses_messages_that_break_their_own_rules) {
  Samples samples(1);
  const auto refused = [](const auto& message) { return !valid(message); };

  auto write = samples.make<WriteRequest>();
  write.checksums.push_back(0);
  EXPECT_TRUE(refused(write));

  auto read = samples.make<ReadRequest>();
  read.range = {kObjectBytes - 10, 11};
  EXPECT_TRUE(refused(read));
  read.range = {0, 0};
  EXPECT_TRUE(refused(read));
  read.range = {kObjectBytes, 0xffffffff};
  EXPECT_TRUE(refused(read));

  auto trim = samples.make<TrimRequest>();
  trim.origin.first_unacknowledged = trim.origin.operation.next();
  EXPECT_TRUE(refused(trim));

  StatusReply status;
  EXPECT_TRUE(refused(status));
  status.runs = {{4096, true}, {4096, true}};
  EXPECT_TRUE(refused(status));
  status.runs = {{0, true}};
  EXPECT_TRUE(refused(status));

  auto hello = samples.make<Hello>();
  hello.version_min = 0;
  EXPECT_TRUE(refused(hello));
}

// A count from the wire must not make the receiver reserve what never comes.
TEST(WireCodec, gives_no_memory_to_counts_that_are_not_there) {
  std::vector<std::byte> body(8, std::byte{0xff});
  EXPECT_FALSE(decode<ReadReply>(body));
  EXPECT_FALSE(decode<StatusReply>(body));
}

TEST(WireCodec, accepts_only_read_replies_that_fit_their_request) {
  const Range range{100, 20000};
  ReadReply reply;
  reply.runs = {{8092, true}, {4096, false}, {20000 - 8092 - 4096, true}};
  reply.checksums.resize(2 + 2);
  EXPECT_TRUE(answers(reply, range, 20000 - 4096));
  EXPECT_FALSE(answers(reply, range, 20000));
  EXPECT_FALSE(answers(reply, {100, 20001}, 20000 - 4096));
  EXPECT_FALSE(answers(reply, {101, 20000}, 20000 - 4096));  // boundaries within a block
  reply.checksums.resize(3);
  EXPECT_FALSE(answers(reply, range, 20000 - 4096));
  reply.runs = {{4000, true}, {4192, false}};
  reply.checksums.resize(1);
  EXPECT_FALSE(answers(reply, {0, 8192}, 4000));  // a run that ends within a block
  reply.runs = {{0xffffffff, false}};
  EXPECT_FALSE(answers(reply, range, 0));
}

// The sums are cut where the blocks of the object are, so that the store can keep them as they are.
TEST(WireChecksums, cover_blocks_of_the_object_and_fragments_at_the_ends) {
  std::vector<std::byte> data(10000, std::byte{7});
  const Range range{4000, 10000};
  EXPECT_EQ(checksum_count(range), 4u);
  Checksums sums;
  append_checksums(range, data, sums);
  ASSERT_EQ(sums.size(), 4u);
  EXPECT_EQ(sums[0], crc32c(std::span(data).first(96)));
  EXPECT_EQ(sums[1], crc32c(std::span(data).first(4096)));
  EXPECT_EQ(sums[3], crc32c(std::span(data).first(10000 - 96 - 8192)));
  EXPECT_TRUE(matches(range, data, sums));
  data[9999] = std::byte{8};
  EXPECT_FALSE(matches(range, data, sums));
  EXPECT_EQ(checksum_count({0, kObjectBytes}), kBlocksPerObject);
  EXPECT_EQ(checksum_count({1, kObjectBytes - 1}), kBlocksPerObject);
}

TEST(WireErrors, cross_the_wire_as_the_same_word_or_the_same_class) {
  const auto round_trip = [](const Error& error) { return from_reply(to_reply(error)); };
  EXPECT_TRUE(is(round_trip(make_error(RuntimeError::no_space)), RuntimeError::no_space));
  EXPECT_TRUE(is(round_trip(make_error(RemoteError::fenced)), RemoteError::fenced));
  EXPECT_EQ(round_trip(make_error(RuntimeError::device_gone)).error_class(), ErrorClass::failed);
  EXPECT_EQ(round_trip(make_error(RuntimeError::stopped)).error_class(), ErrorClass::unavailable);
  for (int i = 0; i < 5; ++i) {
    const ErrorReply from_the_future{999, ErrorClass(i), {}, "new"};
    EXPECT_EQ(from_reply(from_the_future).error_class(), ErrorClass(i));
  }
  EXPECT_EQ(to_reply(make_error(RuntimeError::io_error, std::string(5000, 'x'))).detail.size(),
            kDetailBytesMax);
}

}  // namespace
}  // namespace sarsen::wire
