// Log lines are read by machines and shown to strangers in bug reports.
#include "dataplane/base/log.h"

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace sarsen {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

struct LogTest : testing::Test {
  std::int64_t now_ns = 1'700'000'000'123'456'789;
  std::vector<std::string> lines;
  std::unique_ptr<LogOutput> output = LogOutput::to_function(
      LogLevel::info, [this] { return now_ns; },
      [this](std::string_view line) { lines.emplace_back(line); });
  Logger log{*output};
};

TEST_F(LogTest, writes_one_line_of_keys_and_values) {
  // The format is an interface: collectors and people's scripts parse it.
  log.component("store.journal")
      .with({{"shard", ShardId(2)}})
      .info("segment opened", {{"segment", 7},
                               {"bytes", std::uint64_t{1} << 63},
                               {"wrapped", false},
                               {"delta", -1},
                               {"ratio", 0.25},
                               {"path", "/dev/sdb"}});
  EXPECT_THAT(lines,
              ElementsAre("time=2023-11-14T22:13:20.123456Z level=info component=store.journal "
                          "shard=2 event=\"segment opened\" segment=7 bytes=9223372036854775808 "
                          "wrapped=false delta=-1 ratio=0.25 path=/dev/sdb"));
}

TEST_F(LogTest, leaves_out_what_is_below_its_level) {
  // Debug lines cost nothing when nobody wants them, and can be switched on at run time.
  log.debug("detail");
  EXPECT_THAT(lines, SizeIs(0));
  output->set_level(LogLevel::debug);
  log.debug("detail");
  EXPECT_THAT(lines, SizeIs(1));
  output->set_level(*log_level_from("off"));
  log.error("lost");
  EXPECT_THAT(lines, SizeIs(1));
  EXPECT_EQ(log_level_from("verbose"), std::nullopt);
  Logger().error("nobody listens");
}

TEST_F(LogTest, lets_no_value_break_out_of_its_line) {
  // Values come from peers and users: a forged line or a terminal sequence must stay a value.
  log.info("name", {{"value", "a b\"c\\\n\x1b[31m time=0"}, {"empty", ""}});
  EXPECT_THAT(lines[0], HasSubstr("value=\"a b\\\"c\\\\\\n\\x1b[31m time=0\" empty=\"\""));
}

TEST_F(LogTest, cuts_long_values_between_characters) {
  // One bad request must not fill the log.
  log.info("long", {{"value", std::string(kLogValueBytesMax - 1, 'x') + "\u00e9tail"}});
  EXPECT_THAT(lines[0], testing::EndsWith("xxx..."));
  EXPECT_LT(lines[0].size(), kLogValueBytesMax + 200);
}

TEST_F(LogTest, hides_values_whose_key_names_a_secret) {
  // The last line of defence; the first is that a Secret is not accepted at all.
  static_assert(!std::is_constructible_v<LogField, std::string_view, const Secret&>);
  static_assert(!std::is_constructible_v<LogField, std::string_view, Secret>);
  static_assert(!std::is_constructible_v<LogField, std::string_view, const int*>);
  log.with({{"attach_ticket", "abc"}}).info("attached", {{"passphrase", "hunter2"}, {"n", 1}});
  EXPECT_THAT(lines[0], HasSubstr("attach_ticket=[hidden]"));
  EXPECT_THAT(lines[0], HasSubstr("passphrase=[hidden] n=1"));
}

TEST_F(LogTest, writes_errors_as_their_message) {
  // Every error has one sentence; it is the same in the log, the CLI and the API.
  class Category final : public ErrorCategory {
   public:
    std::string_view name() const override { return "store"; }
    std::string_view sentence(int) const override { return "no free space"; }
    ErrorClass error_class(int) const override { return ErrorClass::unavailable; }
  };
  static const Category category;
  log.warning("write refused", {{"error", Error(category, 1, "need 3")}});
  EXPECT_THAT(lines[0], HasSubstr("level=warning"));
  EXPECT_THAT(lines[0], HasSubstr("error=\"store: no free space (need 3)\""));
}

TEST_F(LogTest, limits_the_rate_of_a_warning_and_counts_the_rest) {
  // A failing device fails a million times a second; the first line matters, and the number.
  LogRateLimit limit(1'000'000'000);
  for (int i = 0; i < 5; ++i) log.warning(limit, "write failed");
  EXPECT_THAT(lines, SizeIs(1));
  now_ns += 1'000'000'000;
  log.warning(limit, "write failed");
  EXPECT_THAT(lines, SizeIs(2));
  EXPECT_THAT(lines[1], HasSubstr("suppressed=4"));
  now_ns -= 3'600'000'000'000;
  log.warning(limit, "write failed");
  EXPECT_THAT(lines, SizeIs(3));  // a clock that was set back does not silence it for an hour
}

TEST_F(LogTest, writes_what_is_queued_before_it_ends) {
  // The last lines before an exit are the ones that explain it.
  const std::string path = testing::TempDir() + "sarsen_log_test_" + std::to_string(getpid());
  {
    auto file = LogOutput::to_file(path, {.asynchronous = true}, [] { return std::int64_t{0}; });
    ASSERT_TRUE(file.has_value());
    const Logger logger(**file);
    for (int i = 0; i < 1000; ++i) logger.info("line", {{"number", i}});
  }
  std::ifstream in(path);
  std::string line;
  int count = 0;
  while (std::getline(in, line)) ++count;
  EXPECT_EQ(count, 1000);
  std::remove(path.c_str());
  auto nowhere = LogOutput::to_file("/nonexistent/log", {}, [] { return std::int64_t{0}; });
  ASSERT_FALSE(nowhere.has_value());
  EXPECT_THAT(nowhere.error().message(), HasSubstr("/nonexistent/log"));
}

TEST(LogDeathTest, refuses_a_key_that_would_break_the_format) {
  // Keys are written by us, so a bad one is a bug.
  const auto output = LogOutput::to_function(
      LogLevel::info, [] { return std::int64_t{0}; }, [](std::string_view) {});
  EXPECT_DEATH(Logger(*output).info("event", {{"two words", 1}}), "a log key is");
}

TEST(Secret, is_wiped_when_it_moves_or_dies) {
  // A copy left on the heap ends up in a core dump.
  Secret secret(std::string("a passphrase that is too long for the small string buffer"));
  const Secret moved = std::move(secret);
  EXPECT_TRUE(secret.empty());  // NOLINT(bugprone-use-after-move): what the test is about
  EXPECT_THAT(std::string(moved.reveal()), HasSubstr("passphrase"));
}

}  // namespace
}  // namespace sarsen
