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
  // Data that follows the headers written so far; its buffer is kept with the reply.
  void data_piece(std::span<const std::byte> data) {
    head_piece();
    reply_.pieces_.push_back({data.data(), 0, data.size()});
  }
  void keep(Buffer buffer) { reply_.buffers_.push_back(std::move(buffer)); }
  Reply finish() {
    head_piece();
    return std::move(reply_);
  }

 private:
  void head_piece() {
    if (reply_.head_.size() == head_done_) return;
    reply_.pieces_.push_back({nullptr, head_done_, reply_.head_.size() - head_done_});
    head_done_ = reply_.head_.size();
  }

  const Request& request_;
  Reply reply_;
  BigEndianWriter writer_;
  std::size_t head_done_ = 0;
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
    const std::byte* from = piece.data != nullptr ? piece.data : head_.data() + piece.offset;
    pieces.emplace_back(from, piece.length);
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

Reply reply_read(const Request& request, std::span<const Segment> segments,
                 std::vector<Buffer> buffers) {
  SARSEN_ASSERT(segments.size() == buffers.size(), "a buffer for each segment");
  ReplyBuilder builder(request);
  builder.simple_header(Errno::none);
  for (std::size_t i = 0; i < segments.size(); ++i) {
    builder.data_piece(buffers[i].span(0, segments[i].length));
    builder.keep(std::move(buffers[i]));
  }
  return builder.finish();
}

Reply reply_chunks(const Request& request, Segment segment, Buffer data, bool last) {
  ReplyBuilder builder(request);
  const auto bytes = data.span(0, segment.length);
  const auto runs = request.has(kCommandDontFragment) ? std::vector<Run>{{0, segment.length, false}}
                                                      : find_runs(segment.offset, bytes);
  bool has_data = false;
  for (const Run& run : runs) {
    const bool final_chunk = last && run.offset + run.length == segment.length;
    const std::uint16_t flags = final_chunk ? kChunkDone : 0;
    if (run.hole) {
      builder.chunk_header(flags, ChunkType::offset_hole, 12);
      builder.writer().put(segment.offset + run.offset);
      builder.writer().put(static_cast<std::uint32_t>(run.length));
    } else {
      builder.chunk_header(flags, ChunkType::offset_data, 8 + run.length);
      builder.writer().put(segment.offset + run.offset);
      builder.data_piece(bytes.subspan(run.offset, run.length));
      has_data = true;
    }
  }
  // A buffer that turned out to hold nothing but zeros is given back now.
  if (has_data) builder.keep(std::move(data));
  return builder.finish();
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
