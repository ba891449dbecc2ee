#include "tests/crash/world.h"

#include <utility>

#include "dataplane/base/crc32c.h"
#include "dataplane/runtime/when_all.h"
#include "tests/model/payload.h"
#include "tests/model/placed_bytes.h"
#include "tests/sim/run_task.h"

namespace sarsen::crash {
namespace {

constexpr std::uint64_t kImage = 1;

ObjectKey object_of(std::uint32_t tracked) {
  return {.pool = PoolId(1),
          .family = kImage,
          .branch = 1,
          .object_number = tracked / kTrackedPerObject + 1};
}
std::uint32_t block_of(std::uint32_t tracked) {
  return tracked % kTrackedPerObject;
}
// The block of the image that a payload names.
BlockIndex image_block(std::uint32_t tracked) {
  return BlockIndex(object_of(tracked).object_number * kBlocksPerObject + block_of(tracked));
}

enum class ChangeKind : std::uint8_t { write, zero, remove };
struct Step {
  ChangeKind kind;
  std::uint32_t first;
  std::uint32_t count;
};

Task<Result<void>> write_task(Store* store, std::uint32_t first, std::uint32_t count,
                              BlockValue value) {
  // Odd writes from where the device cannot read by itself.
  const model::PlacedBytes memory(std::size_t{count} * kBlockBytes, value % 2 == 0);
  const auto data = memory.span();
  model::fill_blocks(data, kImage, image_block(first), model::WriteId(value));
  std::vector<std::uint32_t> checksums;
  for (std::size_t at = 0; at < data.size(); at += kBlockBytes) {
    checksums.push_back(crc32c(data.subspan(at, kBlockBytes)));
  }
  co_return co_await store->write({.object = object_of(first),
                                   .first_block = block_of(first),
                                   .data = data,
                                   .checksums = checksums,
                                   .stamp = {}});
}

Task<Result<void>> change_task(Store* store, Step step, BlockValue value) {
  switch (step.kind) {
    case ChangeKind::write: co_return co_await write_task(store, step.first, step.count, value);
    case ChangeKind::zero: {
      const BlockRange range{.first_block = block_of(step.first), .block_count = step.count};
      co_return co_await store->zero(object_of(step.first), range, {});
    }
    case ChangeKind::remove: co_return co_await store->remove(object_of(step.first), {});
  }
  co_return Result<void>{};
}

std::vector<Step> steps_of(Letter letter) {
  using enum ChangeKind;
  switch (letter) {
    case Letter::small: return {{write, 15, 1}};
    case Letter::cross: return {{write, 15, 3}};
    case Letter::large: return {{write, 8, 16}};
    case Letter::zero: return {{zero, 14, 5}};
    case Letter::remove: return {{remove, 0, kTrackedPerObject}};
    case Letter::other: return {{write, kTrackedPerObject + 3, 1}};
    case Letter::burst:
      return {{write, 15, 1}, {write, 8, 16}, {write, 16, 2}, {zero, 17, 2}, {write, 17, 1}};
    case Letter::resize:
      return {{zero, 12, kTrackedPerObject - 12},
              {remove, kTrackedPerObject, kTrackedPerObject},
              {write, 20, 2},
              {write, kTrackedPerObject + 1, 1}};
    default: return {};
  }
}

// Of nobody's interest, beyond the tracked blocks: what fills a device.
ObjectKey filler_object() {
  return {.pool = PoolId(1), .family = kImage, .branch = 1, .object_number = kObjects + 1};
}

Task<Result<void>> fill_task(Store* store, std::uint32_t first, std::uint32_t count) {
  const model::PlacedBytes memory(std::size_t{count} * kBlockBytes, /*aligned=*/true);
  const std::vector<std::uint32_t> checksums(count, crc32c(memory.span().first(kBlockBytes)));
  co_return co_await store->write({.object = filler_object(),
                                   .first_block = first,
                                   .data = memory.span(),
                                   .checksums = checksums,
                                   .stamp = {}});
}

// What runs on the node. The store dies with it, before the executor that it waits on.
class StoreHolder final : public sim::Program {
 public:
  explicit StoreHolder(std::unique_ptr<Store>& store) : store_(store) {}
  ~StoreHolder() override { store_.reset(); }

 private:
  std::unique_ptr<Store>& store_;
};

// Said before anything was done.
bool is_refusal(const Result<void>& done) {
  return !done &&
         (is(done.error(), StoreError::no_space) || is(done.error(), RuntimeError::out_of_memory));
}

}  // namespace

FormatSizes tiny_sizes() {
  return {.journal_bytes = 8 * 64 * kKiB,
          .segment_bytes = 64 * kKiB,
          .chunk_bytes = 64 * kKiB,
          .table_region_bytes = 256 * kKiB,
          .lane_count = 2};
}

World::World(std::uint64_t seed, const std::string& planted, sim::SparseImage image)
    : simulator_({.seed = seed, .planted = planted}),
      disk_(simulator_.add_disk({.size_bytes = image.size_bytes()})),
      node_(simulator_.add_node({.disks = {&disk_}})) {
  disk_.set_image(std::move(image));
  node_.set_factory([this](sim::SimNode&) { return std::make_unique<StoreHolder>(store_); });
  node_.start();
}

template <typename T>
T World::run(Task<T> task) {
  auto value = sim::run_task(node_, std::move(task));
  SARSEN_ASSERT(value.has_value(), "the node did not crash");
  return *std::move(value);
}

Result<void> World::format() {
  auto formatted =
      run(Store::format(node_.env(), node_.disk(), node_.blocking_disk(), {.sizes = tiny_sizes()}));
  if (!formatted) return fail(formatted.error());
  return {};
}

Result<void> World::open() {
  auto opened = run(Store::open(node_.env(), node_.disk(), node_.blocking_disk(), {}));
  if (!opened) return fail(opened.error());
  store_ = *std::move(opened);
  return {};
}

void World::stop() {
  SARSEN_ASSERT(sim::run_task(node_, store_->stop()), "the node did not crash");
  store_.reset();
}

void World::cut(sim::CrashKind kind) {
  if (node_.up()) node_.crash(kind);
  SARSEN_ASSERT(store_ == nullptr, "a store dies with its node");
}

Contents World::contents() {
  Contents contents{};
  const model::PlacedBytes memory(std::size_t{kTrackedPerObject} * kBlockBytes, /*aligned=*/true);
  const auto into = memory.span();
  for (std::uint32_t object = 0; object < kObjects; ++object) {
    const std::uint32_t first = object * kTrackedPerObject;
    const auto outcome = run(store_->read_partial(object_of(first), 0, into));
    for (std::uint32_t i = 0; i < kTrackedPerObject; ++i) {
      const auto bytes = into.subspan(std::size_t{i} * kBlockBytes).first<kBlockBytes>();
      const auto name = model::read_block(bytes);
      const bool placed =
          name && (name->write.value == 0 ||
                   (name->image == kImage && name->block == image_block(first + i)));
      contents[first + i] = !outcome ? kCorrupt : placed ? name->write.value : kPhantom;
    }
    if (!outcome) continue;
    for (const auto block : outcome->corrupt_blocks) contents[first + block] = kCorrupt;
  }
  return contents;
}

Result<void> World::audit() {
  auto account = run(store_->audit());
  if (!account) return fail(account.error());
  return {};
}

Result<void> World::checkpoint() {
  return run(store_->checkpoint());
}

Result<void> World::scrub() {
  auto report = run(store_->scrub());
  if (!report) return fail(report.error());
  if (report->corrupt_found != 0) {
    return fail(make_error(StoreError::corrupt_block,
                           std::to_string(report->corrupt_found) + " found by scrub"));
  }
  return {};
}

Result<void> World::write(std::uint32_t tracked, std::uint32_t count, BlockValue value) {
  return run(write_task(store_.get(), tracked, count, value));
}

struct World::Recorder {
  sim::DiskLog* log;
  History* history;

  std::uint64_t point(std::string text) const {
    if (log == nullptr) return 0;
    log->mark(std::move(text));
    return log->points();
  }
  static Task<Result<void>> record(Recorder self, Store* store, Step step, BlockValue value) {
    const BlockValue becomes = step.kind == ChangeKind::write ? value : 0;
    const std::size_t change =
        self.history->begun(step.first, step.count, becomes, self.point("begins"));
    auto done = co_await change_task(store, step, value);
    if (done) self.history->acknowledged(change, self.point("acknowledged"));
    if (!is_refusal(done)) co_return done;
    self.history->refused(change);
    co_return Result<void>{};
  }
  // All at once, in their order.
  static Task<Result<void>> record_all(Recorder self, Executor* executor, Store* store,
                                       std::vector<Step> steps, BlockValue first_value) {
    std::vector<Task<Result<void>>> tasks;
    for (const Step& step : steps) tasks.push_back(record(self, store, step, first_value++));
    co_return first_error(co_await when_all(*executor, std::move(tasks)));
  }
};

Result<void> World::perform_format(Recorder recorder) {
  if (store_) stop();
  const std::uint64_t began = recorder.point("format begins");
  recorder.history->format_begun(began);
  const std::size_t change = recorder.history->begun(0, kTracked, 0, began);
  SARSEN_TRY(format());
  const std::uint64_t ended = recorder.point("format ended");
  recorder.history->acknowledged(change, ended);
  recorder.history->format_ended(ended);
  return open();
}

Result<void> World::perform(Letter letter, std::uint64_t first_value, sim::DiskLog* log,
                            History& history) {
  const Recorder recorder{log, &history};
  switch (letter) {
    case Letter::checkpoint: return checkpoint();
    case Letter::restart: stop(); return open();
    case Letter::idle: pass_time(seconds(2)); return {};
    case Letter::format: return perform_format(recorder);
    case Letter::full: {
      // Pieces of two sizes: extents at once, and records that must find homes.
      constexpr std::uint32_t kPiece = 16;
      Result<void> filled;
      for (std::uint32_t first = 0; filled && first + kPiece <= kBlocksPerObject; first += kPiece) {
        filled = run(fill_task(store_.get(), first, kPiece));
        if (filled) filled = run(fill_task(store_.get(), first + kPiece / 2, 1));
      }
      if (filled) return fail(make_error(StoreError::bad_request, "the device does not fill up"));
      if (!is_refusal(filled)) return filled;
      const std::vector<Step> steps = {{ChangeKind::write, 15, 3}, {ChangeKind::zero, 14, 2}};
      return run(
          Recorder::record_all(recorder, &node_.env().executor, store_.get(), steps, first_value));
    }
    case Letter::wrap: {
      // Each group is a header and its payload: this is more than the journal holds.
      constexpr std::uint32_t kRounds = 30;
      Result<void> worst;
      for (std::uint32_t i = 0; i < kRounds; ++i) {
        const Step step{ChangeKind::write, 12 + i % 5 * 4, 4};
        auto done = run(Recorder::record(recorder, store_.get(), step, first_value + i));
        if (!done && worst) worst = done;
      }
      return worst;
    }
    default: break;
  }
  return run(Recorder::record_all(recorder, &node_.env().executor, store_.get(), steps_of(letter),
                                  first_value));
}

}  // namespace sarsen::crash
