// Messages to bytes and back, and the rules that one message must keep in itself.
//
// I-WIRE-1: decode(encode(x)) == x for every valid x, and every body that decodes is the encoding
// of what it decodes to: there is one encoding per value. No I/O. Error of decode(): malformed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dataplane/base/result.h"
#include "dataplane/wire/message.h"

namespace sarsen::wire {

// `message` keeps its rules (is valid()); a message that does not is a bug.
template <typename Message>
std::vector<std::byte> encode(const Message& message);

template <typename Message>
Result<Message> decode(std::span<const std::byte> body);

// What decode() asks for beyond the grammar, for messages that have such rules.
template <typename Message>
bool valid(const Message& message);

// Whether `reply` answers a read of `range` with `data_bytes` of data.
bool answers(const ReadReply& reply, Range range, std::uint64_t data_bytes);
// Whether `reply` answers a status request.
bool answers(const StatusReply& reply, const StatusRequest& request);

// How many sums the data of `range` has: one for each block it touches.
std::uint32_t checksum_count(Range range);
// Appends the sums of `data`, which are the bytes of `range`.
void append_checksums(Range range, std::span<const std::byte> data, Checksums& checksums);
// True when `checksums` are those of `data`, the bytes of `range`.
bool matches(Range range, std::span<const std::byte> data,
             std::span<const std::uint32_t> checksums);

}  // namespace sarsen::wire
