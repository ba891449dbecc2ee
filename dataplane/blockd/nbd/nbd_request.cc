#include "dataplane/blockd/nbd/nbd_request.h"

#include <algorithm>

#include "dataplane/base/units.h"
#include "dataplane/blockd/nbd/big_endian.h"

namespace sarsen::nbd {
namespace {

constexpr Judgement kAcceptable{};

// The flags that `command` may carry. FUA is allowed everywhere: clients are known to set it on
// commands that write nothing.
std::uint16_t flags_allowed(Command command, const Negotiated& negotiated) {
  switch (command) {
    case Command::read:
      return negotiated.structured_replies ? kCommandFua | kCommandDontFragment : kCommandFua;
    case Command::write_zeroes: return kCommandFua | kCommandNoHole;
    case Command::block_status: return kCommandFua | kCommandReqOne;
    default: return kCommandFua;
  }
}

Judgement judge_range(const Request& request, const Export& opened) {
  const std::uint64_t size = opened.target->size_bytes();
  if (request.length == 0) return {Errno::invalid, "the range is empty"};
  if (request.offset > size || request.length > size - request.offset) {
    const bool writes =
        request.command == Command::write || request.command == Command::write_zeroes;
    return {writes ? Errno::no_space : Errno::invalid, "the range passes the end of the export"};
  }
  const std::uint64_t mask = opened.block_bytes_min - 1;
  if (((request.offset | request.length) & mask) != 0) {
    return {Errno::invalid, "the range is not made of whole minimum blocks"};
  }
  return kAcceptable;
}

Judgement judge_change(const Request& request, const Export& opened) {
  if (opened.target->read_only()) return {Errno::not_permitted, "the export is read-only"};
  return judge_range(request, opened);
}

Judgement judge_payload_size(const Request& request) {
  if (request.has(kCommandDontFragment) && request.length > kSegmentBytes) {
    return {Errno::overflow, "too long to be in one piece"};
  }
  if (request.length <= kPayloadBytesMax) return kAcceptable;
  return {Errno::invalid, "longer than the announced maximum"};
}

}  // namespace

std::vector<Segment> segments_of(const Request& request) {
  if (request.has(kCommandDontFragment)) return {{request.offset, request.length}};
  std::vector<Segment> segments;
  std::uint64_t at = request.offset;
  const std::uint64_t end = request.offset + request.length;
  while (at < end) {
    const std::uint64_t next = std::min(end, round_down(at, kSegmentBytes) + kSegmentBytes);
    segments.push_back({at, static_cast<std::uint32_t>(next - at)});
    at = next;
  }
  return segments;
}

std::optional<Request> parse_request(std::span<const std::byte, kRequestBytes> bytes) {
  BigEndianReader reader(bytes);
  if (reader.u32() != kRequestMagic) return std::nullopt;
  Request request;
  request.flags = reader.u16();
  request.command = Command(reader.u16());
  request.cookie = reader.u64();
  request.offset = reader.u64();
  request.length = reader.u32();
  return request;
}

Judgement judge(const Request& request, const Negotiated& negotiated) {
  if ((request.flags & ~flags_allowed(request.command, negotiated)) != 0) {
    return {Errno::invalid, "a flag that this command does not have"};
  }
  switch (request.command) {
    case Command::read: {
      const Judgement size = judge_payload_size(request);
      return size.acceptable() ? judge_range(request, negotiated.opened) : size;
    }
    case Command::write: {
      const Judgement size = judge_payload_size(request);
      return size.acceptable() ? judge_change(request, negotiated.opened) : size;
    }
    case Command::trim:
    case Command::write_zeroes: return judge_change(request, negotiated.opened);
    case Command::flush:
      if (request.offset != 0 || request.length != 0) {
        return {Errno::invalid, "a flush has no range"};
      }
      return kAcceptable;
    case Command::block_status:
      if (!negotiated.allocation_context) return {Errno::invalid, "no context was selected"};
      return judge_range(request, negotiated.opened);
    case Command::disconnect: return kAcceptable;
    case Command::cache: break;  // not announced
  }
  return {Errno::invalid, "a command that is not known"};
}

}  // namespace sarsen::nbd
