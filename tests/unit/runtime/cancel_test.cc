// CancelSource and CancelToken.
#include "dataplane/runtime/cancel.h"

#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/manual_env.h"

namespace sarsen {
namespace {

using testing::ElementsAre;

TEST(CancelToken, an_empty_token_is_never_cancelled) {
  // Callers that do not care pass {}.
  const CancelToken token;
  EXPECT_FALSE(token.cancelled());
  const CancelCallback callback(token, [] { FAIL(); });
}

TEST(CancelSource, keeps_the_first_reason) {
  // A request that timed out and is then stopped timed out.
  ManualEnv world;
  CancelSource source(world.executor);
  source.cancel(RuntimeError::timed_out);
  source.cancel(RuntimeError::stopped);
  EXPECT_TRUE(is(source.token().error(), RuntimeError::timed_out));
}

TEST(CancelSource, runs_hooks_in_order_and_none_that_left) {
  // A hook that is detached refers to a frame that is gone.
  ManualEnv world;
  CancelSource source(world.executor);
  std::vector<int> ran;
  const CancelCallback first(source.token(), [&] { ran.push_back(1); });
  {
    const CancelCallback left(source.token(), [&] { ran.push_back(2); });
  }
  const CancelCallback last(source.token(), [&] { ran.push_back(3); });
  source.cancel();
  EXPECT_THAT(ran, ElementsAre(1, 3));
  const CancelCallback late(source.token(), [&] { ran.push_back(4); });
  EXPECT_THAT(ran, ElementsAre(1, 3, 4));
}

TEST(CancelSource, a_hook_may_detach_another) {
  // The first waiter that is cancelled may end the wait of the second.
  ManualEnv world;
  CancelSource source(world.executor);
  bool second_ran = false;
  struct Second final : CancelHook {
    bool& ran;
    explicit Second(bool& flag) : ran(flag) {}
    void on_cancel() override { ran = true; }
  } second(second_ran);
  const CancelCallback first(source.token(), [&] { second.unlink(); });
  source.token().attach(second);
  source.cancel();
  EXPECT_FALSE(second_ran);
}

TEST(CancelSource, children_follow_their_parent_and_not_the_other_way) {
  // One request's timeout must not stop its service; the service's stop must reach every request.
  ManualEnv world;
  CancelSource parent(world.executor);
  CancelSource child(world.executor, parent.token());
  CancelSource sibling(world.executor, parent.token());
  CancelSource grandchild(world.executor, child.token());
  child.cancel(RuntimeError::timed_out);
  EXPECT_TRUE(grandchild.cancelled());
  EXPECT_FALSE(parent.cancelled());
  EXPECT_FALSE(sibling.cancelled());
  parent.cancel(RuntimeError::stopped);
  EXPECT_TRUE(is(sibling.token().error(), RuntimeError::stopped));
  EXPECT_TRUE(is(child.token().error(), RuntimeError::timed_out));
  const CancelSource late(world.executor, parent.token());
  EXPECT_TRUE(late.cancelled());
}

TEST(CancelSourceDeathTest, refuses_to_die_while_it_is_waited_with) {
  // The waiter's token would dangle.
  ManualEnv world;
  EXPECT_DEATH(
      {
        auto source = std::make_unique<CancelSource>(world.executor);
        const CancelCallback callback(source->token(), [] {});
        source.reset();
      },
      "a cancel source outlives the waits");
}

}  // namespace
}  // namespace sarsen
