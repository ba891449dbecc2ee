// The messages between image sessions and OSDs, as values (docs/wire_protocol.md has the meaning
// and the bytes; codec.h turns one into the other). A request names its type and its reply.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "dataplane/base/result.h"
#include "dataplane/base/units.h"

namespace sarsen::wire {

using PgNumber = Strong<struct PgNumberTag, std::uint32_t>;
using ObjectNumber = Strong<struct ObjectNumberTag>;  // in units of kObjectBytes of the image
using HolderId = Strong<struct HolderIdTag>;          // the node that an image is attached to
using AttachEpoch = Strong<struct AttachEpochTag>;
using SessionId = Strong<struct SessionIdTag>;
using OperationId = Strong<struct OperationIdTag>;  // unique within a session, also when resent
using BranchId = Strong<struct BranchIdTag, std::uint32_t>;
using SnapshotGeneration = Strong<struct SnapshotGenerationTag>;
using OsdId = Strong<struct OsdIdTag, std::uint32_t>;
using ClusterId = std::array<std::uint8_t, 16>;

// A StatusRequest asks for at most this many runs; a ReadReply cannot have more, for its inner
// boundaries are multiples of the block size.
inline constexpr std::uint32_t kRunsMax = kBlocksPerObject;
inline constexpr std::size_t kDetailBytesMax = 512;

enum class MessageType : std::uint16_t {
  hello = 1,
  pg_hello = 2,
  read = 16,
  write = 17,
  trim = 18,
  write_zeroes = 19,
  remove = 20,
  barrier = 21,
  status = 22,
};

// ----------------------------------------------------------------------------------------- parts

struct PgAddress {
  PoolId pool;
  PgNumber number;
  PgEpoch epoch;
  bool operator==(const PgAddress&) const = default;
};

struct ObjectAddress {
  PgAddress pg;
  ImageId image;
  ObjectNumber object;
  bool operator==(const ObjectAddress&) const = default;
};

// Bytes of one object: not empty, and within kObjectBytes.
struct Range {
  std::uint32_t offset = 0;
  std::uint32_t length = 0;
  bool operator==(const Range&) const = default;
};

struct Attachment {
  HolderId holder;
  AttachEpoch epoch;
  SessionId session;
  bool operator==(const Attachment&) const = default;
};

struct Generation {
  BranchId branch;
  SnapshotGeneration snapshot;
  bool operator==(const Generation&) const = default;
};

// Who changes something, which of its operations it is, and what it writes to.
struct Origin {
  Attachment attachment;
  OperationId operation;
  OperationId first_unacknowledged;  // not above `operation`
  Generation generation;
  bool operator==(const Origin&) const = default;
};

// One crc32c per block that the data touches.
using Checksums = std::vector<std::uint32_t>;

struct Run {
  std::uint32_t length = 0;
  bool present = false;  // data (read) or allocated (status)
  bool operator==(const Run&) const = default;
};

// -------------------------------------------------------------------------------------- messages

enum class Role : std::uint8_t { image_session = 1, osd = 2, mon = 3, tool = 4 };

inline constexpr ShardId kAnyShard{0xffffffff};

struct HelloReply {
  std::uint8_t version = 0;
  OsdId osd;
  ShardId shard;
  std::uint32_t shard_count = 0;
  std::uint64_t start_counter = 0;
  std::uint64_t features = 0;
  std::uint32_t operations_max = 0;
  std::uint64_t data_bytes_max = 0;
  bool operator==(const HelloReply&) const = default;
};

struct Hello {
  static constexpr MessageType kType = MessageType::hello;
  using Reply = HelloReply;
  std::uint8_t version_min = 0;
  std::uint8_t version_max = 0;
  Role role = Role::image_session;
  ShardId shard;
  ShardId target_shard = kAnyShard;
  HolderId holder;
  SessionId session;
  ClusterId cluster{};
  std::uint64_t features_offered = 0;
  std::uint64_t features_required = 0;
  bool operator==(const Hello&) const = default;
};

struct PgHelloReply {
  PgEpoch epoch;
  OperationId highest_operation;
  bool operator==(const PgHelloReply&) const = default;
};

struct PgHello {
  static constexpr MessageType kType = MessageType::pg_hello;
  using Reply = PgHelloReply;
  PgAddress pg;
  ImageId image;
  Attachment attachment;
  OperationId first_unacknowledged;
  bool operator==(const PgHello&) const = default;
};

// Where a change stands in its PG's order.
struct Changed {
  PgEpoch epoch;
  PgSequence sequence;
  bool operator==(const Changed&) const = default;
};

struct ReadReply {
  std::vector<Run> runs;
  Checksums checksums;
  bool operator==(const ReadReply&) const = default;
};

struct ReadRequest {
  static constexpr MessageType kType = MessageType::read;
  using Reply = ReadReply;
  ObjectAddress object;
  Range range;
  Attachment attachment;
  Generation generation;
  bool operator==(const ReadRequest&) const = default;
};

struct WriteRequest {
  static constexpr MessageType kType = MessageType::write;
  using Reply = Changed;
  ObjectAddress object;
  Range range;
  Origin origin;
  Checksums checksums;
  bool operator==(const WriteRequest&) const = default;
};

struct TrimRequest {
  static constexpr MessageType kType = MessageType::trim;
  using Reply = Changed;
  ObjectAddress object;
  Range range;
  Origin origin;
  bool operator==(const TrimRequest&) const = default;
};

struct WriteZeroesRequest {
  static constexpr MessageType kType = MessageType::write_zeroes;
  using Reply = Changed;
  ObjectAddress object;
  Range range;
  Origin origin;
  bool keep_allocated = false;
  bool operator==(const WriteZeroesRequest&) const = default;
};

struct RemoveRequest {
  static constexpr MessageType kType = MessageType::remove;
  using Reply = Changed;
  ObjectAddress object;
  Origin origin;
  bool operator==(const RemoveRequest&) const = default;
};

struct BarrierRequest {
  static constexpr MessageType kType = MessageType::barrier;
  using Reply = Changed;
  PgAddress pg;
  ImageId image;
  Attachment attachment;
  bool operator==(const BarrierRequest&) const = default;
};

struct StatusReply {
  std::vector<Run> runs;
  bool operator==(const StatusReply&) const = default;
};

struct StatusRequest {
  static constexpr MessageType kType = MessageType::status;
  using Reply = StatusReply;
  ObjectAddress object;
  Range range;
  Attachment attachment;
  Generation generation;
  std::uint32_t runs_max = 0;
  bool operator==(const StatusRequest&) const = default;
};

struct ErrorReply {
  std::uint16_t code = 0;
  ErrorClass error_class = ErrorClass::invalid;
  PgEpoch epoch;
  std::string detail;
  bool operator==(const ErrorReply&) const = default;
};

}  // namespace sarsen::wire
