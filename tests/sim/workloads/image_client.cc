#include "tests/sim/workloads/image_client.h"

#include <algorithm>
#include <cstring>

#include "dataplane/runtime/when_all.h"

namespace sarsen::sim {
namespace {

// In bytes of the image. A range of model blocks lies in one object.
std::uint64_t offset_of(BlockIndex block) {
  const std::uint64_t within = block.value % kImageWindow;
  return block.value / kImageWindow * kObjectBytes + (kImageWindowStart + within) * kBlockBytes;
}

std::uint64_t sector_offset(std::uint64_t client, std::uint64_t worker) {
  return worker % 2 * kObjectBytes + std::uint64_t{kRegisterBlock} * kBlockBytes +
         (client * kWorkers + worker) * kRegisterBytes;
}

}  // namespace

ImageClient::ImageClient(SimNode& node, MonStandIn& mon, ImageClients& clients,
                         std::uint64_t number)
    : node_(node),
      clients_(clients),
      number_(number),
      map_(node.env().executor),
      scope_(node.env().executor) {
  mon.follow(node, map_);
  scope_.spawn(run());
}

Task<void> ImageClient::run() {
  while (!clients_.finished()) {
    const AttachmentPointer attachment = clients_.given[number_];
    if (attachment && !attachment->detached) co_await serve(attachment);
    (void)co_await node_.env().clock.sleep(milliseconds(2));
  }
}

Task<void> ImageClient::serve(AttachmentPointer attachment) {
  ImageSessionOptions options;
  options.image = kSimImage;
  options.holder = holder_of(number_);
  options.attach_epoch = attachment->epoch;
  options.session = wire::SessionId(++clients_.sessions[number_]);
  options.call_max = clients_.call_max;
  auto opened = co_await ImageSession::open(node_.env(), map_, options);
  if (!opened) co_return;  // detached meanwhile
  session_ = *std::move(opened);
  // From here on nothing of an earlier session begins any more.
  if (co_await read_everything(attachment)) {
    clients_.judge.client_returned(number_);
    ++clients_.verified;
    std::vector<Task<void>> workers;
    for (std::uint64_t i = 0; i < kWorkers; ++i) workers.push_back(work(attachment, i));
    co_await when_all(node_.env().executor, std::move(workers));
  }
  co_await session_->stop();
  session_.reset();
}

Task<bool> ImageClient::read_everything(AttachmentPointer attachment) {
  for (std::uint64_t object = 0; object < kImageObjects; ++object) {
    if (!co_await read(attachment, BlockIndex(object * kImageWindow), kImageWindow)) {
      co_return false;
    }
  }
  co_return true;
}

std::uint32_t ImageClient::draw_count(std::uint32_t most) {
  return static_cast<std::uint32_t>(clients_.rng.between(1, most));
}

BlockIndex ImageClient::draw_first(std::uint32_t count) {
  const std::uint64_t object = clients_.rng.below(kImageObjects);
  return BlockIndex(object * kImageWindow + clients_.rng.below(kImageWindow - count + 1));
}

Task<void> ImageClient::work(AttachmentPointer attachment, std::uint64_t worker) {
  Rng& rng = clients_.rng;
  while (!over()) {
    const std::uint64_t choice = rng.below(100);
    const std::uint32_t count = draw_count(rng.chance(0.8) ? 2 : 20);
    const BlockIndex first = draw_first(count);
    if (choice < 40) {
      co_await write(attachment, first, count);
    } else if (choice < 50) {
      co_await zero(attachment, first, count);
    } else if (choice < 80) {
      (void)co_await read(attachment, first, count);
    } else if (choice < 98) {
      co_await use_sector(attachment, worker);
    } else {
      (void)co_await session_->status(0, kImageObjects * std::uint64_t{kObjectBytes}, 100);
    }
    ++clients_.operations_done;
    if (rng.chance(0.1)) {
      const auto pause = static_cast<std::int64_t>(rng.below(5'000));
      (void)co_await node_.env().clock.sleep(microseconds(pause));
    }
  }
}

Task<void> ImageClient::write(AttachmentPointer attachment, BlockIndex first, std::uint32_t count) {
  const auto operation = clients_.judge.begin_write(number_, attachment, first, count, false);
  std::vector<std::byte> data(std::size_t{count} * kBlockBytes);
  clients_.judge.fill(operation, first, data);
  const auto result = co_await session_->write(offset_of(first), data);
  clients_.judge.end_write(operation, result);
}

Task<void> ImageClient::zero(AttachmentPointer attachment, BlockIndex first, std::uint32_t count) {
  const auto operation = clients_.judge.begin_write(number_, attachment, first, count, true);
  const std::uint64_t length = std::uint64_t{count} * kBlockBytes;
  const std::uint64_t choice = clients_.rng.below(3);
  const auto result = choice == 0
                          ? co_await session_->trim(offset_of(first), length)
                          : co_await session_->write_zeroes(offset_of(first), length, choice == 1);
  clients_.judge.end_write(operation, result);
}

// False when the session is over.
Task<bool> ImageClient::read(AttachmentPointer attachment, BlockIndex first, std::uint32_t count) {
  const auto operation = clients_.judge.begin_read(number_, attachment, first, count);
  std::vector<std::byte> into(std::size_t{count} * kBlockBytes);
  const auto result = co_await session_->read(offset_of(first), into);
  clients_.judge.end_read(operation, result, into);
  co_return result.has_value();
}

// Its owner alone writes it, and reads it back.
Task<void> ImageClient::use_sector(AttachmentPointer attachment, std::uint64_t worker) {
  ImageJudge::Sector& sector = clients_.judge.sector(number_, worker);
  const std::uint64_t offset = sector_offset(number_, worker);
  std::array<std::byte, kRegisterBytes> bytes{};
  if (clients_.rng.chance(0.6) && !attachment->detached) {
    const std::uint64_t value = ++sector.sent;
    std::memcpy(bytes.data(), &value, sizeof(value));
    const auto written = co_await session_->write(offset, bytes);
    if (written) sector.seen = std::max(sector.seen, value);
    co_return;
  }
  const std::uint64_t least = sector.seen;
  const auto read = co_await session_->read(offset, bytes);
  std::uint64_t found = 0;
  std::memcpy(&found, bytes.data(), sizeof(found));
  if (read) clients_.judge.check_sector(sector, least, found);
}

}  // namespace sarsen::sim
