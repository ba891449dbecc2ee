// The part of the server that describes the file to the kernel: INIT, names, attributes.

#include <cerrno>
#include <utility>

#include <sys/stat.h>

#include "dataplane/blockd/fuse/fuse_server.h"

namespace sarsen::fuse {
namespace {

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace

Result<void> Server::init(const Request& request) {
  const auto answered = answer_init(request);
  if (!answered) {
    answer_error(request.header.unique, EPROTO);
    return fail(make_error(RuntimeError::kernel_too_old, "FUSE before protocol 7.31 (Linux 5.4)"));
  }
  if (answered->negotiated.minor != 0) negotiated_ = answered->negotiated;
  answer(request.header.unique, bytes_of(answered->body));
  return {};
}

void Server::lookup(const Request& request) {
  if (request.header.nodeid != kRootNode || request.name() != options_.file_name) {
    answer_error(request.header.unique, ENOENT);
    return;
  }
  fuse_entry_out out{};
  out.nodeid = kFileNode;
  out.entry_valid = out.attr_valid = kValidSeconds;
  out.attr = attributes(kFileNode);
  answer(request.header.unique, bytes_of(out));
}

void Server::open(const Request& request) {
  const auto in = request.as<fuse_open_in>();
  if (!in || request.header.nodeid != kFileNode) {
    answer_error(request.header.unique, in ? EISDIR : EINVAL);
    return;
  }
  fuse_open_out out{};
  out.fh = kFileHandle;
  // No page cache of ours below the one of the file system above the loop device. Writes that run
  // side by side: the target orders what overlaps. NOFLUSH: closing asks for nothing.
  out.open_flags = FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES | FOPEN_NOFLUSH;
  answer(request.header.unique, bytes_of(out));
}

void Server::statfs(const Request& request) {
  fuse_statfs_out out{};
  out.st.bsize = out.st.frsize = kBlockBytes;  // also the loop device's unit of discard
  out.st.blocks = target_.size_bytes() / kBlockBytes;
  out.st.files = 1;
  out.st.namelen = 255;
  answer(request.header.unique, bytes_of(out));
}

fuse_attr Server::attributes(std::uint64_t node) const {
  fuse_attr attr{};
  attr.ino = node;
  attr.blksize = kBlockBytes;
  if (node == kFileNode) {
    attr.size = target_.size_bytes();
    attr.blocks = attr.size / 512;
    attr.mode = S_IFREG | (target_.read_only() ? 0400 : 0600);
    attr.nlink = 1;
  } else {
    attr.mode = S_IFDIR | 0700;
    attr.nlink = 2;
  }
  return attr;
}

void Server::announce_size() {
  // A negative offset means attributes only. The code is in `error`, and `unique` is zero.
  const fuse_notify_inval_inode_out out{kFileNode, -1, 0};
  if (send(0, FUSE_NOTIFY_INVAL_INODE, bytes_of(out)) != 0) ++counters_.answers_unwanted;
}

}  // namespace sarsen::fuse
