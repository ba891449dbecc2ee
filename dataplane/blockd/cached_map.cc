#include "dataplane/blockd/cached_map.h"

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataplane/keeper/descriptor.h"
#include "dataplane/membership/rpc/map_codec.h"
#include "dataplane/runtime/error.h"

namespace sarsen::blockd {
namespace {

// Whole or not at all to whoever reads it later; not synced, because it need not survive a boot.
Result<void> replace_file(const std::string& path, const std::string& bytes) {
  const std::string draft = path + ".new";
  {
    const keeper::Descriptor file(
        ::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!file) return fail(error_from_errno(errno, "create " + draft));
    for (std::size_t done = 0; done < bytes.size();) {
      const ssize_t written = ::write(file.get(), bytes.data() + done, bytes.size() - done);
      if (written <= 0) return fail(error_from_errno(errno, "write " + draft));
      done += static_cast<std::size_t>(written);
    }
  }
  if (::rename(draft.c_str(), path.c_str()) != 0) {
    return fail(error_from_errno(errno, "rename " + draft));
  }
  return {};
}

}  // namespace

CachedMap::CachedMap(Env& env, MapSource& upstream, std::string path, Logger log)
    : MapSource(env.executor),
      env_(env),
      upstream_(upstream),
      path_(std::move(path)),
      log_(std::move(log)),
      stopping_(env.executor),
      following_(env.executor) {}

void CachedMap::start(bool use_kept) {
  if (use_kept) load();
  following_.spawn(follow());
}

Task<void> CachedMap::stop() {
  stopping_.cancel(RuntimeError::stopped);
  co_await following_.join();
}

void CachedMap::load() {
  std::ifstream file(path_, std::ios::binary);
  if (!file) return;
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto update = decode_update(bytes);
  auto map = std::make_shared<ClusterMap>();
  if (!update || !apply(*map, *update)) {
    log_.warning("the kept cluster map cannot be read", {{"path", path_}});
    return;
  }
  log_.info("goes on with the kept cluster map", {{"epoch", map->epoch}});
  publish(std::move(map));
}

Task<void> CachedMap::follow() {
  MapEpoch seen{};
  while (co_await upstream_.wait_newer(seen, stopping_.token())) {
    const auto map = upstream_.current();
    seen = map->epoch;
    const bool known = current()->epoch > MapEpoch(0);
    if (known && (map->cluster != current()->cluster ||
                  map->store_incarnation != current()->store_incarnation)) {
      log_.error("the mon has a map of another cluster or store than what is mapped here",
                 {{"epoch", map->epoch}, {"kept", path_}});
      continue;
    }
    confirmed_ = map->epoch >= current()->epoch;
    publish(map);
    const auto kept = co_await env_.blocking.run(
        [path = path_, map] { return replace_file(path, encode_update(difference({}, *map))); });
    if (!kept) log_.warning("the cluster map is not kept", {{"error", kept.error()}});
  }
}

}  // namespace sarsen::blockd
