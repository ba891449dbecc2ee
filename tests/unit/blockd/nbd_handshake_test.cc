#include "dataplane/blockd/nbd/nbd_handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataplane/blockd/nbd/nbd_error.h"
#include "tests/unit/blockd/nbd_client.h"

namespace sarsen::nbd {
namespace {

using Next = HandshakeStep::Next;

struct OptionAnswer {
  OptionReply type{};
  Bytes payload;
  bool operator==(const OptionAnswer&) const = default;
};

std::vector<OptionAnswer> split_replies(const Bytes& bytes, Option option) {
  std::vector<OptionAnswer> answers;
  BigEndianReader reader(bytes);
  while (reader.remaining() > 0) {
    EXPECT_EQ(reader.u64(), kOptionReplyMagic);
    EXPECT_EQ(Option(reader.u32()), option);
    OptionAnswer answer;
    answer.type = OptionReply(reader.u32());
    const auto text = reader.text(reader.u32());
    answer.payload = message(text);
    answers.push_back(answer);
  }
  EXPECT_TRUE(reader.finished());
  return answers;
}

class HandshakeTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kSize = 64 << 20;

  HandshakeTest() { accept(kFixedNewstyle | kNoZeroes); }

  void accept(std::uint32_t flags) {
    const Bytes bytes = message(flags);
    ASSERT_TRUE(handshake.accept_client_flags(std::span(bytes).first<kClientFlagsBytes>()));
  }
  HandshakeStep step(Option option, const Bytes& data = {}) {
    auto answer = env.run(handshake.answer({option, 0}, data));
    EXPECT_TRUE(answer.has_value());
    return answer ? *answer : HandshakeStep{};
  }
  std::vector<OptionAnswer> ask(Option option, const Bytes& data = {}) {
    return split_replies(step(option, data).reply, option);
  }
  OptionReply last_type(Option option, const Bytes& data = {}) {
    const auto answers = ask(option, data);
    return answers.empty() ? OptionReply{} : answers.back().type;
  }
  static Bytes export_request(std::string_view name, std::vector<InfoType> wanted = {}) {
    Bytes data = message(static_cast<std::uint32_t>(name.size()), name,
                         static_cast<std::uint16_t>(wanted.size()));
    BigEndianWriter writer(data);
    for (const InfoType type : wanted) writer.put(type);
    return data;
  }
  static Bytes context_request(std::string_view name, std::vector<std::string_view> queries) {
    Bytes data = message(static_cast<std::uint32_t>(name.size()), name,
                         static_cast<std::uint32_t>(queries.size()));
    BigEndianWriter writer(data);
    for (const auto query : queries) {
      writer.put(static_cast<std::uint32_t>(query.size()));
      writer.text(query);
    }
    return data;
  }

  test::MemoryEnv env;
  OneExport exports{env.executor, kSize};
  Handshake handshake{exports};
};

// The first bytes decide whether a client recognises a server at all; they are fixed by the
// standard.
TEST_F(HandshakeTest, greets_with_the_bytes_of_the_specification) {
  const auto greeting = Handshake::greeting();
  EXPECT_EQ(Bytes(greeting.begin(), greeting.end()), message("NBDMAGICIHAVEOPT", std::uint16_t{3}));
}

// An unknown client flag would change the meaning of what follows.
TEST_F(HandshakeTest, refuses_client_flags_that_do_not_exist) {
  const Bytes bytes = message(std::uint32_t{4});
  EXPECT_FALSE(handshake.accept_client_flags(std::span(bytes).first<4>()));
}

// Old clients cannot parse option replies: only the option without one is open to them.
TEST_F(HandshakeTest, lets_a_plain_newstyle_client_only_choose_an_export) {
  accept(0);
  const auto parse = [&](Option option) {
    const Bytes bytes = option_message(option);
    return handshake.parse_option(std::span(bytes).first<kOptionHeaderBytes>());
  };
  EXPECT_FALSE(parse(Option::list));
  ASSERT_TRUE(parse(Option::export_name));
  const auto chosen = step(Option::export_name, message("disk"));
  EXPECT_EQ(chosen.next, Next::transmission);
  EXPECT_EQ(chosen.reply.size(), 8 + 2 + kExportNameZeroes);
}

TEST_F(HandshakeTest, lists_exports_with_their_descriptions) {
  const auto answers = ask(Option::list);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0], (OptionAnswer{OptionReply::server,
                                      message(std::uint32_t{4}, "disk", "a disk in memory")}));
  EXPECT_EQ(answers[1].type, OptionReply::ack);
  EXPECT_EQ(last_type(Option::list, message("x")), OptionReply::invalid);
}

// Sizes and flags are what a guest's disk looks like; a wrong one is corruption or lost speed.
TEST_F(HandshakeTest, describes_the_chosen_export) {
  const auto chosen = step(Option::go, export_request("", {InfoType::name, InfoType::description}));
  EXPECT_EQ(chosen.next, Next::transmission);
  const std::uint16_t flags =
      kHasFlags | kSendFlush | kSendFua | kSendTrim | kSendWriteZeroes | kCanMultiConn;
  const auto answers = split_replies(chosen.reply, Option::go);
  const std::vector<OptionAnswer> expected{
      {OptionReply::info, message(InfoType::export_size_and_flags, kSize, flags)},
      {OptionReply::info, message(InfoType::block_size, std::uint32_t{1}, std::uint32_t{4096},
                                  std::uint32_t{32 << 20})},
      {OptionReply::info, message(InfoType::name, "disk")},
      {OptionReply::info, message(InfoType::description, "a disk in memory")},
      {OptionReply::ack, {}}};
  EXPECT_EQ(answers, expected);
}

TEST_F(HandshakeTest, says_read_only_and_offers_no_way_to_change_such_an_export) {
  OneExport read_only(env.executor, kSize, true);
  const auto opened = env.run(read_only.open(""));
  EXPECT_EQ(transmission_flags(*opened, true),
            kHasFlags | kReadOnly | kSendFlush | kSendFua | kCanMultiConn | kSendDontFragment);
}

// INFO answers like GO but stays in the handshake, so that a client can look at several exports.
TEST_F(HandshakeTest, stays_in_the_handshake_after_info) {
  EXPECT_EQ(step(Option::info, export_request("disk")).next, Next::more_options);
}

TEST_F(HandshakeTest, refuses_what_it_cannot_do_and_goes_on) {
  EXPECT_EQ(last_type(Option::go, export_request("nothing")), OptionReply::unknown_export);
  EXPECT_EQ(last_type(Option::info, message(std::uint32_t{1000}, "short")), OptionReply::invalid);
  EXPECT_EQ(last_type(Option::starttls), OptionReply::unsupported);
  EXPECT_EQ(last_type(Option::extended_headers), OptionReply::unsupported);
  EXPECT_EQ(last_type(Option(4711), message("junk")), OptionReply::unsupported);
  EXPECT_EQ(last_type(Option::go, export_request("disk")), OptionReply::ack);
}

TEST_F(HandshakeTest, asks_for_block_sizes_when_they_are_not_one_byte) {
  exports.block_bytes_min = 512;
  EXPECT_EQ(last_type(Option::go, export_request("disk")), OptionReply::block_size_required);
  EXPECT_EQ(last_type(Option::go, export_request("disk", {InfoType::block_size})),
            OptionReply::ack);
}

// The name cannot be refused with a reply: going on would serve the wrong disk.
TEST_F(HandshakeTest, hangs_up_on_an_unknown_name_chosen_the_old_way) {
  const Bytes name = message("nothing");
  EXPECT_FALSE(env.run(handshake.answer({Option::export_name, 7}, name)));
  EXPECT_FALSE(handshake.refuse_long({Option::export_name, 1u << 30}));
  EXPECT_TRUE(handshake.refuse_long({Option::list, 1u << 30}));
}

TEST_F(HandshakeTest, acknowledges_abort_and_closes) {
  const auto aborted = step(Option::abort);
  EXPECT_EQ(aborted.next, Next::close);
  EXPECT_EQ(split_replies(aborted.reply, Option::abort).back().type, OptionReply::ack);
}

TEST_F(HandshakeTest, offers_contexts_only_after_structured_replies) {
  EXPECT_EQ(last_type(Option::set_meta_context, context_request("disk", {"base:allocation"})),
            OptionReply::invalid);
  EXPECT_EQ(last_type(Option::structured_reply), OptionReply::ack);
  EXPECT_EQ(last_type(Option::structured_reply, message("x")), OptionReply::invalid);
}

TEST_F(HandshakeTest, answers_context_queries_as_list_and_as_choice) {
  step(Option::structured_reply);
  const auto contexts = [&](Option option, std::vector<std::string_view> queries) {
    return ask(option, context_request("disk", std::move(queries))).size() - 1;  // the last is ack
  };
  EXPECT_EQ(contexts(Option::list_meta_context, {}), 1u);
  EXPECT_EQ(contexts(Option::list_meta_context, {"base:"}), 1u);
  EXPECT_EQ(contexts(Option::list_meta_context, {"other:thing"}), 0u);
  EXPECT_EQ(contexts(Option::set_meta_context, {}), 0u);
  EXPECT_EQ(contexts(Option::set_meta_context, {"base:"}), 0u);
  EXPECT_EQ(contexts(Option::set_meta_context, {"x-y:z", "base:allocation"}), 1u);
  EXPECT_EQ(last_type(Option::set_meta_context, context_request("disk", {"nonsense"})),
            OptionReply::invalid);
  EXPECT_EQ(last_type(Option::set_meta_context, context_request("none", {"base:allocation"})),
            OptionReply::unknown_export);
}

// A context belongs to the export it was asked for, and a failed attempt forgets the earlier one.
TEST_F(HandshakeTest, keeps_a_context_only_for_its_export_and_until_the_next_choice) {
  step(Option::structured_reply);
  const auto chosen_with_context = [&](std::string_view set_for, std::string_view go_for) {
    step(Option::set_meta_context, context_request(set_for, {"base:allocation"}));
    step(Option::go, export_request(go_for));
    return handshake.take_negotiated().allocation_context;
  };
  EXPECT_TRUE(chosen_with_context("disk", "disk"));
  step(Option::structured_reply);
  EXPECT_FALSE(chosen_with_context("disk", ""));  // the same disk by another name
  step(Option::structured_reply);
  step(Option::set_meta_context, context_request("disk", {"base:allocation"}));
  step(Option::set_meta_context, message("junk"));
  step(Option::go, export_request("disk"));
  EXPECT_FALSE(handshake.take_negotiated().allocation_context);
}

TEST(NbdErrors, map_to_what_a_client_understands) {
  EXPECT_EQ(errno_of(make_error(RuntimeError::no_space)), Errno::no_space);
  EXPECT_EQ(errno_of(make_error(RuntimeError::read_only)), Errno::not_permitted);
  EXPECT_EQ(errno_of(make_error(RuntimeError::bad_argument)), Errno::invalid);
  EXPECT_EQ(errno_of(make_error(RuntimeError::stopped)), Errno::shutdown);
  EXPECT_EQ(errno_of(make_error(RuntimeError::io_error)), Errno::io);
  EXPECT_EQ(errno_of(make_error(RuntimeError::timed_out)), Errno::io);
}

}  // namespace
}  // namespace sarsen::nbd
