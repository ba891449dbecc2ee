// An RpcService over objects in memory, for tests of the wire and of image sessions.
#pragma once

#include <coroutine>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "dataplane/runtime/env.h"
#include "dataplane/wire/rpc_service.h"

namespace sarsen::test {

class MemoryService final : public wire::RpcService {
 public:
  explicit MemoryService(const Env& env) : env_(env) {}

  Task<Result<wire::PgHelloReply>> handle(wire::CallContext, wire::PgHello request) override;
  Task<Result<wire::ReadResult>> handle(wire::CallContext, wire::ReadRequest request) override;
  Task<Result<wire::Changed>> handle(wire::CallContext, wire::WriteRequest request,
                                     Buffer data) override;
  Task<Result<wire::Changed>> handle(wire::CallContext, wire::TrimRequest request) override;
  Task<Result<wire::Changed>> handle(wire::CallContext, wire::WriteZeroesRequest request) override;
  Task<Result<wire::Changed>> handle(wire::CallContext, wire::RemoveRequest request) override;
  Task<Result<wire::Changed>> handle(wire::CallContext, wire::BarrierRequest request) override;
  Task<Result<wire::StatusReply>> handle(wire::CallContext, wire::StatusRequest request) override;

  // Every operation answers this from now on (nothing: they succeed).
  void fail_with(std::optional<Error> error) { failure_ = std::move(error); }
  // Operations wait until release() once this is set.
  void hold() { held_ = true; }
  void release();
  std::size_t waiting() const { return waiters_.size(); }
  const wire::CallContext& last_context() const { return last_context_; }

 private:
  using Key = std::pair<std::uint64_t, std::uint64_t>;  // image, object
  struct Turn;
  struct Object {
    std::vector<std::byte> bytes;
    std::vector<bool> allocated;  // by block
  };
  Result<wire::Changed> changed();
  void zero(const wire::ObjectAddress& object, wire::Range range, bool keep_allocated);
  // The runs of one kind within a range.
  std::vector<wire::Run> runs(const wire::ObjectAddress& object, wire::Range range);
  Object& object(const wire::ObjectAddress& address);

  const Env& env_;
  bool held_ = false;
  std::optional<Error> failure_;
  std::vector<std::coroutine_handle<>> waiters_;
  std::map<Key, Object> objects_;
  PgSequence sequence_;
  wire::CallContext last_context_;
};

}  // namespace sarsen::test
