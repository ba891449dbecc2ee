#include "dataplane/blockd/fuse/fuse_protocol.h"

#include <algorithm>

namespace sarsen::fuse {
namespace {

// Requests that the kernel keeps with us at a time. More than a loop device has (128 by default),
// so that its queue and not ours is the limit.
constexpr std::uint16_t kBackgroundMax = 1024;

// ASYNC_DIO: requests of one direct I/O go out together, and the loop driver does not wait for
// them. ABORT_ERROR: reading tells an aborted connection from an unmounted one.
constexpr std::uint64_t kWanted = FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_ASYNC_DIO |
                                  FUSE_MAX_PAGES | FUSE_ABORT_ERROR | FUSE_INIT_EXT | kHasResend;

}  // namespace

std::optional<InitAnswer> answer_init(const Request& request) {
  // Older kernels send a shorter body; its missing flags are zero.
  fuse_init_in in{};
  std::memcpy(&in, request.body.data(), std::min(sizeof(in), request.body.size()));
  InitAnswer answer;
  answer.body.major = FUSE_KERNEL_VERSION;
  answer.body.minor = FUSE_KERNEL_MINOR_VERSION;
  if (in.major > FUSE_KERNEL_VERSION) return answer;
  if (in.major < FUSE_KERNEL_VERSION || in.minor < kMinorMin) return std::nullopt;

  std::uint64_t offered = in.flags;
  if ((in.flags & FUSE_INIT_EXT) != 0) offered |= static_cast<std::uint64_t>(in.flags2) << 32;
  const std::uint64_t taken = offered & kWanted;
  answer.body.flags = static_cast<std::uint32_t>(taken);
  answer.body.flags2 = static_cast<std::uint32_t>(taken >> 32);
  answer.body.max_readahead = in.max_readahead;
  answer.body.max_background = kBackgroundMax;
  answer.body.congestion_threshold = kBackgroundMax;
  answer.body.max_write = kTransferBytesMax;
  answer.body.max_pages = kTransferBytesMax / kBlockBytes;
  answer.body.time_gran = 1;
  answer.negotiated = {std::min<std::uint32_t>(in.minor, FUSE_KERNEL_MINOR_VERSION), offered,
                       kTransferBytesMax};
  return answer;
}

}  // namespace sarsen::fuse
