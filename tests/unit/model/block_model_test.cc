#include "tests/model/block_model.h"

#include <gtest/gtest.h>

#include "dataplane/base/rng.h"

namespace sarsen::model {
namespace {

std::vector<std::byte> bytes_of(BlockModel& model, std::uint64_t block, WriteId id,
                                std::uint64_t count = 1) {
  std::vector<std::byte> bytes(count * kBlockBytes);
  if (id.value != 0) fill_blocks(bytes, model.image(), BlockIndex(block), id);
  return bytes;
}

class BlockModelTest : public testing::Test {
 protected:
  BlockModel model{7, 8};

  WriteId write(std::uint64_t block, std::uint64_t count = 1) {
    const WriteId id = model.begin_write(BlockIndex(block), count);
    model.acknowledged(id);
    return id;
  }
  bool reads(std::uint64_t block, WriteId id) {
    const ReadId read = model.begin_read(BlockIndex(block), 1);
    return !model.end_read(read, bytes_of(model, block, id)).has_value();
  }
};

// The check that matters most: what was acknowledged is there.
TEST_F(BlockModelTest, an_acknowledged_write_replaces_what_was_there) {
  EXPECT_TRUE(reads(3, WriteId(0)));
  const WriteId first = write(3);
  EXPECT_FALSE(reads(3, WriteId(0)));
  EXPECT_TRUE(reads(3, first));
  const WriteId second = write(2, 3);
  EXPECT_TRUE(reads(3, second));
  EXPECT_FALSE(reads(3, first));
  EXPECT_TRUE(reads(5, WriteId(0)));
}

// A client that lost its connection does not know; the judge must not either, until it has seen.
TEST_F(BlockModelTest, an_unknown_write_is_old_or_new_until_a_read_settles_it) {
  const WriteId before = write(1);
  const WriteId unknown = model.begin_write(BlockIndex(1), 1);
  model.unknown(unknown);
  EXPECT_TRUE(reads(1, before));
  EXPECT_TRUE(reads(1, unknown));
  EXPECT_FALSE(reads(1, before));
}

// A record of a torn tail that comes back after later writes is a lost write.
TEST_F(BlockModelTest, an_unknown_write_does_not_come_back_after_recovery_and_a_new_write) {
  const WriteId unknown = model.begin_write(BlockIndex(1), 1);
  model.unknown(unknown);
  model.recovered();
  const WriteId after = write(1);
  EXPECT_TRUE(reads(1, after));
  EXPECT_FALSE(reads(1, unknown));
}

// ENOSPC is decided before a sequence is assigned: nothing of it may ever be seen.
TEST_F(BlockModelTest, a_refused_write_is_never_seen) {
  const WriteId refused = model.begin_write(BlockIndex(1), 1);
  model.refused(refused);
  EXPECT_FALSE(reads(1, refused));
  EXPECT_TRUE(reads(1, WriteId(0)));
}

TEST_F(BlockModelTest, trimmed_blocks_read_as_zeros_only) {
  const WriteId written = write(1);
  const WriteId trim = model.begin_zero(BlockIndex(0), 4);
  EXPECT_TRUE(reads(1, written));
  model.acknowledged(trim);
  EXPECT_TRUE(reads(1, WriteId(0)));
  EXPECT_FALSE(reads(1, written));
}

// Half of one write and half of another is neither.
TEST_F(BlockModelTest, torn_and_foreign_blocks_are_violations) {
  const WriteId id = write(1, 2);
  auto torn = bytes_of(model, 1, id);
  torn[4000] ^= std::byte{1};
  EXPECT_TRUE(model.end_read(model.begin_read(BlockIndex(1), 1), torn));
  const auto neighbour = bytes_of(model, 2, id);
  EXPECT_TRUE(model.end_read(model.begin_read(BlockIndex(1), 1), neighbour));
  BlockModel other(8, 8);
  EXPECT_TRUE(model.end_read(model.begin_read(BlockIndex(1), 1), bytes_of(other, 1, id)));
}

// A failure must tell a person what was wrong without a debugger.
TEST_F(BlockModelTest, says_what_a_block_may_be) {
  const WriteId id = write(1);
  const auto violation =
      model.end_read(model.begin_read(BlockIndex(1), 1), std::vector<std::byte>(kBlockBytes));
  ASSERT_TRUE(violation);
  EXPECT_EQ(*violation,
            "block 1 of image 7 read as zeros (overwritten, refused, or never written); may be: "
            "write " +
                std::to_string(id.value));
}

// ------------------------------------------------------------- against all orders, by brute force

struct Operation {
  bool is_read = false;
  bool optional = false;  // a write that may never take effect
  std::uint64_t value = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Whether the operations in `left` can follow, the register holding `value`.
bool some_order(const std::vector<Operation>& all, std::uint32_t left, std::uint64_t value) {
  bool only_optional = true;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if ((left >> i & 1) != 0 && !all[i].optional) only_optional = false;
  }
  if (only_optional) return true;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if ((left >> i & 1) == 0) continue;
    bool first = true;
    for (std::size_t j = 0; j < all.size(); ++j) {
      // An optional write that never happens holds up nobody.
      if ((left >> j & 1) != 0 && !all[j].optional && all[j].end < all[i].begin) first = false;
    }
    if (!first || (all[i].is_read && all[i].value != value)) continue;
    // Taking an optional write after its end is over is no order either.
    bool too_late = false;
    for (std::size_t j = 0; j < all.size(); ++j) {
      if (all[i].optional && (left >> j & 1) == 0 && all[j].begin > all[i].end) too_late = true;
    }
    if (too_late) continue;
    if (some_order(all, left & ~(1u << i), all[i].is_read ? value : all[i].value)) return true;
  }
  return false;
}

// A random history of overlapping operations on one block, judged by the model as it happens, and
// afterwards by trying every order.
struct History {
  std::vector<Operation> operations;
  bool accepted = true;
};

History random_history(Rng& rng) {
  History history;
  BlockModel model(1, 1);
  struct Open {
    std::size_t index;
    WriteId write;
    ReadId read;
  };
  std::vector<Open> open;
  std::vector<std::uint64_t> written{0};
  std::vector<std::size_t> unknown;
  std::uint64_t time = 0;
  for (int step = 0; step < 16; ++step) {
    ++time;
    const std::uint64_t choice = rng.below(20);
    if (choice < 9 && open.size() < 3 && history.operations.size() < 8) {
      Operation operation{.is_read = rng.chance(0.6), .begin = time};
      Open opened{history.operations.size(), {}, {}};
      if (operation.is_read) {
        opened.read = model.begin_read(BlockIndex(0), 1);
      } else {
        opened.write = model.begin_write(BlockIndex(0), 1);
        operation.value = opened.write.value;
        operation.optional = true;
        operation.end = 1000;
        written.push_back(operation.value);
      }
      history.operations.push_back(operation);
      open.push_back(opened);
    } else if (choice == 19 && open.empty()) {
      model.recovered();
      for (const std::size_t index : unknown) history.operations[index].end = time;
      unknown.clear();
    } else if (!open.empty()) {
      const std::size_t chosen = rng.below(open.size());
      const Open closing = open[chosen];
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(chosen));
      Operation& operation = history.operations[closing.index];
      if (!operation.is_read && rng.chance(0.3)) {
        model.unknown(closing.write);
        unknown.push_back(closing.index);
        continue;
      }
      operation.end = time;
      operation.optional = false;
      if (!operation.is_read) {
        model.acknowledged(closing.write);
        continue;
      }
      operation.value =
          written[written.size() - 1 - rng.below(std::min<std::size_t>(3, written.size()))];
      if (model.end_read(closing.read, bytes_of(model, 0, WriteId(operation.value)))) {
        history.accepted = false;
        break;
      }
    }
  }
  // A read that never ended proves nothing.
  std::erase_if(history.operations, [](const Operation& o) { return o.is_read && o.end == 0; });
  return history;
}

// A judge that is too kind hides lost writes; one that is too strict is ignored after a week.
TEST(BlockModelJudge, agrees_with_every_order_of_small_histories) {
  Rng rng(5);
  int accepted = 0;
  constexpr int kHistories = 100'000;
  for (int i = 0; i < kHistories; ++i) {
    const History history = random_history(rng);
    const auto all = static_cast<std::uint32_t>((1u << history.operations.size()) - 1);
    std::string text;
    for (const Operation& o : history.operations) {
      text += std::string(o.is_read ? "read " : "write ") + std::to_string(o.value) + " [" +
              std::to_string(o.begin) + ", " + std::to_string(o.end) + "]" +
              (o.optional ? "? " : " ");
    }
    ASSERT_EQ(history.accepted, some_order(history.operations, all, 0)) << i << ": " << text;
    accepted += history.accepted ? 1 : 0;
  }
  EXPECT_GT(accepted, kHistories / 10);
  EXPECT_LT(accepted, kHistories * 9 / 10);
}

}  // namespace
}  // namespace sarsen::model
