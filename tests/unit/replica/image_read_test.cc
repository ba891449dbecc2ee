#include "dataplane/wire/error.h"
#include "tests/unit/replica/service_fixture.h"

namespace sarsen {
namespace {

using test::Bytes;
using test::kImage;
using test::pattern;

using ImageRead = test::ServiceFixture;

// Zeros cost nothing on the wire, whatever the range looks like.
TEST_F(ImageRead, zeros_are_runs_and_data_matches_its_sums) {
  const Bytes data = pattern(3 * kBlockBytes, 1);
  ASSERT_TRUE(write(0, 20 * kBlockBytes, data));
  for (const auto& [offset, length] :
       {std::pair{0u, 64 * kBlockBytes}, std::pair{20 * kBlockBytes + 17, 40 * kBlockBytes},
        std::pair{5u, 23 * kBlockBytes - 1}}) {
    Bytes expected(128 * kBlockBytes);
    std::copy(data.begin(), data.end(), expected.begin() + 20 * kBlockBytes);
    const Bytes range(expected.begin() + offset, expected.begin() + offset + length);
    const auto found = read(0, offset, length);
    ASSERT_TRUE(found) << found.error().message();
    EXPECT_EQ(*found, range) << offset << " " << length;
  }
  const auto raw = run(service().handle(
      context(), wire::ReadRequest{object(0), {0, kObjectBytes}, attachment(), {}}));
  ASSERT_TRUE(raw);
  EXPECT_EQ(raw->reply.runs.size(), 3u);
  EXPECT_EQ(raw->data.size(), 3u * kBlockBytes);
}

TEST_F(ImageRead, an_object_that_was_never_written_has_no_data) {
  const auto raw = run(service().handle(
      context(), wire::ReadRequest{object(1), {0, kObjectBytes}, attachment(), {}}));
  ASSERT_TRUE(raw);
  EXPECT_EQ(raw->reply.runs, (std::vector<wire::Run>{{kObjectBytes, false}}));
}

TEST_F(ImageRead, status_ends_early_when_asked_for_few_runs) {
  ASSERT_TRUE(write(0, 4 * kBlockBytes, pattern(kBlockBytes, 1)));
  const auto reply = run(service().handle(
      context(), wire::StatusRequest{object(0), {100, kObjectBytes - 100}, attachment(), {}, 2}));
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->runs,
            (std::vector<wire::Run>{{4 * kBlockBytes - 100, false}, {kBlockBytes, true}}));
}

// Readers of a detached attachment are fenced like writers.
TEST_F(ImageRead, a_detached_reader_is_fenced) {
  content.images[kImage].attachments.clear();
  publish();
  const auto found = read(0, 0, kBlockBytes);
  ASSERT_FALSE(found);
  EXPECT_TRUE(wire::is(found.error(), wire::RemoteError::fenced));
}

}  // namespace
}  // namespace sarsen
