// Replies of the transmission phase, as bytes to be sent. No I/O.
//
// A Reply owns its headers and the buffers with the data that was read; append_pieces() borrows.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "dataplane/blockd/nbd/nbd_protocol.h"
#include "dataplane/blockd/nbd/nbd_request.h"
#include "dataplane/client/block_target.h"
#include "dataplane/runtime/env.h"

namespace sarsen::nbd {

// A run of zeros in a read is sent as a hole when it is at least this long (or all there is):
// shorter ones cost more in headers than they save.
inline constexpr std::uint32_t kHoleBytesMin = 32 * 1024;
// Longer texts of errors are cut.
inline constexpr std::size_t kErrorTextBytesMax = 512;
// A reply to BLOCK_STATUS describes at most this many runs, in one chunk.
inline constexpr std::uint32_t kStatusRunsMax = 1024;

class Reply {
 public:
  Reply() = default;

  std::size_t size_bytes() const;
  // Appends views of what is to be sent, in order. They are valid while this lives and stays.
  void append_pieces(std::vector<std::span<const std::byte>>& pieces) const;

 private:
  friend class ReplyBuilder;
  struct Piece {
    const std::byte* data = nullptr;  // in a buffer; nullptr: in head_
    std::size_t offset = 0;
    std::size_t length = 0;
  };
  std::vector<std::byte> head_;
  std::vector<Buffer> buffers_;
  std::vector<Piece> pieces_;
};

// A reply without data: done, or failed for a reason that structured replies carry along.
Reply reply_outcome(const Request& request, bool structured, Errno error,
                    std::string_view sentence = {});
// The answer to a read without structured replies: one buffer for each segment.
Reply reply_read(const Request& request, std::span<const Segment> segments,
                 std::vector<Buffer> buffers);
// A part of the answer with structured replies, or all of it. `last`: no other chunk follows.
Reply reply_chunks(const Request& request, Segment segment, Buffer data, bool last);
// The answer to BLOCK_STATUS (structured only). `runs` start at request.offset and are not empty.
Reply reply_status(const Request& request, std::span<const BlockStatus> runs);

}  // namespace sarsen::nbd
