#include "dataplane/osd/osd.h"

#include <algorithm>
#include <utility>

#include "dataplane/runtime/timeout.h"

namespace sarsen {
namespace {

wire::ClusterId cluster_of(const Superblock& superblock) {
  wire::ClusterId cluster{};
  std::ranges::transform(superblock.cluster, cluster.begin(),
                         [](std::byte byte) { return std::to_integer<std::uint8_t>(byte); });
  return cluster;
}

}  // namespace

Osd::Osd(Env& env, Disk& disk, BlockingDisk& blocking_disk, MapSource& map, MonApi& mon,
         OsdPlace place, OsdLimits limits, Logger log)
    : env_(env),
      disk_(disk),
      blocking_disk_(blocking_disk),
      map_(map),
      mon_(mon),
      place_(std::move(place)),
      limits_(limits),
      log_(log.with({{"device", disk.info().name}})),
      ending_(env.executor),
      scope_(env.executor) {}

Osd::~Osd() = default;

Task<Result<void>> Osd::run(CancelToken stop) {
  SARSEN_CO_TRY(co_await open());
  auto served = co_await serve(stop);
  co_await end();
  if (failure_) co_return fail(*failure_);
  co_return served;
}

Task<Result<void>> Osd::open() {
  auto opened = co_await Store::open(env_, disk_, blocking_disk_, limits_.store);
  if (!opened) co_return fail(opened.error());
  store_ = *std::move(opened);
  const Superblock& superblock = store_->superblock();
  log_ = log_.with({{"osd", superblock.osd_id}});
  const RecoveryReport& recovery = store_->recovery();
  log_.info("store opened", {{"start", superblock.start_count},
                             {"records_replayed", recovery.records_replayed},
                             {"records_rolled_back", recovery.records_rolled_back},
                             {"headers_rebuilt", recovery.headers_rebuilt},
                             {"superblock_copies_bad", recovery.superblock_copies_bad}});
  if (recovery.blocks_corrupt > 0) {
    log_.error("blocks are corrupt after recovery", {{"blocks", recovery.blocks_corrupt}});
  }
  co_return Result<void>();
}

Task<Result<void>> Osd::serve(CancelToken stop) {
  if (cluster_of(store_->superblock()) == wire::ClusterId{}) {
    co_return fail(make_error(MonError::bad_request,
                              "the device belongs to no cluster; make it one of a cluster's with "
                              "'sarsen osd create'"));
  }
  SARSEN_CO_TRY(check_address());
  auto booted = co_await boot(stop);
  if (!booted) co_return fail(booted.error());
  booted_ = *booted;
  // I-OSD-1: until the map has this incarnation, the service is inactive to everybody.
  service_ = std::make_unique<ImageService>(env_, map_, *store_,
                                            OsdRun{.osd = id(), .incarnation = booted_.incarnation},
                                            limits_.service);
  service_->start();
  wire::ServerIdentity identity;
  identity.cluster = cluster_of(store_->superblock());
  identity.osd = id();
  identity.start_counter = store_->superblock().start_count;
  identity.data_bytes_max = limits_.client_bytes_max;
  server_ = std::make_unique<wire::RpcServer>(env_, *service_, identity, limits_.server);
  const auto listening = server_->listen(place_.listen);
  if (!listening) co_return fail(listening.error());
  log_.info(
      "serving",
      {{"address", *listening}, {"incarnation", booted_.incarnation}, {"epoch", booted_.epoch}});
  scope_.spawn(report_until_stopped());
  if (limits_.scrub_bytes_per_second > 0) scope_.spawn(scrub_again_and_again());
  CancelCallback stopped(stop, [this] { ending_.cancel(RuntimeError::stopped); });
  Event never(env_.executor);
  (void)co_await never.wait(ending_.token());
  co_return Result<void>();
}

// Whether it was serving or not.
Task<void> Osd::end() {
  ending_.cancel(RuntimeError::stopped);
  if (server_) co_await server_->stop();
  co_await scope_.join();
  if (service_) {
    co_await service_->stop();
    // The mon need not wait for silence.
    if (!failure_) (void)co_await report(true);
  }
  if (store_) co_await store_->stop();
  server_.reset();
  service_.reset();
  store_.reset();
  log_.info("ended");
}

// Before the mon is told: a boot that nobody can reach takes the groups away from nobody.
Result<void> Osd::check_address() {
  auto listener = env_.network.listen(place_.listen);
  if (!listener) return fail(listener.error());
  (*listener)->close();
  return {};
}

Task<Result<OsdBooted>> Osd::boot(CancelToken stop) {
  const Superblock& superblock = store_->superblock();
  const OsdBoot request{.osd = id(),
                        .device = superblock.device,
                        .cluster = cluster_of(superblock),
                        .start_counter = superblock.start_count,
                        .boot_id = env_.random.next(),
                        .address = place_.advertised.empty() ? place_.listen : place_.advertised,
                        .node = place_.node};
  Duration delay = limits_.boot_delay_first;
  for (bool first = true;; first = false) {
    auto booted = co_await env_.blocking.run([this, &request] { return mon_.boot_osd(request); });
    if (booted || !booted.error().retryable()) co_return booted;
    if (first) log_.warning("waits for the mon", {{"error", booted.error()}});
    SARSEN_CO_TRY(co_await sleep_for(env_.clock, delay, stop));
    delay = std::min(delay * 2, limits_.boot_delay_max);
  }
}

// ---------------------------------------------------------------------------------------- reports

OsdReport Osd::make_report(bool stopping) const {
  const StoreStats stats = store_->stats();
  return {.osd = id(),
          .incarnation = booted_.incarnation,
          .map_epoch = service_->settled_epoch(),
          .space = stats.space,
          .read_only = stats.read_only,
          .corrupt_blocks_found = stats.corrupt_blocks_found,
          .purged = service_->purges_done(),
          .stopping = stopping};
}

Task<Result<void>> Osd::report(bool stopping) {
  const OsdReport report = make_report(stopping);
  auto known = co_await env_.blocking.run([this, &report] { return mon_.report_osd(report); });
  if (!known) co_return fail(known.error());
  if (*known > map_.current()->epoch) map_.suspect(map_.current()->epoch);
  co_return Result<void>();
}

// At intervals, and as soon as a newer map is acted on or something was given back: a detach, or a
// person, waits for that.
Task<void> Osd::report_until_stopped() {
  while (!ending_.cancelled()) {
    note_health();
    const MapEpoch told = service_->settled_epoch();
    const std::size_t purges = service_->purges_done().size();
    const auto reported = co_await report(false);
    if (!reported && is(reported.error(), MonError::gone)) {
      log_.error("a later start of this OSD is known: ends", {{"error", reported.error()}});
      failure_ = reported.error();
      ending_.cancel(RuntimeError::stopped);
      co_return;
    }
    if (!reported && mon_answers_) {
      log_.warning("the mon does not answer; I/O goes on", {{"error", reported.error()}});
    }
    if (reported && !mon_answers_) log_.info("the mon answers again");
    mon_answers_ = reported.has_value();
    const auto newer = [this, told, purges](CancelToken token) {
      return service_->wait_news(told, purges, token);
    };
    const auto hurried = co_await with_timeout(env_.clock, env_.executor, limits_.report_interval,
                                               newer, ending_.token());
    // With a mon that is away, a newer map is no reason to hurry.
    if (hurried && !mon_answers_) {
      (void)co_await sleep_for(env_.clock, limits_.report_interval, ending_.token());
    }
  }
}

void Osd::note_health() {
  const bool read_only = store_->stats().read_only;
  if (read_only && !read_only_) {
    log_.error("the device failed a write: it is read on, and takes no more writes");
  }
  read_only_ = read_only;
}

// ------------------------------------------------------------------------------------------ scrub

Task<void> Osd::scrub_again_and_again() {
  Duration wait = limits_.scrub_first_after;
  while (co_await sleep_for(env_.clock, wait, ending_.token())) {
    const auto report = co_await store_->scrub(
        {.bytes_per_second = limits_.scrub_bytes_per_second, .token = ending_.token()});
    if (!report) {
      if (!ending_.cancelled()) log_.warning("scrub ended", {{"error", report.error()}});
    } else if (report->corrupt_found > 0) {
      log_.error("scrub found corrupt blocks",
                 {{"checked", report->blocks_checked}, {"corrupt", report->corrupt_found}});
    } else {
      log_.info("scrub found nothing wrong", {{"checked", report->blocks_checked}});
    }
    wait = limits_.scrub_pause;
  }
}

}  // namespace sarsen
