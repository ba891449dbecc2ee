#include "dataplane/replica/session_table.h"

#include <gtest/gtest.h>

#include "dataplane/wire/error.h"
#include "tests/support/memory_env.h"

namespace sarsen {
namespace {

using wire::OperationId;
using wire::RemoteError;
using wire::SessionId;

class SessionTableTest : public testing::Test {
 protected:
  static wire::Origin origin(std::uint64_t session, std::uint64_t id, std::uint64_t first) {
    return {.attachment = {wire::HolderId(1), wire::AttachEpoch(2), SessionId(session)},
            .operation = OperationId(id),
            .first_unacknowledged = OperationId(first),
            .generation = {}};
  }
  void refuse(std::uint64_t session, std::uint64_t id, std::uint64_t first, RemoteError code) {
    const auto entered = table.enter(key, origin(session, id, first));
    ASSERT_FALSE(entered);
    EXPECT_TRUE(wire::is(entered.error(), code)) << entered.error().message();
  }
  SessionTable::Entrance enter(std::uint64_t session, std::uint64_t id, std::uint64_t first) {
    auto entered = table.enter(key, origin(session, id, first));
    SARSEN_ASSERT(entered, "the change is let in");
    return *entered;
  }
  static wire::Changed place(std::uint64_t sequence) {
    return {.epoch = PgEpoch(1), .sequence = PgSequence(sequence)};
  }

  test::MemoryEnv env;
  SessionTable table{env.env, 4};
  const SessionKey key{ImageId(9), wire::HolderId(1), wire::AttachEpoch(2)};
};

// I-REPLICA-2: the reply of a change was lost; done again it could land on top of a later one.
TEST_F(SessionTableTest, a_change_that_was_done_answers_the_same_again) {
  ASSERT_TRUE(table.hello(key, SessionId(1), OperationId(1)));
  const auto first = enter(1, 5, 5);
  EXPECT_TRUE(first.first);
  EXPECT_FALSE(enter(1, 5, 5).first) << "it is under way";
  table.finish(key, first.operation, place(8));
  const auto again = enter(1, 5, 5);
  EXPECT_FALSE(again.first);
  EXPECT_TRUE(again.operation->done.is_set());
  EXPECT_EQ(**again.operation->result, place(8));
  EXPECT_EQ(table.hello(key, SessionId(1), OperationId(5)), OperationId(5));
}

// A change that failed had no effect, or its client will not be told of it: it is tried again.
TEST_F(SessionTableTest, a_change_that_failed_is_tried_again) {
  ASSERT_TRUE(table.hello(key, SessionId(1), OperationId(1)));
  const auto first = enter(1, 5, 5);
  table.finish(key, first.operation, fail(wire::make_error(RemoteError::no_space)));
  EXPECT_TRUE(enter(1, 5, 5).first);
}

// I-REPLICA-3: what a dead blockd left in a socket arrives after its successor has written.
TEST_F(SessionTableTest, older_sessions_are_refused_after_a_hello) {
  refuse(1, 1, 1, RemoteError::bad_request);
  ASSERT_TRUE(table.hello(key, SessionId(1), OperationId(1)));
  const auto waiting = enter(1, 1, 1);
  ASSERT_TRUE(table.hello(key, SessionId(2), OperationId(1)));
  refuse(1, 2, 1, RemoteError::stale_session);
  EXPECT_FALSE(table.check(key, SessionId(1))) << "what waits is refused when its turn comes";
  EXPECT_FALSE(table.hello(key, SessionId(1), OperationId(1)));
  EXPECT_TRUE(enter(2, 1, 1).first) << "ids are those of the session";
  EXPECT_EQ(table.under_way(key).size(), 2u) << "a barrier waits for both";
  table.finish(key, waiting.operation, place(1));
  EXPECT_EQ(table.under_way(key).size(), 1u);
}

TEST_F(SessionTableTest, ids_below_the_first_unacknowledged_are_refused) {
  ASSERT_TRUE(table.hello(key, SessionId(1), OperationId(3)));
  refuse(1, 2, 1, RemoteError::stale_operation);
  EXPECT_TRUE(enter(1, 9, 7).first);
  refuse(1, 6, 6, RemoteError::stale_operation);
  EXPECT_TRUE(enter(1, 7, 7).first);
}

// A client that acknowledges nothing must not fill the OSD's memory; nor may the one change that
// it waits for be shut out.
TEST_F(SessionTableTest, a_session_remembers_a_bounded_number_of_changes) {
  ASSERT_TRUE(table.hello(key, SessionId(1), OperationId(1)));
  for (std::uint64_t id = 2; id <= 5; ++id) table.finish(key, enter(1, id, 1).operation, place(id));
  refuse(1, 6, 1, RemoteError::overloaded);
  EXPECT_TRUE(enter(1, 1, 1).first);
  EXPECT_TRUE(enter(1, 6, 6).first);
}

TEST_F(SessionTableTest, what_was_detached_is_forgotten) {
  ASSERT_TRUE(table.hello(key, SessionId(1), OperationId(1)));
  const auto under_way = enter(1, 1, 1);
  table.forget_detached([](const SessionKey&) { return false; });
  refuse(1, 2, 1, RemoteError::bad_request);
  table.finish(key, under_way.operation, place(1));
}

}  // namespace
}  // namespace sarsen
