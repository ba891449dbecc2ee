#include "tests/support/memory_service.h"

#include <algorithm>
#include <cstring>

#include "dataplane/wire/codec.h"

namespace sarsen::test {

using namespace wire;

struct MemoryService::Turn {
  MemoryService& service;
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> waiter) {
    if (service.held_) {
      service.waiters_.push_back(waiter);
    } else {
      service.env_.executor.schedule(waiter);
    }
  }
  void await_resume() const {}
};

void MemoryService::release() {
  held_ = false;
  for (const auto waiter : std::exchange(waiters_, {})) env_.executor.schedule(waiter);
}

MemoryService::Object& MemoryService::object(const ObjectAddress& address) {
  Object& object = objects_[{address.image.value, address.object.value}];
  object.bytes.resize(kObjectBytes);
  object.allocated.resize(kBlocksPerObject);
  return object;
}

Result<Changed> MemoryService::changed() {
  if (failure_) return fail(*failure_);
  sequence_ = sequence_.next();
  return Changed{PgEpoch(1), sequence_};
}

void MemoryService::zero(const ObjectAddress& address, Range range, bool keep_allocated) {
  Object& target = object(address);
  std::memset(target.bytes.data() + range.offset, 0, range.length);
  const std::uint32_t end = range.offset + range.length;
  for (std::uint32_t block = range.offset / kBlockBytes; block * kBlockBytes < end; ++block) {
    const bool whole = block * kBlockBytes >= range.offset && (block + 1) * kBlockBytes <= end;
    if (keep_allocated) {
      target.allocated[block] = true;
    } else if (whole) {
      target.allocated[block] = false;
    }
  }
}

std::vector<Run> MemoryService::runs(const ObjectAddress& address, Range range) {
  const Object& source = object(address);
  std::vector<Run> runs;
  std::uint32_t at = range.offset;
  const std::uint32_t end = range.offset + range.length;
  while (at < end) {
    const bool present = source.allocated[at / kBlockBytes];
    const std::uint32_t step = std::min(end - at, kBlockBytes - at % kBlockBytes);
    if (runs.empty() || runs.back().present != present) runs.push_back({0, present});
    runs.back().length += step;
    at += step;
  }
  return runs;
}

Task<Result<PgHelloReply>> MemoryService::handle(CallContext context, PgHello) {
  last_context_ = context;
  co_await Turn{*this};
  if (failure_) co_return fail(*failure_);
  co_return PgHelloReply{PgEpoch(1), OperationId(0)};
}

Task<Result<ReadResult>> MemoryService::handle(CallContext context, ReadRequest request) {
  last_context_ = context;
  co_await Turn{*this};
  if (failure_) co_return fail(*failure_);
  ReadResult result;
  result.reply.runs = runs(request.object, request.range);
  auto buffer = env_.buffers.allocate(request.range.length);
  if (!buffer) co_return fail(buffer.error());
  result.data = std::move(*buffer);
  const Object& source = object(request.object);
  std::uint32_t at = request.range.offset;
  std::size_t filled = 0;
  for (const Run& run : result.reply.runs) {
    if (run.present) {
      const auto from = std::span(source.bytes).subspan(at, run.length);
      std::memcpy(result.data.data() + filled, from.data(), from.size());
      append_checksums({at, run.length}, from, result.reply.checksums);
      filled += run.length;
    }
    at += run.length;
  }
  co_return result;
}

Task<Result<Changed>> MemoryService::handle(CallContext context, WriteRequest request,
                                            Buffer data) {
  last_context_ = context;
  co_await Turn{*this};
  if (!failure_) {
    Object& target = object(request.object);
    const Range range = request.range;
    std::memcpy(target.bytes.data() + range.offset, data.data(), range.length);
    const std::uint32_t last = (range.offset + range.length - 1) / kBlockBytes;
    for (std::uint32_t block = range.offset / kBlockBytes; block <= last; ++block) {
      target.allocated[block] = true;
    }
  }
  co_return changed();
}

Task<Result<Changed>> MemoryService::handle(CallContext context, TrimRequest request) {
  last_context_ = context;
  co_await Turn{*this};
  if (!failure_) zero(request.object, request.range, false);
  co_return changed();
}

Task<Result<Changed>> MemoryService::handle(CallContext context, WriteZeroesRequest request) {
  last_context_ = context;
  co_await Turn{*this};
  if (!failure_) zero(request.object, request.range, request.keep_allocated);
  co_return changed();
}

Task<Result<Changed>> MemoryService::handle(CallContext context, RemoveRequest request) {
  last_context_ = context;
  co_await Turn{*this};
  if (!failure_) objects_.erase({request.object.image.value, request.object.object.value});
  co_return changed();
}

Task<Result<Changed>> MemoryService::handle(CallContext context, BarrierRequest) {
  last_context_ = context;
  co_await Turn{*this};
  co_return changed();
}

Task<Result<StatusReply>> MemoryService::handle(CallContext context, StatusRequest request) {
  last_context_ = context;
  co_await Turn{*this};
  if (failure_) co_return fail(*failure_);
  StatusReply reply{runs(request.object, request.range)};
  if (reply.runs.size() > request.runs_max) reply.runs.resize(request.runs_max);
  co_return reply;
}

}  // namespace sarsen::test
