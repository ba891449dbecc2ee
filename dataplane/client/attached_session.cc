#include "dataplane/client/attached_session.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "dataplane/runtime/error.h"
#include "dataplane/runtime/when_all.h"

namespace sarsen {
namespace {

// Parts of one operation side by side: a trim of a whole image has hundreds of thousands.
constexpr std::size_t kPartsMax = 32;
// Objects that one status call looks at; it may end early.
constexpr std::size_t kStatusObjectsMax = 64;

void append_run(std::vector<BlockStatus>& runs, const wire::Run& run) {
  if (!runs.empty() && runs.back().allocated == run.present) {
    runs.back().length_bytes += run.length;
  } else {
    runs.push_back({.length_bytes = run.length, .allocated = run.present});
  }
}

}  // namespace

std::vector<ObjectPart> split_by_object(std::uint64_t offset, std::uint64_t length) {
  std::vector<ObjectPart> parts;
  parts.reserve(length / kObjectBytes + 2);
  while (length > 0) {
    const std::uint64_t within = offset % kObjectBytes;
    const std::uint64_t count = std::min<std::uint64_t>(length, kObjectBytes - within);
    parts.push_back({.object = wire::ObjectNumber(offset / kObjectBytes),
                     .range = {.offset = static_cast<std::uint32_t>(within),
                               .length = static_cast<std::uint32_t>(count)}});
    offset += count;
    length -= count;
  }
  return parts;
}

AttachedSession::AttachedSession(const Env& env, MapSource& map, ImageSessionOptions options)
    : env_(env),
      options_(options),
      caller_(env, map, options),
      locks_(env.executor),
      in_flight_bytes_(env.executor,
                       std::max<std::uint64_t>(options.in_flight_bytes_max, kObjectBytes),
                       std::numeric_limits<std::size_t>::max()),
      operations_(env.executor) {
  caller_.start();
}

Task<void> AttachedSession::stop() {
  // First those that call, then what they wait for.
  co_await caller_.stop();
  co_await operations_.close();
}

ImageSessionStats AttachedSession::stats() const {
  ImageSessionStats stats = stats_;
  stats.resent = caller_.resent();
  stats.reconnected = caller_.reconnected();
  stats.waiting = caller_.waiting();
  return stats;
}

// ------------------------------------------------------------------------------------- operations

Task<Result<void>> AttachedSession::read(std::uint64_t offset, std::span<std::byte> into) {
  const auto send = [this, offset, into](ObjectPart part, CallerPatience patience) {
    return caller_.read(part, into.subspan(part.offset() - offset, part.range.length), patience);
  };
  auto done = co_await run(offset, into.size(), false, send);
  if (done) {
    ++stats_.reads;
    stats_.bytes_read += into.size();
  }
  co_return done;
}

Task<Result<void>> AttachedSession::write(std::uint64_t offset, std::span<const std::byte> from) {
  const auto send = [this, offset, from](ObjectPart part, CallerPatience patience) {
    return caller_.write(part, from.subspan(part.offset() - offset, part.range.length), patience);
  };
  auto done = co_await run(offset, from.size(), true, send);
  if (done) {
    ++stats_.writes;
    stats_.bytes_written += from.size();
  }
  co_return done;
}

Task<Result<void>> AttachedSession::trim(std::uint64_t offset, std::uint64_t length) {
  const auto send = [this](ObjectPart part, CallerPatience patience) {
    return caller_.trim(part, patience);
  };
  co_return co_await run(offset, length, true, send);
}

Task<Result<void>> AttachedSession::write_zeroes(std::uint64_t offset, std::uint64_t length,
                                                 bool keep_allocated) {
  const auto send = [this, keep_allocated](ObjectPart part, CallerPatience patience) {
    return caller_.write_zeroes(part, keep_allocated, patience);
  };
  co_return co_await run(offset, length, true, send);
}

Task<Result<void>> AttachedSession::flush() {
  co_return check(0, 0, false);
}

Result<void> AttachedSession::check(std::uint64_t offset, std::uint64_t length, bool change) const {
  if (caller_.fenced()) return fail(caller_.end_error({}));
  if (operations_.closing()) return fail(make_error(ClientError::stopped));
  if (change && read_only()) return fail(make_error(ClientError::read_only));
  const std::uint64_t size = size_bytes();
  if (offset > size || length > size - offset) {
    return fail(make_error(ClientError::out_of_range,
                           std::to_string(length) + " bytes at " + std::to_string(offset) +
                               " of an image of " + std::to_string(size)));
  }
  return {};
}

Deadline AttachedSession::operation_deadline() const {
  return options_.operation_max > Duration(0) ? Deadline::after(env_.clock, options_.operation_max)
                                              : Deadline();
}

Task<Result<void>> AttachedSession::run(std::uint64_t offset, std::uint64_t length, bool change,
                                        SendPart send) {
  SARSEN_CO_TRY(check(offset, length, change));
  const auto hold = operations_.hold();
  if (!hold) co_return fail(make_error(ClientError::stopped));
  const Deadline deadline = operation_deadline();
  CancelSource source(env_.executor, caller_.ended());
  Timer timer(env_.clock, [&source] { source.cancel(RuntimeError::timed_out); });
  timer.arm(deadline.time());
  const CallerPatience patience{.token = source.token(), .deadline = deadline};

  const std::vector<ObjectPart> parts = split_by_object(offset, length);
  if (parts.size() == 1) co_return co_await run_part(parts.front(), change, &send, patience);
  std::size_t next = 0;
  std::vector<Task<Result<void>>> workers;
  for (std::size_t i = 0; i < std::min(kPartsMax, parts.size()); ++i) {
    workers.push_back(run_parts(&parts, &next, change, &send, patience));
  }
  co_return first_error(co_await when_all(env_.executor, std::move(workers)));
}

// One of several workers that share the parts of an operation.
Task<Result<void>> AttachedSession::run_parts(const std::vector<ObjectPart>* parts,
                                              std::size_t* next, bool change, const SendPart* send,
                                              CallerPatience patience) {
  while (*next < parts->size()) {
    const ObjectPart part = (*parts)[(*next)++];
    SARSEN_CO_TRY(co_await run_part(part, change, send, patience));
  }
  co_return Result<void>();
}

Task<Result<void>> AttachedSession::run_part(ObjectPart part, bool change, const SendPart* send,
                                             CallerPatience patience) {
  // Whoever holds a lock has its bytes already: those who wait for a lock keep nobody from ending.
  auto bytes = co_await in_flight_bytes_.acquire(part.range.length, patience.token);
  if (!bytes) co_return fail(caller_.end_error(patience.token));
  const BlockIndex first(part.range.offset / kBlockBytes);
  const BlockIndex last((part.range.offset + part.range.length - 1) / kBlockBytes + 1);
  RangeLock lock(locks_, part.object, first, last, change ? LockMode::exclusive : LockMode::shared);
  if (!co_await lock.acquire(patience.token)) co_return fail(caller_.end_error(patience.token));
  co_return co_await (*send)(part, patience);
}

// ----------------------------------------------------------------------------------------- status

Task<Result<std::vector<BlockStatus>>> AttachedSession::status(std::uint64_t offset,
                                                               std::uint64_t length,
                                                               std::uint32_t runs_max) {
  SARSEN_CO_TRY(check(offset, length, false));
  const auto hold = operations_.hold();
  if (!hold) co_return fail(make_error(ClientError::stopped));
  const Deadline deadline = operation_deadline();
  CancelSource source(env_.executor, caller_.ended());
  Timer timer(env_.clock, [&source] { source.cancel(RuntimeError::timed_out); });
  timer.arm(deadline.time());
  co_return co_await status_until(offset, length, runs_max,
                                  {.token = source.token(), .deadline = deadline});
}

Task<Result<std::vector<BlockStatus>>> AttachedSession::status_until(std::uint64_t offset,
                                                                     std::uint64_t length,
                                                                     std::uint32_t runs_max,
                                                                     CallerPatience patience) {
  std::vector<BlockStatus> merged;
  if (runs_max == 0) co_return merged;
  const std::uint64_t most = kStatusObjectsMax * std::uint64_t{kObjectBytes};
  const auto parts = split_by_object(offset, std::min(length, most));
  const std::uint32_t runs_of_part = std::min(runs_max, wire::kRunsMax);
  std::vector<Task<Result<std::vector<wire::Run>>>> questions;
  for (const ObjectPart& part : parts) {
    questions.push_back(part_status(part, runs_of_part, patience));
  }
  const auto answers = co_await when_all(env_.executor, std::move(questions));
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (!answers[i]) co_return fail(answers[i].error());
    std::uint64_t covered = 0;
    for (const wire::Run& run : *answers[i]) {
      append_run(merged, run);
      covered += run.length;
      if (merged.size() > runs_max) {
        merged.pop_back();
        co_return merged;
      }
    }
    if (covered < parts[i].range.length) co_return merged;  // what follows is not known
  }
  co_return merged;
}

Task<Result<std::vector<wire::Run>>> AttachedSession::part_status(ObjectPart part,
                                                                  std::uint32_t runs_max,
                                                                  CallerPatience patience) {
  co_return co_await caller_.status(part, runs_max, patience);
}

}  // namespace sarsen
