#include "dataplane/wire/codec.h"

#include <algorithm>
#include <string>
#include <type_traits>

#include "dataplane/base/assert.h"
#include "dataplane/base/codec.h"
#include "dataplane/base/crc32c.h"
#include "dataplane/wire/error.h"
#include "dataplane/wire/frame.h"

namespace sarsen::wire {
namespace {

// Two archives go over the same list of fields: one writes, one reads, so neither can forget one.

class Writer {
 public:
  explicit Writer(std::span<std::byte> into) : out(into) {}

  template <typename T>
  void number(const T& value) {
    out.put(value);
  }
  void boolean(const bool& value) { out.u8(value ? 1 : 0); }
  void zeros(std::size_t count) { out.zeros(count); }
  void bytes(const ClusterId& value) { out.bytes(std::as_bytes(std::span(value))); }
  void text(const std::string& value, std::size_t) { out.prefixed_text<std::uint16_t>(value); }
  void checksums(const Checksums& values) {
    out.u32(static_cast<std::uint32_t>(values.size()));
    for (const std::uint32_t value : values) out.u32(value);
  }
  void runs(const std::vector<Run>& values) {
    out.u32(static_cast<std::uint32_t>(values.size()));
    for (const Run& run : values) {
      out.u32(run.length);
      boolean(run.present);
    }
  }

  ByteWriter out;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> from) : in(from) {}

  template <typename T>
  void number(T& value) {
    value = in.get<T>();
  }
  void boolean(bool& value) {
    const std::uint8_t byte = in.u8();
    if (byte > 1) in.mark_failed();
    value = byte == 1;
  }
  void zeros(std::size_t count) { in.zeros(count); }
  void bytes(ClusterId& value) { in.copy_to(std::as_writable_bytes(std::span(value))); }
  void text(std::string& value, std::size_t bytes_max) {
    value = in.prefixed_text<std::uint16_t>(bytes_max);
  }
  void checksums(Checksums& values) {
    const std::uint32_t count = bounded_count(kBlocksPerObject + 1, sizeof(std::uint32_t));
    values.resize(count);
    for (std::uint32_t& value : values) value = in.u32();
  }
  void runs(std::vector<Run>& values) {
    const std::uint32_t count = bounded_count(kRunsMax + 1, 5);
    values.resize(count);
    for (Run& run : values) {
      run.length = in.u32();
      boolean(run.present);
    }
  }

  ByteReader in;

 private:
  // A count of items that are really there, so that memory is given only to what arrived.
  std::uint32_t bounded_count(std::uint32_t count_max, std::size_t item_bytes) {
    const std::uint32_t count = in.u32();
    if (count > count_max || in.remaining() < count * item_bytes) in.mark_failed();
    return in.ok() ? count : 0;
  }
};

// ---------------------------------------------------------------------------- fields, in order

template <typename A>
void fields(A& archive, PgAddress& pg) {
  archive.number(pg.pool);
  archive.number(pg.number);
  archive.number(pg.epoch);
}

template <typename A>
void fields(A& archive, ObjectAddress& object) {
  fields(archive, object.pg);
  archive.number(object.image);
  archive.number(object.object);
}

template <typename A>
void fields(A& archive, Range& range) {
  archive.number(range.offset);
  archive.number(range.length);
}

template <typename A>
void fields(A& archive, Attachment& attachment) {
  archive.number(attachment.holder);
  archive.number(attachment.epoch);
  archive.number(attachment.session);
}

template <typename A>
void fields(A& archive, Generation& generation) {
  archive.number(generation.branch);
  archive.number(generation.snapshot);
}

template <typename A>
void fields(A& archive, Origin& origin) {
  fields(archive, origin.attachment);
  archive.number(origin.operation);
  archive.number(origin.first_unacknowledged);
  fields(archive, origin.generation);
}

template <typename A>
void fields(A& archive, Hello& hello) {
  archive.number(hello.version_min);
  archive.number(hello.version_max);
  archive.number(hello.role);
  archive.zeros(1);
  archive.number(hello.shard);
  archive.number(hello.target_shard);
  archive.number(hello.holder);
  archive.number(hello.session);
  archive.bytes(hello.cluster);
  archive.number(hello.features_offered);
  archive.number(hello.features_required);
}

template <typename A>
void fields(A& archive, HelloReply& reply) {
  archive.number(reply.version);
  archive.zeros(3);
  archive.number(reply.osd);
  archive.number(reply.shard);
  archive.number(reply.shard_count);
  archive.number(reply.start_counter);
  archive.number(reply.features);
  archive.number(reply.operations_max);
  archive.number(reply.data_bytes_max);
}

template <typename A>
void fields(A& archive, PgHello& hello) {
  fields(archive, hello.pg);
  archive.number(hello.image);
  fields(archive, hello.attachment);
  archive.number(hello.first_unacknowledged);
}

template <typename A>
void fields(A& archive, PgHelloReply& reply) {
  archive.number(reply.epoch);
  archive.number(reply.highest_operation);
}

template <typename A>
void fields(A& archive, Changed& changed) {
  archive.number(changed.epoch);
  archive.number(changed.sequence);
}

template <typename A>
void fields(A& archive, ReadRequest& request) {
  fields(archive, request.object);
  fields(archive, request.range);
  fields(archive, request.attachment);
  fields(archive, request.generation);
}

template <typename A>
void fields(A& archive, ReadReply& reply) {
  archive.runs(reply.runs);
  archive.checksums(reply.checksums);
}

template <typename A>
void fields(A& archive, WriteRequest& request) {
  fields(archive, request.object);
  fields(archive, request.range);
  fields(archive, request.origin);
  archive.checksums(request.checksums);
}

template <typename A>
void fields(A& archive, TrimRequest& request) {
  fields(archive, request.object);
  fields(archive, request.range);
  fields(archive, request.origin);
}

template <typename A>
void fields(A& archive, WriteZeroesRequest& request) {
  fields(archive, request.object);
  fields(archive, request.range);
  fields(archive, request.origin);
  archive.boolean(request.keep_allocated);
}

template <typename A>
void fields(A& archive, RemoveRequest& request) {
  fields(archive, request.object);
  fields(archive, request.origin);
}

template <typename A>
void fields(A& archive, BarrierRequest& request) {
  fields(archive, request.pg);
  archive.number(request.image);
  fields(archive, request.attachment);
}

template <typename A>
void fields(A& archive, StatusRequest& request) {
  fields(archive, request.object);
  fields(archive, request.range);
  fields(archive, request.attachment);
  fields(archive, request.generation);
  archive.number(request.runs_max);
}

template <typename A>
void fields(A& archive, StatusReply& reply) {
  archive.runs(reply.runs);
}

template <typename A>
void fields(A& archive, ErrorReply& reply) {
  archive.number(reply.code);
  archive.number(reply.error_class);
  archive.zeros(1);
  archive.number(reply.epoch);
  archive.text(reply.detail, kDetailBytesMax);
}

// ----------------------------------------------------------------------------------------- rules

bool valid_range(Range range) {
  return range.length > 0 && range.offset <= kObjectBytes &&
         range.length <= kObjectBytes - range.offset;
}

bool valid_runs(const std::vector<Run>& runs) {
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].length == 0) return false;
    if (i > 0 && runs[i].present == runs[i - 1].present) return false;
  }
  return !runs.empty();
}

bool own_rules(const Hello& hello) {
  return hello.version_min >= 1 && hello.version_min <= hello.version_max &&
         hello.role >= Role::image_session && hello.role <= Role::tool;
}
bool own_rules(const WriteRequest& request) {
  return request.checksums.size() == checksum_count(request.range);
}
bool own_rules(const StatusRequest& request) {
  return request.runs_max >= 1 && request.runs_max <= kRunsMax;
}
bool own_rules(const ErrorReply& reply) {
  return reply.error_class <= ErrorClass::cancelled && reply.detail.size() <= kDetailBytesMax;
}
template <typename Message>
bool own_rules(const Message&) {
  return true;
}

// The longest body: a write or read of a whole object, cut one block more often than it need be.
constexpr std::size_t kLongestBody =
    128 + 4 + (kRunsMax + 1) * 5 + 4 + (kBlocksPerObject + 1) * sizeof(std::uint32_t);
static_assert(kLongestBody <= kBodyBytesMax);

}  // namespace

std::uint32_t checksum_count(Range range) {
  const std::uint64_t end = std::uint64_t{range.offset} + range.length;
  return static_cast<std::uint32_t>((end + kBlockBytes - 1) / kBlockBytes -
                                    range.offset / kBlockBytes);
}

void append_checksums(Range range, std::span<const std::byte> data, Checksums& checksums) {
  SARSEN_ASSERT(data.size() == range.length, "data fills its range");
  std::uint32_t offset = range.offset;
  while (!data.empty()) {
    const std::size_t to_boundary = kBlockBytes - offset % kBlockBytes;
    const std::size_t length = std::min(to_boundary, data.size());
    checksums.push_back(crc32c(data.first(length)));
    data = data.subspan(length);
    offset += static_cast<std::uint32_t>(length);
  }
}

bool matches(Range range, std::span<const std::byte> data,
             std::span<const std::uint32_t> checksums) {
  Checksums actual;
  actual.reserve(checksums.size());
  append_checksums(range, data, actual);
  return std::equal(actual.begin(), actual.end(), checksums.begin(), checksums.end());
}

template <typename Message>
bool valid(const Message& message) {
  if constexpr (requires { message.range; }) {
    if (!valid_range(message.range)) return false;
  }
  if constexpr (requires { message.origin; }) {
    if (message.origin.first_unacknowledged > message.origin.operation) return false;
  }
  if constexpr (requires { message.runs; }) {
    if (!valid_runs(message.runs)) return false;
  }
  return own_rules(message);
}

bool answers(const ReadReply& reply, Range range, std::uint64_t data_bytes) {
  const std::uint64_t end = std::uint64_t{range.offset} + range.length;
  std::uint64_t at = range.offset;
  std::uint64_t data = 0, sums = 0;
  for (const Run& run : reply.runs) {
    if (run.length > end - at) return false;
    if (at != range.offset && at % kBlockBytes != 0) return false;
    if (run.present) {
      data += run.length;
      sums += checksum_count({static_cast<std::uint32_t>(at), run.length});
    }
    at += run.length;
  }
  return at == end && data == data_bytes && sums == reply.checksums.size();
}

bool answers(const StatusReply& reply, const StatusRequest& request) {
  std::uint64_t total = 0;
  for (const Run& run : reply.runs) total += run.length;
  return reply.runs.size() <= request.runs_max && total <= request.range.length;
}

template <typename Message>
std::vector<std::byte> encode(const Message& message) {
  SARSEN_ASSERT(valid(message), "only messages that keep their rules are sent");
  std::vector<std::byte> body(kLongestBody);
  Writer writer(body);
  // The list of fields serves both directions; a Writer changes nothing.
  fields(writer, const_cast<Message&>(message));
  SARSEN_ASSERT(writer.out.ok(), "every message fits the longest body");
  body.resize(writer.out.offset());
  return body;
}

template <typename Message>
Result<Message> decode(std::span<const std::byte> body) {
  Message message;
  Reader reader(body);
  fields(reader, message);
  if (!reader.in.finished() || !valid(message)) {
    return fail(make_error(WireError::malformed, "body of " + std::to_string(body.size())));
  }
  return message;
}

#define SARSEN_WIRE_MESSAGE(Message)                              \
  template bool valid(const Message&);                            \
  template std::vector<std::byte> encode(const Message& message); \
  template Result<Message> decode(std::span<const std::byte> body)

SARSEN_WIRE_MESSAGE(Hello);
SARSEN_WIRE_MESSAGE(HelloReply);
SARSEN_WIRE_MESSAGE(PgHello);
SARSEN_WIRE_MESSAGE(PgHelloReply);
SARSEN_WIRE_MESSAGE(Changed);
SARSEN_WIRE_MESSAGE(ReadRequest);
SARSEN_WIRE_MESSAGE(ReadReply);
SARSEN_WIRE_MESSAGE(WriteRequest);
SARSEN_WIRE_MESSAGE(TrimRequest);
SARSEN_WIRE_MESSAGE(WriteZeroesRequest);
SARSEN_WIRE_MESSAGE(RemoveRequest);
SARSEN_WIRE_MESSAGE(BarrierRequest);
SARSEN_WIRE_MESSAGE(StatusRequest);
SARSEN_WIRE_MESSAGE(StatusReply);
SARSEN_WIRE_MESSAGE(ErrorReply);

}  // namespace sarsen::wire
