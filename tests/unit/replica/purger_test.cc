#include "tests/unit/replica/service_fixture.h"

namespace sarsen {
namespace {

using test::Bytes;
using test::kImage;
using test::kOsd;
using test::kPool;
using test::pattern;

class PurgerTest : public test::ServiceFixture {
 protected:
  void write_everywhere() {
    for (const std::uint64_t number : {0u, 1u, 2u, 3u}) {
      ASSERT_TRUE(write(number, 0, pattern(20 * kBlockBytes, number)));
      ASSERT_TRUE(write(number, 100 * kBlockBytes, pattern(kBlockBytes, number)));
    }
  }
  void purge_from(std::uint64_t bytes) {
    ImageEntry& image = content.images[kImage];
    image.purging = true;
    image.purge_from_bytes = bytes;
    ++image.purge_generation;
    image.purged.clear();
    publish();
  }
  bool await_purged() {
    return sim.run_until([&] { return service().purges_done().size() == 2; }, seconds(60));
  }
  // Blocks of the image that take space, as the store says.
  std::uint64_t allocated(std::uint64_t number) {
    const auto runs = run(osd().store->allocation(
        content.images[kImage].object_key(ObjectNumber(number)), {0, kBlocksPerObject}));
    std::uint64_t blocks = 0;
    for (const auto& part : *runs) blocks += part.allocated ? part.block_count : 0;
    return blocks;
  }
};

// Space of a removed image must come back, from the journal and from the index alike.
TEST_F(PurgerTest, a_removed_image_gives_back_everything) {
  write_everywhere();
  ASSERT_TRUE(run(osd().store->checkpoint()));
  ASSERT_TRUE(write(2, 0, pattern(kBlockBytes, 9)));
  content.images[kImage].state = ImageState::removing;
  content.images[kImage].attachments.clear();
  purge_from(0);
  ASSERT_TRUE(await_purged());
  for (const std::uint64_t number : {0u, 1u, 2u, 3u}) EXPECT_EQ(allocated(number), 0u) << number;
  const PurgeDone done = service().purges_done().front();
  EXPECT_EQ(done.image, kImage);
  EXPECT_EQ(done.purge_generation, 1u);
  // The mon knows it: no more to say.
  content.images[kImage].purged = {PgNumber(0), PgNumber(1)};
  publish();
  EXPECT_TRUE(sim.run_until([&] { return service().purges_done().empty(); }, seconds(60)));
}

// What the image still has must not be touched, to the block.
TEST_F(PurgerTest, a_smaller_image_keeps_what_is_below_its_end) {
  write_everywhere();
  const std::uint64_t size = kObjectBytes + 10 * kBlockBytes;
  content.images[kImage].size_bytes = size;
  purge_from(size);
  ASSERT_TRUE(await_purged());
  EXPECT_EQ(allocated(0), 21u);
  EXPECT_EQ(allocated(1), 10u);
  EXPECT_EQ(allocated(2), 0u);
  EXPECT_EQ(allocated(3), 0u);
  const Bytes kept = pattern(20 * kBlockBytes, 1);
  EXPECT_EQ(*read(1, 0, 10 * kBlockBytes), Bytes(kept.begin(), kept.begin() + 10 * kBlockBytes));
  // It grows again: what was cut off does not come back.
  content.images[kImage].purging = false;
  content.images[kImage].size_bytes = 4 * std::uint64_t{kObjectBytes};
  publish();
  EXPECT_EQ(*read(1, 10 * kBlockBytes, 10 * kBlockBytes), Bytes(10 * kBlockBytes));
}

// A purge that a crash interrupted is done again, and reported by the run that finished it.
TEST_F(PurgerTest, a_purge_goes_on_after_a_crash) {
  write_everywhere();
  content.images[kImage].state = ImageState::removing;
  content.images[kImage].attachments.clear();
  purge_from(0);
  sim.run_until([&] { return allocated(0) == 0 || allocated(3) == 0; });
  content.images[kImage].state = ImageState::ready;  // so that the fixture can say hello
  content.images[kImage].attachments = test::replica_map().images[kImage].attachments;
  restart();
  ASSERT_TRUE(await_purged());
  for (const std::uint64_t number : {0u, 1u, 2u, 3u}) EXPECT_EQ(allocated(number), 0u) << number;
}

}  // namespace
}  // namespace sarsen
