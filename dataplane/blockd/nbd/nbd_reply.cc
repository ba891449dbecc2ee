#include "dataplane/blockd/nbd/nbd_reply.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "dataplane/base/assert.h"
#include "dataplane/blockd/nbd/big_endian.h"

namespace sarsen::nbd {

class ReplyBuilder {
 public:
  explicit ReplyBuilder(const Request& request) : request_(request), writer_(reply_.head_) {}

  void simple_header(Errno error) {
    writer_.put(kSimpleReplyMagic);
    writer_.put(error);
    writer_.put(request_.cookie);
  }
  void chunk_header(std::uint16_t flags, ChunkType type, std::size_t payload_bytes) {
    writer_.put(kStructuredReplyMagic);
    writer_.put(flags);
    writer_.put(type);
    writer_.put(request_.cookie);
    writer_.put(static_cast<std::uint32_t>(payload_bytes));
  }
  BigEndianWriter& writer() { return writer_; }
  // Data that follows the headers written so far.
  void data_piece(std::size_t offset, std::size_t length) {
    head_piece();
    reply_.pieces_.push_back({true, offset, length});
    uses_data_ = true;
  }
  // A buffer that turned out to hold nothing but holes is not kept.
  Reply finish(Buffer data = {}) {
    head_piece();
    if (uses_data_) reply_.data_ = std::move(data);
    return std::move(reply_);
  }

 private:
  void head_piece() {
    if (reply_.head_.size() == head_done_) return;
    reply_.pieces_.push_back({false, head_done_, reply_.head_.size() - head_done_});
    head_done_ = reply_.head_.size();
  }

  const Request& request_;
  Reply reply_;
  BigEndianWriter writer_;
  std::size_t head_done_ = 0;
  bool uses_data_ = false;
};

namespace {

bool all_zero(std::span<const std::byte> data) {
  return data[0] == std::byte{0} && std::memcmp(data.data(), data.data() + 1, data.size() - 1) == 0;
}

struct Run {
  std::size_t offset = 0;  // within the request
  std::size_t length = 0;
  bool hole = false;
};

// Cuts what was read into data and holes, at multiples of 4 KiB of the export.
std::vector<Run> find_runs(std::uint64_t start, std::span<const std::byte> data) {
  if (all_zero(data)) return {{0, data.size(), true}};
  std::vector<Run> runs;
  std::size_t hole_from = 0, data_from = 0, at = 0;
  const auto end_hole = [&](std::size_t end) {
    if (end - hole_from < kHoleBytesMin) return;
    if (hole_from > data_from) runs.push_back({data_from, hole_from - data_from, false});
    runs.push_back({hole_from, end - hole_from, true});
    data_from = end;
  };
  while (at < data.size()) {
    const std::size_t to_boundary = kBlockBytes - (start + at) % kBlockBytes;
    const std::size_t length = std::min(to_boundary, data.size() - at);
    if (!all_zero(data.subspan(at, length))) {
      end_hole(at);
      hole_from = at + length;
    }
    at += length;
  }
  end_hole(at);
  if (at > data_from) runs.push_back({data_from, at - data_from, false});
  return runs;
}

}  // namespace

std::size_t Reply::size_bytes() const {
  std::size_t total = 0;
  for (const Piece& piece : pieces_) total += piece.length;
  return total;
}

void Reply::append_pieces(std::vector<std::span<const std::byte>>& pieces) const {
  for (const Piece& piece : pieces_) {
    const std::span<const std::byte> from =
        piece.from_data ? std::span<const std::byte>(data_.span()) : std::span(head_);
    pieces.push_back(from.subspan(piece.offset, piece.length));
  }
}

Reply reply_outcome(const Request& request, bool structured, Errno error,
                    std::string_view sentence) {
  ReplyBuilder builder(request);
  if (!structured) {
    builder.simple_header(error);
  } else if (error == Errno::none) {
    builder.chunk_header(kChunkDone, ChunkType::none, 0);
  } else {
    const auto text = sentence.substr(0, kErrorTextBytesMax);
    builder.chunk_header(kChunkDone, ChunkType::error, 6 + text.size());
    builder.writer().put(error);
    builder.writer().put(static_cast<std::uint16_t>(text.size()));
    builder.writer().text(text);
  }
  return builder.finish();
}

Reply reply_read(const Request& request, bool structured, Buffer data) {
  ReplyBuilder builder(request);
  if (!structured) {
    builder.simple_header(Errno::none);
    builder.data_piece(0, request.length);
    return builder.finish(std::move(data));
  }
  const auto bytes = data.span(0, request.length);
  const auto runs = request.has(kCommandDontFragment) ? std::vector<Run>{{0, request.length, false}}
                                                      : find_runs(request.offset, bytes);
  for (const Run& run : runs) {
    const bool last = run.offset + run.length == request.length;
    const std::uint16_t flags = last ? kChunkDone : 0;
    if (run.hole) {
      builder.chunk_header(flags, ChunkType::offset_hole, 12);
      builder.writer().put(request.offset + run.offset);
      builder.writer().put(static_cast<std::uint32_t>(run.length));
    } else {
      builder.chunk_header(flags, ChunkType::offset_data, 8 + run.length);
      builder.writer().put(request.offset + run.offset);
      builder.data_piece(run.offset, run.length);
    }
  }
  return builder.finish(std::move(data));
}

Reply reply_status(const Request& request, std::span<const BlockStatus> runs) {
  SARSEN_ASSERT(!runs.empty(), "a target describes at least one run");
  const std::size_t count = request.has(kCommandReqOne) ? 1 : runs.size();
  ReplyBuilder builder(request);
  builder.chunk_header(kChunkDone, ChunkType::block_status, 4 + 8 * count);
  builder.writer().put(kAllocationContextId);
  std::uint64_t left = request.length;
  for (const BlockStatus& run : runs.first(count)) {
    SARSEN_ASSERT(run.length_bytes > 0 && run.length_bytes <= left, "runs stay in their range");
    left -= run.length_bytes;
    builder.writer().put(static_cast<std::uint32_t>(run.length_bytes));
    builder.writer().put(run.allocated ? std::uint32_t{0} : kStateHole | kStateZero);
  }
  return builder.finish();
}

}  // namespace sarsen::nbd
