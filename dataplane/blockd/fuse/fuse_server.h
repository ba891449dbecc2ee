// Serves one BlockTarget as the one regular file of a FUSE connection.
//
// Lifecycle  serve() runs until the connection ends or stop(); it returns when no request is in
//            flight here. A request that the target gave up with a `cancelled` error is left
//            unanswered: the kernel sends it again to the next server. Nothing that was read from
//            the connection is ever lost by dropping it.
// Take-over  With `negotiated` from a predecessor, serve() first asks the kernel to send again what
//            is in flight. The caller is sure that the predecessor has ended (ServerLock): what it
//            read after that would be answered by nobody.
// Resent     A resent write may have been carried out before. It is carried out again, which gives
//            the same blocks: the kernel has not told anyone that it was done, so nothing newer
//            overlaps it. That the predecessor's own copy cannot land later is rule R7.
// Bounds     requests_max requests in flight and the buffer pool; beyond them the connection is not
//            read and the kernel's queue holds the rest.
// Shard      One: that of the channel, the target and the environment. Borrows all three.
// Errors     kernel_too_old, from INIT; system, when the connection cannot be read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "dataplane/blockd/fuse/fuse_channel.h"
#include "dataplane/blockd/fuse/fuse_protocol.h"
#include "dataplane/client/block_target.h"
#include "dataplane/runtime/condition.h"
#include "dataplane/runtime/env.h"
#include "dataplane/runtime/scope.h"

namespace sarsen::fuse {

struct ServerOptions {
  std::string file_name = "image";
  std::uint32_t requests_max = 512;
  std::optional<Negotiated> negotiated;  // of the predecessor
};

struct ServerCounters {
  std::uint64_t requests = 0;
  std::uint64_t resent = 0;  // of those, sent before to a predecessor
  std::uint64_t read_bytes = 0;
  std::uint64_t written_bytes = 0;
  std::uint64_t errors = 0;            // data requests answered with an error
  std::uint64_t left = 0;              // data requests left for the next server
  std::uint64_t answers_unwanted = 0;  // the kernel no longer waited
  std::uint64_t memory_waits = 0;      // the buffer pool was exhausted
  std::uint32_t in_flight = 0;
  std::uint32_t in_flight_max = 0;
};

// How a connection ended.
enum class End { stopped, unmounted, aborted };

class Server {
 public:
  Server(Env& env, Channel& channel, BlockTarget& target, ServerOptions options);
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  Task<Result<End>> serve();
  // Reads no further request; serve() returns when those in flight are done.
  void stop();
  // Makes the kernel ask again for the file's attributes: the target's size has changed.
  void announce_size();

  // Set once INIT was answered, or from the start after a take-over.
  const std::optional<Negotiated>& negotiated() const { return negotiated_; }
  const ServerCounters& counters() const { return counters_; }

 private:
  struct Reading;

  Result<void> ask_for_resend();
  Task<Result<Buffer>> buffer_of(std::size_t bytes);
  Task<Result<std::optional<End>>> read_batch();
  Result<void> dispatch(std::size_t packet_bytes);
  void dispatch_metadata(const Request& request);
  void start_write(const Request& request);

  Result<void> init(const Request& request);
  void lookup(const Request& request);
  void open(const Request& request);
  void statfs(const Request& request);
  fuse_attr attributes(std::uint64_t node) const;

  Task<void> read(std::uint64_t unique, fuse_read_in in);
  Task<void> write(std::uint64_t unique, fuse_write_in in, Buffer buffer, std::size_t data_offset);
  Task<void> allocate(std::uint64_t unique, fuse_fallocate_in in);
  Task<void> seek(std::uint64_t unique, fuse_lseek_in in);
  Task<void> flush(std::uint64_t unique);

  void spawn(Task<void> work);
  Task<void> counted(Task<void> work);
  // The length of what [offset, offset + length) has in common with the file.
  std::uint64_t clip(std::uint64_t offset, std::uint64_t length) const;

  void answer(std::uint64_t unique, std::span<const std::byte> body);
  void answer_error(std::uint64_t unique, int errno_value);
  void answer_outcome(std::uint64_t unique, const Result<void>& outcome);
  void answer_failure(std::uint64_t unique, const Error& error);
  int send(std::uint64_t unique, int error, std::span<const std::byte> body);

  Env& env_;
  Channel& channel_;
  BlockTarget& target_;
  ServerOptions options_;
  std::optional<Negotiated> negotiated_;
  ServerCounters counters_;
  bool stopping_ = false;
  Buffer receive_;  // the next packet, at kPacketOffset; empty after a large write took it
  Condition request_done_;
  Scope requests_;
};

// What a request is answered with when the target failed, as a positive errno value.
int errno_of(const Error& error);

}  // namespace sarsen::fuse
