#include "dataplane/osd/osd_options.h"

#include <gtest/gtest.h>

namespace sarsen {
namespace {

ParsedOsdOptions parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "sarsen-osd");
  return parse_osd_arguments(static_cast<int>(arguments.size()), arguments.data());
}

// Two OSDs of a machine must not meet at one address, nor move to another at the next start.
TEST(OsdOptions, each_device_has_an_address_of_its_own) {
  const auto parsed =
      parse({"--device", "/a", "--device", "/b", "--insecure", "--listen", "tcp:10.0.0.7:7410"});
  ASSERT_FALSE(parsed.exit_status);
  EXPECT_EQ(parsed.options.place(0, 12).listen, "tcp:10.0.0.7:7410");
  EXPECT_EQ(parsed.options.place(1, 3).listen, "tcp:10.0.0.7:7411");
  EXPECT_FALSE(parsed.options.place(0, 0).node.empty());
  const auto local = parse({"--device", "/a", "--device", "/b"});
  ASSERT_FALSE(local.exit_status);
  EXPECT_EQ(local.options.place(1, 3).listen, "unix:/run/sarsen/osd-3.sock");
}

// Plain text on a network is a decision, not an oversight.
TEST(OsdOptions, tcp_needs_insecure) {
  EXPECT_EQ(parse({"--device", "/a", "--listen", "tcp:10.0.0.7:7410"}).exit_status, 2);
  EXPECT_EQ(parse({"--device", "/a", "--mon", "tcp:10.0.0.1:7400"}).exit_status, 2);
}

TEST(OsdOptions, what_cannot_work_is_refused_at_once) {
  EXPECT_EQ(parse({}).exit_status, 2);
  EXPECT_EQ(parse({"--device", "/a", "--device", "/a"}).exit_status, 2);
  EXPECT_EQ(parse({"--device", "/a", "--cpu", "1,2"}).exit_status, 2);
  EXPECT_EQ(parse({"--device", "/a", "--memory", "1M"}).exit_status, 2);
  EXPECT_EQ(parse({"--device", "/a", "--device", "/b", "--listen", "unix:/x"}).exit_status, 2);
  EXPECT_EQ(parse({"--device", "/a", "--insecure", "--listen", "tcp:0.0.0.0:0"}).exit_status, 2);
}

}  // namespace
}  // namespace sarsen
