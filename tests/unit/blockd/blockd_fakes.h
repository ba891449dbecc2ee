// A node for tests of blockd: a real keeper and shard, a mon and image sessions in memory.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "dataplane/blockd/images.h"
#include "dataplane/client/error.h"
#include "dataplane/keeper/server.h"
#include "dataplane/runtime/uring/shard_runner.h"
#include "tests/support/memory_target.h"

namespace sarsen::blockd {

inline constexpr HolderId kThisNode{0x1234};
inline constexpr HolderId kOtherNode{0x5678};

// One pool "rbd". Called on threads of the pool.
class FakeMon final : public MonApi {
 public:
  FakeMon() {
    map_.epoch = MapEpoch(1);
    map_.pools[PoolId(1)] = {.id = PoolId(1), .name = "rbd"};
  }
  ClusterMap map() {
    const std::lock_guard lock(mutex_);
    return map_;
  }
  // What everybody else can do to the map.
  void change(const std::function<void(ClusterMap&)>& apply) {
    const std::lock_guard lock(mutex_);
    apply(map_);
    map_.epoch = map_.epoch.next();
  }
  void set_away(bool away) {
    const std::lock_guard lock(mutex_);
    away_ = away;
  }
  std::size_t attachments(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const ImageEntry* image = map_.find_image(PoolId(1), name);
    return image == nullptr ? 0 : image->attachments.size();
  }

  Result<ImageEntry> create_image(ImageName name, std::uint64_t size_bytes) override {
    const std::lock_guard lock(mutex_);
    const ImageId id(map_.images.size() + 1);
    map_.images[id] = {.id = id, .name = name.name, .pool = PoolId(1), .size_bytes = size_bytes};
    return map_.images[id];
  }
  Result<ImageEntry> get_image(ImageName name) override {
    const std::lock_guard lock(mutex_);
    if (away_) return fail(make_error(MonError::unreachable));
    const ImageEntry* image = map_.find_image(PoolId(1), name.name);
    if (image == nullptr) return fail(make_error(MonError::not_found, name.name));
    return *image;
  }
  Result<Attached> attach_image(AttachRequest request) override {
    const std::lock_guard lock(mutex_);
    if (away_) return fail(make_error(MonError::unreachable));
    ImageEntry& image = map_.images.at(request.image);
    for (const AttachmentEntry& each : image.attachments) {
      if (each.holder != request.holder) return fail(make_error(MonError::in_use));
    }
    image.last_attach_epoch = image.last_attach_epoch.next();
    image.attachments = {{request.holder, image.last_attach_epoch, request.mode}};
    map_.epoch = map_.epoch.next();
    // Nobody waits for a map: tests set it when they want it seen.
    return Attached{image, image.attachments[0], MapEpoch(0)};
  }
  Result<MapEpoch> detach_image(DetachRequest request) override {
    const std::lock_guard lock(mutex_);
    if (away_) return fail(make_error(MonError::unreachable));
    std::erase_if(map_.images.at(request.image).attachments, [&](const AttachmentEntry& each) {
      return each.holder == request.holder && each.epoch == request.epoch;
    });
    map_.epoch = map_.epoch.next();
    return map_.epoch;
  }
  // Not what blockd asks.
  Result<std::vector<ImageEntry>> list_images(std::string) override { return unused(); }
  Result<ImageEntry> resize_image(ImageName, std::uint64_t, bool) override { return unused(); }
  Result<ImageEntry> remove_image(ImageName) override { return unused(); }
  Result<OsdCreated> create_osd(Uuid, std::string) override { return unused(); }
  Result<void> forget_osd(OsdId, Uuid) override { return unused(); }
  Result<OsdBooted> boot_osd(OsdBoot) override { return unused(); }
  Result<MapEpoch> report_osd(OsdReport) override { return unused(); }
  Result<ClusterStatus> status() override { return unused(); }

 private:
  static Unexpected unused() { return fail(make_error(MonError::bad_request, "not in this test")); }
  std::mutex mutex_;
  bool away_ = false;
  ClusterMap map_;
};

// Data of an image, which outlives its sessions.
struct FakeImage {
  FakeImage(Executor& executor, std::uint64_t size) : data(executor, size) {}
  test::MemoryTarget data;
};

class FakeSession final : public ImageSession {
 public:
  explicit FakeSession(FakeImage& image) : image_(image) { image_.data.fail_with(std::nullopt); }
  Task<void> stop() override {
    image_.data.fail_with(make_error(ClientError::stopped));
    image_.data.release();
    co_return;
  }
  bool fenced() const override { return false; }
  ImageSessionStats stats() const override { return {}; }
  std::uint64_t size_bytes() const override { return image_.data.size_bytes(); }
  bool read_only() const override { return false; }
  Task<Result<void>> read(std::uint64_t offset, std::span<std::byte> into) override {
    return image_.data.read(offset, into);
  }
  Task<Result<void>> write(std::uint64_t offset, std::span<const std::byte> from) override {
    return image_.data.write(offset, from);
  }
  Task<Result<void>> trim(std::uint64_t offset, std::uint64_t length) override {
    return image_.data.trim(offset, length);
  }
  Task<Result<void>> write_zeroes(std::uint64_t offset, std::uint64_t length, bool keep) override {
    return image_.data.write_zeroes(offset, length, keep);
  }
  Task<Result<void>> flush() override { return image_.data.flush(); }
  Task<Result<std::vector<BlockStatus>>> status(std::uint64_t offset, std::uint64_t length,
                                                std::uint32_t runs) override {
    return image_.data.status(offset, length, runs);
  }

 private:
  FakeImage& image_;
};

class FakeSessions final : public Sessions {
 public:
  explicit FakeSessions(Executor& executor) : executor_(executor) {}
  Task<Result<std::unique_ptr<ImageSession>>> open(ImageSessionOptions options) override {
    opened.push_back(options);
    if (refuse) co_return fail(*refuse);
    co_return std::make_unique<FakeSession>(image(options.image));
  }
  FakeImage& image(ImageId id) {
    auto& image = images_[id];
    if (!image) image = std::make_unique<FakeImage>(executor_, kMiB);
    return *image;
  }
  std::vector<ImageSessionOptions> opened;
  std::optional<Error> refuse;

 private:
  Executor& executor_;
  std::map<ImageId, std::unique_ptr<FakeImage>> images_;
};

// What a test's coroutine has at hand; blockd can be ended and started again in it.
struct Node {
  ShardContext context;
  FakeMon& mon;
  fuse::KeeperLink& keeper;
  FakeSessions& sessions;
  FixedMap& map;
  BufferShares& shares;
  fuse::LoopHelper helper{"/bin/true"};  // it has nothing to sweep

  bool map_confirmed = true;

  ImagesContext images_context() {
    return {context.env,
            context.reactor,
            map,
            keeper,
            helper,
            mon,
            sessions,
            shares,
            Logger(),
            kThisNode,
            "/run/nbd.sock",
            "test:",
            [this] { return map_confirmed; }};
  }
};

class BlockdTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/blockd_test.XXXXXX";
    folder_ = ::mkdtemp(name);
    ASSERT_EQ(keeper_server_.listen(folder_ + "/keeper.sock"), "");
    keeper_thread_ = std::thread([this] { keeper_server_.run(); });
  }
  void TearDown() override {
    keeper_server_.stop();
    keeper_thread_.join();
    std::filesystem::remove_all(folder_);
  }
  // A new process of blockd: its descriptors are gone, keeper and mon are as they were.
  void run(Task<void> (*body)(Node*)) {
    auto keeper = fuse::KeeperLink::start(folder_ + "/keeper.sock");
    ASSERT_TRUE(keeper) << keeper.error().message();
    ShardRunnerOptions options;
    options.blocking_threads = 4;
    auto runner = ShardRunner::start(options, [&](ShardContext context) {
      return on_shard(context, this, keeper->get(), body);
    });
    ASSERT_TRUE(runner) << runner.error().message();
    (*runner)->join();
  }
  static Task<void> on_shard(ShardContext context, BlockdTest* test, fuse::KeeperLink* keeper,
                             Task<void> (*body)(Node*)) {
    FakeSessions sessions(context.env.executor);
    FixedMap map(context.env.executor);
    BufferShares shares(context.env.buffers, 32 * kMiB);
    Node node{context, test->mon_, *keeper, sessions, map, shares};
    co_await body(&node);
  }

  FakeMon mon_;
  std::string folder_;
  keeper::Server keeper_server_;
  std::thread keeper_thread_;
};

// Until `holds`, looking again after each short pause; gives up after some seconds.
template <typename Predicate>
Task<bool> eventually(Node* node, Predicate holds) {
  for (int i = 0; i < 2000; ++i) {
    if (holds()) co_return true;
    co_await node->context.env.clock.sleep(milliseconds(5));
  }
  co_return false;
}

}  // namespace sarsen::blockd
