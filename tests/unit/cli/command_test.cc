#include "dataplane/cli/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sarsen {
namespace {

using testing::HasSubstr;

// What inspect and fsck print must be what --object takes.
TEST(Command, an_object_name_is_read_back) {
  const ObjectKey object{
      .pool = PoolId(1), .family = 7, .branch = 3, .object_number = 18446744073709551615ull};
  const auto parsed = parse_object(object_name(object));
  ASSERT_TRUE(parsed);
  EXPECT_EQ(*parsed, object);
}

// A typing error must not show another object.
TEST(Command, anything_else_is_no_object_name) {
  for (const char* bad : {"", "1", "1/2/3", "1/2/3/4/5", "1/2/3/", "/1/2/3", "a/2/3/4", "1/2/3/4x",
                          "-1/2/3/4", "4294967296/2/3/4", "1/2/3/18446744073709551616"}) {
    const auto parsed = parse_object(bad);
    ASSERT_FALSE(parsed) << bad;
    EXPECT_THAT(parsed.error().message(), HasSubstr("POOL/FAMILY/BRANCH/NUMBER"));
  }
}

// Both forms: one to read, one to compute with.
TEST(Command, sizes_are_said_twice) {
  EXPECT_EQ(describe_bytes(512), "512 bytes");
  EXPECT_EQ(describe_bytes(64 * kMiB), "64.0 MiB (67108864 bytes)");
}

// Columns line up, or a table of segments cannot be read.
TEST(Command, rows_become_a_table) {
  const Json report{{"path", "x"},
                    {"rows", Json::array({{{"first_name", 1}, {"b", "long"}},
                                          {{"first_name", 1000000}, {"b", nullptr}}})}};
  EXPECT_EQ(render_text(report),
            "path  x\n"
            "rows:\n"
            "  first name  b\n"
            "  1           long\n"
            "  1000000     -\n");
}

}  // namespace
}  // namespace sarsen
