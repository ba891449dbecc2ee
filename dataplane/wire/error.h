// Errors of the wire: what a frame can be refused for, and what the other side answered.
#pragma once

#include <cstdint>
#include <string>

#include "dataplane/base/result.h"
#include "dataplane/base/units.h"

namespace sarsen::wire {

// Found while decoding; the connection cannot be used any more.
enum class WireError {
  bad_magic = 1,
  bad_version,
  bad_header_checksum,
  bad_body_checksum,
  too_long,
  malformed,
  unexpected_frame,
};

const ErrorCategory& wire_errors();

inline Error make_error(WireError code, std::string detail = {}) {
  return {wire_errors(), static_cast<int>(code), std::move(detail)};
}

inline bool is(const Error& error, WireError code) {
  return &error.category() == &wire_errors() && error.code() == static_cast<int>(code);
}

// Codes of error replies; numbers are part of the protocol (docs/wire_protocol.md).
enum class RemoteError : std::uint16_t {
  bad_request = 1,
  unsupported = 2,
  version_not_supported = 3,
  wrong_cluster = 4,
  fenced = 5,
  stale_session = 6,
  stale_operation = 7,
  not_found = 8,
  read_only = 9,
  stale_epoch = 16,
  not_primary = 17,
  inactive = 18,
  overloaded = 19,
  no_space = 20,
  timed_out = 21,
  stopped = 22,
  bad_checksum = 23,
  corrupt = 32,
  io_error = 33,
};

const ErrorCategory& remote_errors();

inline Error make_error(RemoteError code, std::string detail = {}) {
  return {remote_errors(), static_cast<int>(code), std::move(detail)};
}
inline bool is(const Error& error, RemoteError code) {
  return &error.category() == &remote_errors() && error.code() == static_cast<int>(code);
}

struct ErrorReply;

// What a server tells a client about `error`. `epoch`: the PG's, or 0.
ErrorReply to_reply(const Error& error, PgEpoch epoch = {});
// The client's view of it. Where the runtime has the same word (no_space, read_only, overloaded,
// timed_out, not_found, io_error) it is that, so that callers need not know where it happened; else
// a RemoteError. A code that this version does not know keeps its class.
Error from_reply(const ErrorReply& reply);

}  // namespace sarsen::wire
