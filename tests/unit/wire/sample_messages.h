// Messages with random contents that keep their rules, for round trips and fuzz corpora.
#pragma once

#include <algorithm>

#include "dataplane/base/rng.h"
#include "dataplane/wire/codec.h"
#include "dataplane/wire/message.h"

namespace sarsen::wire {

class Samples {
 public:
  explicit Samples(std::uint64_t seed) : rng_(seed) {}

  Range range() {
    const auto offset = static_cast<std::uint32_t>(rng_.below(kObjectBytes));
    return {offset, static_cast<std::uint32_t>(rng_.between(1, kObjectBytes - offset))};
  }
  PgAddress pg() { return {PoolId(number32()), PgNumber(number32()), PgEpoch(rng_.next())}; }
  ObjectAddress object() { return {pg(), ImageId(rng_.next()), ObjectNumber(rng_.next())}; }
  Attachment attachment() {
    return {HolderId(rng_.next()), AttachEpoch(rng_.next()), SessionId(rng_.next())};
  }
  Generation generation() { return {BranchId(number32()), SnapshotGeneration(rng_.next())}; }
  Origin origin() {
    const std::uint64_t operation = rng_.next();
    return {attachment(), OperationId(operation), OperationId(rng_.below(operation | 1)),
            generation()};
  }
  Checksums checksums(std::size_t count) {
    Checksums sums(count);
    for (auto& sum : sums) sum = number32();
    return sums;
  }
  std::vector<Run> runs() {
    std::vector<Run> runs(rng_.between(1, 20));
    bool present = rng_.chance(0.5);
    for (Run& run : runs) {
      run = {static_cast<std::uint32_t>(rng_.between(1, kObjectBytes)), present};
      present = !present;
    }
    return runs;
  }

  template <typename Message>
  Message make() {
    Message message;
    if constexpr (requires { message.pg; }) message.pg = pg();
    if constexpr (requires { message.image; }) message.image = ImageId(rng_.next());
    if constexpr (requires { message.object; }) message.object = object();
    if constexpr (requires { message.range; }) message.range = range();
    if constexpr (requires { message.origin; }) message.origin = origin();
    if constexpr (requires { message.attachment; }) message.attachment = attachment();
    if constexpr (requires { message.generation; }) message.generation = generation();
    if constexpr (requires { message.runs; }) message.runs = runs();
    if constexpr (requires { message.epoch.value; }) message.epoch.value = rng_.next();
    fill(message);
    return message;
  }

 private:
  std::uint32_t number32() { return static_cast<std::uint32_t>(rng_.next()); }

  void fill(Hello& hello) {
    hello.version_max = static_cast<std::uint8_t>(rng_.between(1, 255));
    hello.version_min = static_cast<std::uint8_t>(rng_.between(1, hello.version_max));
    hello.role = Role(rng_.between(1, 4));
    hello.shard = ShardId(number32());
    hello.target_shard = ShardId(number32());
    hello.holder = HolderId(rng_.next());
    hello.session = SessionId(rng_.next());
    for (auto& byte : hello.cluster) byte = static_cast<std::uint8_t>(rng_.next());
    hello.features_offered = rng_.next();
    hello.features_required = rng_.next();
  }
  void fill(HelloReply& reply) {
    reply = {static_cast<std::uint8_t>(rng_.next()),
             OsdId(number32()),
             ShardId(number32()),
             number32(),
             rng_.next(),
             rng_.next(),
             number32(),
             rng_.next()};
  }
  void fill(PgHello& hello) { hello.first_unacknowledged = OperationId(rng_.next()); }
  void fill(PgHelloReply& reply) { reply.highest_operation = OperationId(rng_.next()); }
  void fill(Changed& changed) { changed.sequence = PgSequence(rng_.next()); }
  void fill(ReadReply& reply) { reply.checksums = checksums(rng_.below(40)); }
  void fill(WriteRequest& request) { request.checksums = checksums(checksum_count(request.range)); }
  void fill(WriteZeroesRequest& request) { request.keep_allocated = rng_.chance(0.5); }
  void fill(StatusRequest& request) {
    request.runs_max = static_cast<std::uint32_t>(rng_.between(1, kRunsMax));
  }
  void fill(ErrorReply& reply) {
    reply.code = static_cast<std::uint16_t>(rng_.next());
    reply.error_class = ErrorClass(rng_.below(5));
    reply.detail.assign(rng_.below(kDetailBytesMax + 1), 'x');
  }
  template <typename Message>
  void fill(Message&) {}

  Rng rng_;
};

// Calls visit.template operator()<Message>() for every message there is.
template <typename Visit>
void for_each_message(Visit visit) {
  visit.template operator()<Hello>();
  visit.template operator()<HelloReply>();
  visit.template operator()<PgHello>();
  visit.template operator()<PgHelloReply>();
  visit.template operator()<Changed>();
  visit.template operator()<ReadRequest>();
  visit.template operator()<ReadReply>();
  visit.template operator()<WriteRequest>();
  visit.template operator()<TrimRequest>();
  visit.template operator()<WriteZeroesRequest>();
  visit.template operator()<RemoveRequest>();
  visit.template operator()<BarrierRequest>();
  visit.template operator()<StatusRequest>();
  visit.template operator()<StatusReply>();
  visit.template operator()<ErrorReply>();
}

}  // namespace sarsen::wire
