#include "dataplane/cli/image_commands.h"

#include <gtest/gtest.h>

namespace sarsen {
namespace {

// As rbd users type it; what they mistype must not become an image of another name.
TEST(ImageName, is_pool_and_image_or_an_image_of_the_default_pool) {
  EXPECT_EQ(parse_image_name("disk").value(), (ImageName{"rbd", "disk"}));
  EXPECT_EQ(parse_image_name("fast/disk").value(), (ImageName{"fast", "disk"}));
  for (const char* name : {"", "/", "disk/", "/disk", "a/b/c"}) {
    const auto parsed = parse_image_name(name);
    ASSERT_FALSE(parsed.has_value()) << name;
    EXPECT_NE(parsed.error().message().find("POOL/IMAGE"), std::string::npos);
  }
}

// Scripts go by the exit status: a mon that is away must not look like success.
TEST(ImageCommands, without_a_mon_nothing_is_reported_as_done) {
  ImageOptions options;
  options.mon = "unix:/nonexistent/mon.sock";
  options.image = "disk";
  options.confirm = "rbd/disk";
  EXPECT_EQ(run_image_remove(options), ExitCode::could_not);
  EXPECT_EQ(run_image_create(options), ExitCode::could_not);
  options.mon = "nonsense";
  EXPECT_EQ(run_image_info(options), ExitCode::could_not);
}

}  // namespace
}  // namespace sarsen
