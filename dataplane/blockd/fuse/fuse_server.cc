#include "dataplane/blockd/fuse/fuse_server.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "dataplane/client/error.h"
#include "dataplane/runtime/yield.h"
#include "dataplane/wire/error.h"

namespace sarsen::fuse {
namespace {

// Writes up to this size are copied out of the receive buffer; larger ones keep it and the next
// packet gets a new one. A copy of this size costs less than giving away and getting a mebibyte.
constexpr std::size_t kCopyBytesMax = 128 * kKiB;
// Packets taken in a row before other work of the shard has its turn.
constexpr int kBatchMax = 32;
// Tried again after this when the pool is exhausted by others and no request of ours will end.
constexpr Duration kMemoryRetry = milliseconds(1);

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace

Server::Server(Env& env, Channel& channel, BlockTarget& target, ServerOptions options)
    : env_(env),
      channel_(channel),
      target_(target),
      options_(std::move(options)),
      negotiated_(options_.negotiated),
      request_done_(env.executor),
      requests_(env.executor) {}

Task<Result<End>> Server::serve() {
  if (options_.negotiated) SARSEN_CO_TRY(ask_for_resend());
  Result<End> end = End::stopped;
  while (!stopping_) {
    auto ended = co_await read_batch();
    if (ended && !*ended) continue;
    end = ended ? Result<End>(**ended) : Result<End>(fail(std::move(ended).error()));
    break;
  }
  co_await requests_.join();
  co_return end;
}

void Server::stop() {
  stopping_ = true;
  request_done_.notify_all();
  channel_.close();
}

Result<void> Server::ask_for_resend() {
  const fuse_out_header header{sizeof(header), kNotifyResend, 0};
  const std::span<const std::byte> piece = bytes_of(header);
  const int error = channel_.send({&piece, 1});
  if (error == EINVAL) {
    return fail(make_error(RuntimeError::kernel_too_old,
                           "it cannot send again what was in flight; Linux 6.9 can"));
  }
  if (error != 0) return fail(error_from_errno(error, "ask for requests in flight"));
  return {};
}

// Waits for memory rather than failing a request for want of it.
Task<Result<Buffer>> Server::buffer_of(std::size_t bytes) {
  for (;;) {
    auto buffer = env_.buffers.allocate(bytes);
    if (buffer || stopping_) co_return buffer;
    ++counters_.memory_waits;
    co_await env_.clock.sleep(kMemoryRetry);
  }
}

// Takes packets until there is none, or a batch is full. Gives how the connection ended, if it did.
Task<Result<std::optional<End>>> Server::read_batch() {
  for (int taken = 0; taken < kBatchMax; ++taken) {
    while (counters_.in_flight >= options_.requests_max && !stopping_) {
      co_await request_done_.wait();
    }
    if (!receive_) {
      auto buffer = co_await buffer_of(kReceiveBytes);
      if (!buffer) co_return std::optional(End::stopped);
      receive_ = std::move(*buffer);
    }
    if (stopping_) co_return std::optional(End::stopped);
    const int received =
        channel_.receive(receive_.span().subspan(kPacketOffset, kReceiveBytes - kPacketOffset));
    switch (received) {
      case -EINTR:
      case -ENOENT: continue;
      case -EAGAIN: co_await channel_.wait_readable(); co_return std::nullopt;
      case -ENODEV: co_return std::optional(End::unmounted);
      case -ECONNABORTED: co_return std::optional(End::aborted);
      default: break;
    }
    if (received < 0) co_return fail(error_from_errno(-received, "read the FUSE connection"));
    SARSEN_CO_TRY(dispatch(static_cast<std::size_t>(received)));
  }
  co_await yield(env_.executor);
  co_return std::nullopt;
}

Result<void> Server::dispatch(std::size_t packet_bytes) {
  const auto request = parse_request(receive_.span(kPacketOffset, packet_bytes));
  if (!request) return fail(make_error(RuntimeError::system, "a malformed FUSE packet"));
  ++counters_.requests;
  if (request->resent()) ++counters_.resent;
  const std::uint64_t unique = request->header.unique;
  const auto start = [&](auto in, auto work) {
    if (in) {
      spawn((this->*work)(unique, *in));
    } else {
      answer_error(unique, EINVAL);
    }
  };
  switch (request->opcode()) {
    case FUSE_READ: start(request->as<fuse_read_in>(), &Server::read); break;
    case FUSE_WRITE: start_write(*request); break;
    case FUSE_FALLOCATE: start(request->as<fuse_fallocate_in>(), &Server::allocate); break;
    case FUSE_LSEEK: start(request->as<fuse_lseek_in>(), &Server::seek); break;
    case FUSE_FSYNC: spawn(flush(unique)); break;
    case FUSE_INIT: return init(*request);
    default: dispatch_metadata(*request); break;
  }
  return {};
}

// Answered at once: none of these waits for the target.
void Server::dispatch_metadata(const Request& request) {
  const std::uint64_t unique = request.header.unique;
  switch (request.opcode()) {
    case FUSE_LOOKUP: lookup(request); break;
    case FUSE_OPEN: open(request); break;
    case FUSE_STATFS: statfs(request); break;
    case FUSE_GETATTR: {
      fuse_attr_out out{};
      out.attr_valid = kValidSeconds;
      out.attr = attributes(request.header.nodeid);
      answer(unique, bytes_of(out));
      break;
    }
    case FUSE_RELEASE:
    case FUSE_FLUSH:
    case FUSE_DESTROY: answer(unique, {}); break;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
      break;  // never answered; our two nodes live as long as the mount
    // Also for INTERRUPT, where it means that the kernel need not try again: everything ends by
    // itself, and what is interrupted here would have to be undone at three copies.
    default: answer_error(unique, ENOSYS); break;
  }
}

void Server::start_write(const Request& request) {
  const auto in = request.as<fuse_write_in>();
  if (!in || request.body.size() - sizeof(*in) != in->size) {
    answer_error(request.header.unique, EINVAL);
    return;
  }
  const auto data = request.body.subspan(sizeof(*in));
  if (data.size() <= kCopyBytesMax) {
    if (auto copy = env_.buffers.allocate(data.size())) {
      std::copy(data.begin(), data.end(), copy->data());
      spawn(write(request.header.unique, *in, std::move(*copy), 0));
      return;
    }
  }
  spawn(write(request.header.unique, *in, std::move(receive_), kBlockBytes));
}

Task<void> Server::read(std::uint64_t unique, fuse_read_in in) {
  const std::uint64_t length = clip(in.offset, std::min(in.size, kTransferBytesMax));
  if (length == 0) {
    answer(unique, {});
    co_return;
  }
  auto buffer = co_await buffer_of(length);
  if (!buffer) {
    ++counters_.left;
    co_return;
  }
  const std::span<std::byte> into = buffer->span(0, length);
  if (const auto outcome = co_await target_.read(in.offset, into); !outcome) {
    answer_failure(unique, outcome.error());
    co_return;
  }
  counters_.read_bytes += length;
  answer(unique, into);
}

Task<void> Server::write(std::uint64_t unique, fuse_write_in in, Buffer buffer,
                         std::size_t data_offset) {
  if (clip(in.offset, in.size) != in.size) {
    answer_error(unique, EFBIG);  // a block device does not grow by writing
    co_return;
  }
  const auto outcome = co_await target_.write(in.offset, buffer.span(data_offset, in.size));
  if (!outcome) {
    answer_failure(unique, outcome.error());
    co_return;
  }
  counters_.written_bytes += in.size;
  fuse_write_out out{};
  out.size = in.size;
  answer(unique, bytes_of(out));
}

// The loop driver's discard is a punched hole, its "write zeroes but keep them" a zeroed range.
Task<void> Server::allocate(std::uint64_t unique, fuse_fallocate_in in) {
  constexpr std::uint32_t kPunchHole = 0x02, kZeroRange = 0x10;
  const std::uint64_t length = clip(in.offset, in.length);
  if ((in.mode & (kPunchHole | kZeroRange)) == 0) {
    answer_error(unique, EOPNOTSUPP);
  } else if (length == 0) {
    answer(unique, {});
  } else if ((in.mode & kPunchHole) != 0) {
    answer_outcome(unique, co_await target_.trim(in.offset, length));
  } else {
    answer_outcome(unique, co_await target_.write_zeroes(in.offset, length, true));
  }
}

Task<void> Server::seek(std::uint64_t unique, fuse_lseek_in in) {
  constexpr std::uint32_t kRunsMax = 64;
  const bool want_data = in.whence == SEEK_DATA;
  const std::uint64_t size = target_.size_bytes();
  if (!want_data && in.whence != SEEK_HOLE) {
    answer_error(unique, EINVAL);
    co_return;
  }
  std::uint64_t at = in.offset;
  bool found = false;
  while (at < size && !found) {
    const auto runs = co_await target_.status(at, size - at, kRunsMax);
    if (!runs || runs->empty()) {
      answer_error(unique, EIO);
      co_return;
    }
    for (const BlockStatus& run : *runs) {
      found = run.allocated == want_data;
      if (found) break;
      at += run.length_bytes;
    }
  }
  // After the last byte there is a hole, and no data.
  if (in.offset >= size || (want_data && !found)) {
    answer_error(unique, ENXIO);
    co_return;
  }
  const fuse_lseek_out out{std::min(at, size)};
  answer(unique, bytes_of(out));
}

Task<void> Server::flush(std::uint64_t unique) {
  answer_outcome(unique, co_await target_.flush());
}

void Server::spawn(Task<void> work) {
  counters_.in_flight_max = std::max(counters_.in_flight_max, ++counters_.in_flight);
  requests_.spawn(counted(std::move(work)));
}

Task<void> Server::counted(Task<void> work) {
  co_await std::move(work);
  --counters_.in_flight;
  request_done_.notify_one();
}

std::uint64_t Server::clip(std::uint64_t offset, std::uint64_t length) const {
  const std::uint64_t size = target_.size_bytes();
  return offset >= size ? 0 : std::min(length, size - offset);
}

void Server::answer(std::uint64_t unique, std::span<const std::byte> body) {
  // A read of user memory cannot fail here; EINVAL would be a packet that we made wrong.
  if (const int error = send(unique, 0, body); error != 0) ++counters_.answers_unwanted;
}

void Server::answer_error(std::uint64_t unique, int errno_value) {
  if (send(unique, -errno_value, {}) != 0) ++counters_.answers_unwanted;
}

void Server::answer_outcome(std::uint64_t unique, const Result<void>& outcome) {
  if (outcome) {
    answer(unique, {});
  } else {
    answer_failure(unique, outcome.error());
  }
}

void Server::answer_failure(std::uint64_t unique, const Error& error) {
  if (error.error_class() == ErrorClass::cancelled) {
    ++counters_.left;
    return;
  }
  ++counters_.errors;
  answer_error(unique, errno_of(error));
}

int Server::send(std::uint64_t unique, int error, std::span<const std::byte> body) {
  const fuse_out_header header{static_cast<std::uint32_t>(sizeof(header) + body.size()), error,
                               unique};
  const std::array<std::span<const std::byte>, 2> pieces{bytes_of(header), body};
  return channel_.send(std::span(pieces).first(body.empty() ? 1 : 2));
}

int errno_of(const Error& error) {
  if (is(error, RuntimeError::no_space) || is(error, wire::RemoteError::no_space)) return ENOSPC;
  if (is(error, RuntimeError::read_only) || is(error, ClientError::read_only)) return EROFS;
  if (is(error, RuntimeError::bad_argument)) return EINVAL;
  return EIO;
}

}  // namespace sarsen::fuse
