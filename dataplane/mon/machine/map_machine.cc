#include "dataplane/mon/machine/map_machine.h"

#include <algorithm>
#include <type_traits>

#include "dataplane/mon/machine/rules.h"
#include "dataplane/placement/map_bounds.h"

namespace sarsen {
namespace rules {

Result<void> check_name(const char* of_what, const std::string& name) {
  const auto word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  const bool good =
      !name.empty() && name.size() <= MapBounds::kNameBytesMax && word(name[0]) &&
      std::ranges::all_of(name, [&](char c) { return word(c) || c == '.' || c == '-'; });
  if (good) return {};
  return refuse(MonError::bad_request, std::string(of_what) + " name '" +
                                           name.substr(0, MapBounds::kNameBytesMax) +
                                           "': expected 1 to 255 letters, digits, '.', '_' or '-', "
                                           "the first a letter, a digit or '_'");
}

}  // namespace rules

Result<MonState> create_cluster(const ClusterOptions& options) {
  SARSEN_TRY(rules::check_name("pool", options.pool));
  if (options.group_bits > MapBounds::kGroupBitsMax) {
    return rules::refuse(MonError::bad_request, "group bits " + std::to_string(options.group_bits) +
                                                    ": expected 0 to " +
                                                    std::to_string(MapBounds::kGroupBitsMax));
  }
  MonState state;
  state.map.cluster = options.cluster;
  state.map.store_incarnation = options.store_incarnation;
  state.map.epoch = MapEpoch(1);
  const PoolId id(state.pool_next++);
  PoolEntry pool{.id = id, .name = options.pool, .group_bits = options.group_bits};
  pool.groups.resize(std::size_t{1} << options.group_bits);
  state.map.pools.emplace(id, std::move(pool));
  return state;
}

Result<MonState> decide(const MonState& state, const MonCommand& command,
                        std::int64_t wall_time_ns) {
  MonState next = state;
  const auto changed = std::visit(
      [&](const auto& kind) -> Result<bool> {
        if constexpr (std::is_same_v<std::decay_t<decltype(kind)>, CreateImage>) {
          return rules::apply(next, kind, wall_time_ns);
        } else {
          return rules::apply(next, kind);
        }
      },
      command);
  if (!changed) return fail(changed.error());
  if (*changed) next.map.epoch = state.map.epoch.next();
  return next;
}

}  // namespace sarsen
