#include <algorithm>
#include <optional>

#include "dataplane/runtime/when_all.h"
#include "dataplane/wire/error.h"
#include "tests/unit/replica/service_fixture.h"

namespace sarsen {
namespace {

using test::Bytes;
using test::kHolder;
using test::kImage;
using test::kOsd;
using test::kPool;
using test::pattern;
using wire::RemoteError;

class ImageChange : public test::ServiceFixture {
 protected:
  using Outcome = std::optional<Result<wire::Changed>>;

  static Task<void> keep(Task<Result<wire::Changed>> task, Outcome* outcome) {
    outcome->emplace(co_await std::move(task));
  }
  void begin(Task<Result<wire::Changed>> task, Outcome* outcome) {
    sim.run_at(node.place(ShardId(0)), [&] { node.scope().spawn(keep(std::move(task), outcome)); });
  }
  void await(const Outcome& outcome) {
    ASSERT_TRUE(sim.run_until([&] { return outcome.has_value(); }));
  }
  Result<wire::Changed> trim(std::uint64_t number, std::uint32_t offset, std::uint32_t length) {
    return run(
        service().handle(context(), wire::TrimRequest{object(number), {offset, length}, origin()}));
  }
};

// Rule R8, for every way that a range can lie over blocks.
TEST_F(ImageChange, parts_of_blocks_are_merged) {
  Bytes expected(5 * kBlockBytes);
  std::size_t seed = 0;
  const std::pair<std::uint32_t, std::uint32_t> ranges[] = {
      {512, 100}, {4000, 200},  {0, 4096},    {4096, 1},
      {8191, 2},  {100, 12000}, {4096, 8192}, {12287, 4097}};
  for (const auto& [offset, length] : ranges) {
    const Bytes data = pattern(length, ++seed);
    const auto changed = write(0, offset, data);
    ASSERT_TRUE(changed) << changed.error().message();
    std::copy(data.begin(), data.end(), expected.begin() + offset);
    const auto found = read(0, 0, 5 * kBlockBytes);
    ASSERT_TRUE(found) << found.error().message();
    ASSERT_EQ(*found, expected) << offset << " " << length;
  }
}

// Two sectors of one block, written at a time, must not undo each other.
TEST_F(ImageChange, sectors_of_one_block_written_at_a_time_are_both_there) {
  const Bytes base = pattern(4096, 1);
  ASSERT_TRUE(write(0, 0, base));
  Outcome one;
  Outcome two;
  const Bytes first = pattern(512, 50);
  const Bytes second = pattern(512, 90);
  begin(send(write_request(0, 512, first), first), &one);
  begin(send(write_request(0, 2048, second), second), &two);
  await(one);
  await(two);
  Bytes expected = base;
  std::copy(first.begin(), first.end(), expected.begin() + 512);
  std::copy(second.begin(), second.end(), expected.begin() + 2048);
  EXPECT_EQ(*read(0, 0, 4096), expected);
}

// The client's sum covers its fragment, all the way into the block.
TEST_F(ImageChange, a_fragment_that_does_not_match_its_sum_is_refused) {
  const Bytes data = pattern(512, 1);
  auto request = write_request(0, 512, data);
  request.checksums[0] ^= 1;
  const auto changed = run(send(request, data));
  ASSERT_FALSE(changed);
  EXPECT_TRUE(wire::is(changed.error(), RemoteError::bad_checksum));
  EXPECT_EQ(*read(0, 0, 4096), Bytes(4096));
}

TEST_F(ImageChange, places_rise_and_a_new_configuration_starts_anew) {
  const auto first = write(0, 0, pattern(4096, 1));
  const auto second = write(0, 0, pattern(4096, 2));
  EXPECT_EQ(first->epoch, PgEpoch(5));
  EXPECT_EQ(first->sequence.next(), second->sequence);
  restart();
  const auto third = write(0, 0, pattern(4096, 3));
  EXPECT_EQ(third->epoch, PgEpoch(6));
  EXPECT_EQ(third->sequence, PgSequence(1));
}

// I-REPLICA-2, through the whole service.
TEST_F(ImageChange, a_write_sent_again_is_done_once) {
  const Bytes data = pattern(4096, 1);
  const auto request = write_request(0, 0, data);
  Outcome one;
  Outcome joined;
  begin(send(request, data), &one);
  begin(send(request, data), &joined);
  await(one);
  await(joined);
  ASSERT_TRUE(*one);
  EXPECT_EQ(**one, **joined);
  const Bytes later = pattern(4096, 2);
  ASSERT_TRUE(write(0, 0, later));
  EXPECT_EQ(*run(send(request, data)), **one) << "its answer was lost";
  EXPECT_EQ(*read(0, 0, 4096), later);
}

// R6: an operation that waits for its blocks while its attachment is taken away has no effect.
TEST_F(ImageChange, what_waits_is_fenced_when_its_turn_comes) {
  const Bytes data = pattern(kBlockBytes, 1);
  Outcome first;
  Outcome second;
  begin(send(write_request(0, 0, data), data), &first);
  const Bytes late = pattern(kBlockBytes, 2);
  begin(send(write_request(0, 0, late), late), &second);
  const MapEpoch before = content.epoch;
  content.images[kImage].attachments[0].epoch = AttachEpoch(4);
  content.images[kImage].last_attach_epoch = AttachEpoch(4);
  publish();
  EXPECT_EQ(service().settled_epoch(), before) << "the first is at the store";
  await(first);
  await(second);
  EXPECT_TRUE(*first) << "operations under way end";
  EXPECT_TRUE(wire::is(second->error(), RemoteError::fenced)) << second->error().message();
  EXPECT_EQ(service().settled_epoch(), content.epoch);
}

// The same for a session that was replaced (R7).
TEST_F(ImageChange, what_waits_is_refused_after_a_newer_session_said_hello) {
  const Bytes data = pattern(kBlockBytes, 1);
  Outcome first;
  Outcome second;
  begin(send(write_request(0, 0, data), data), &first);
  begin(send(write_request(0, 0, data), data), &second);
  session = wire::SessionId(2);
  hello();
  await(second);
  EXPECT_TRUE(wire::is(second->error(), RemoteError::stale_session)) << second->error().message();
  await(first);
}

// A client that was attached a moment ago must not be fenced by an OSD that has not heard of it.
TEST_F(ImageChange, an_osd_that_is_behind_waits_for_the_newer_map) {
  Outcome outcome;
  const Bytes data = pattern(kBlockBytes, 1);
  auto request = write_request(0, 0, data);
  request.object.pg.epoch = PgEpoch(6);
  begin(send(request, data), &outcome);
  sim.run_for(milliseconds(100));
  EXPECT_FALSE(outcome);
  for (auto& group : content.pools[kPool].groups) group.epoch = PgEpoch(6);
  publish();
  await(outcome);
  EXPECT_TRUE(*outcome) << outcome->error().message();

  Outcome refused;
  auto newer = write_request(0, 0, data);
  newer.object.pg.epoch = PgEpoch(7);
  begin(send(newer, data), &refused);
  await(refused);
  EXPECT_TRUE(wire::is(refused->error(), RemoteError::stale_epoch)) << "not for ever";
  EXPECT_EQ(service().epoch_of(newer.object.pg), PgEpoch(6));
}

TEST_F(ImageChange, trims_read_as_zeros_and_give_back_whole_blocks) {
  const Bytes data = pattern(5 * kBlockBytes, 1);
  ASSERT_TRUE(write(0, 0, data));
  ASSERT_TRUE(trim(0, 100, 4 * kBlockBytes));
  Bytes expected = data;
  std::fill_n(expected.begin() + 100, 4 * kBlockBytes, std::byte{0});
  EXPECT_EQ(*read(0, 0, 5 * kBlockBytes), expected);
  const std::vector<wire::Run> runs{
      {kBlockBytes, true}, {3 * kBlockBytes, false}, {kBlockBytes, true}};
  EXPECT_EQ(status(0, 0, 5 * kBlockBytes), runs);
  ASSERT_TRUE(trim(0, 10, 20)) << "within one block";
  EXPECT_EQ((*read(0, 0, 30))[9], data[9]);
  EXPECT_EQ((*read(0, 0, 30))[10], std::byte{0});
  ASSERT_TRUE(trim(0, kBlockBytes + 7, 9)) << "of a block that is not there";
  EXPECT_EQ(status(0, 0, 5 * kBlockBytes), runs);
}

// NBD_CMD_FLAG_NO_HOLE: space that was promised must not be missing later.
TEST_F(ImageChange, zeros_that_keep_their_space_take_it) {
  const std::uint32_t length = 300 * kBlockBytes - 50;
  ASSERT_TRUE(write(0, 0, pattern(kBlockBytes, 1)));
  const auto changed = run(service().handle(
      context(), wire::WriteZeroesRequest{object(0), {50, length}, origin(), true}));
  ASSERT_TRUE(changed) << changed.error().message();
  EXPECT_EQ(status(0, 0, 301 * kBlockBytes),
            (std::vector<wire::Run>{{300 * kBlockBytes, true}, {kBlockBytes, false}}));
  const Bytes found = *read(0, 0, 300 * kBlockBytes);
  EXPECT_EQ(found[49], pattern(kBlockBytes, 1)[49]);
  EXPECT_EQ(std::count(found.begin() + 50, found.end(), std::byte{0}), length);
}

TEST_F(ImageChange, removed_objects_read_as_zeros) {
  ASSERT_TRUE(write(3, 8192, pattern(kBlockBytes, 1)));
  ASSERT_TRUE(run(service().handle(context(), wire::RemoveRequest{object(3), origin()})));
  EXPECT_EQ(*read(3, 8192, kBlockBytes), Bytes(kBlockBytes));
}

// A barrier that comes before what it should wait for lets a snapshot miss a write.
TEST_F(ImageChange, a_barrier_waits_for_what_is_under_way) {
  const Bytes data = pattern(kBlockBytes, 1);
  Outcome written;
  Outcome barrier;
  begin(send(write_request(0, 0, data), data), &written);
  begin(service().handle(context(), wire::BarrierRequest{object(0).pg, kImage, attachment()}),
        &barrier);
  ASSERT_TRUE(sim.run_until([&] { return written.has_value() || barrier.has_value(); }));
  EXPECT_TRUE(written.has_value());
  await(barrier);
  EXPECT_EQ(**barrier, **written);
}

// A full device is told as such, and changes nothing.
TEST_F(ImageChange, no_space_is_answered_as_no_space) {
  Result<wire::Changed> changed = wire::Changed();
  for (std::uint64_t i = 0; changed && i < 64; ++i) {
    changed = write(i / 16, static_cast<std::uint32_t>(i % 16) * 64 * kBlockBytes,
                    pattern(64 * kBlockBytes, i));
    first_unacknowledged = next_operation;
  }
  ASSERT_FALSE(changed);
  EXPECT_TRUE(wire::is(changed.error(), RemoteError::no_space)) << changed.error().message();
  EXPECT_TRUE(trim(0, 0, 16 * 64 * kBlockBytes)) << "giving back always works";
}

// A connection of one node must not write under the name of another.
TEST_F(ImageChange, a_connection_speaks_for_its_holder_only) {
  const Bytes data = pattern(kBlockBytes, 1);
  auto request = write_request(0, 0, data);
  request.origin.attachment.holder = HolderId(1);
  const auto changed = run(send(request, data));
  ASSERT_FALSE(changed);
  EXPECT_TRUE(wire::is(changed.error(), RemoteError::bad_request));
}

}  // namespace
}  // namespace sarsen
