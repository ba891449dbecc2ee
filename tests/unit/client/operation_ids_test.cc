#include "dataplane/client/operation_ids.h"

#include <optional>

#include <gtest/gtest.h>

#include "tests/support/memory_env.h"

namespace sarsen {
namespace {

using Operation = OperationIds::Operation;

// I-CLIENT-1: told too high, a resend is refused; told too low, servers remember for ever.
TEST(OperationIds, first_unacknowledged_is_the_lowest_open_id_of_the_group) {
  test::MemoryEnv env;
  OperationIds ids(env.executor);
  const wire::PgNumber one(1);
  const wire::PgNumber two(2);
  EXPECT_EQ(ids.first_unacknowledged(one), wire::OperationId(1));
  std::optional<Operation> first(std::in_place, ids);
  std::optional<Operation> second(std::in_place, ids);
  std::optional<Operation> third(std::in_place, ids);
  first->enter(one);
  second->enter(two);
  third->enter(one);
  EXPECT_EQ(ids.first_unacknowledged(one), first->id());
  EXPECT_EQ(ids.first_unacknowledged(two), second->id());
  first.reset();
  EXPECT_EQ(ids.first_unacknowledged(one), third->id());
  third.reset();
  second.reset();
  EXPECT_EQ(ids.first_unacknowledged(one), wire::OperationId(4));
}

// A try that goes to another group after a split is unacknowledged there, and only there.
TEST(OperationIds, an_operation_counts_in_the_group_that_it_is_sent_to) {
  test::MemoryEnv env;
  OperationIds ids(env.executor);
  Operation operation(ids);
  operation.enter(wire::PgNumber(1));
  operation.enter(wire::PgNumber(5));
  EXPECT_EQ(ids.first_unacknowledged(wire::PgNumber(1)), wire::OperationId(2));
  EXPECT_EQ(ids.first_unacknowledged(wire::PgNumber(5)), operation.id());
}

}  // namespace
}  // namespace sarsen
