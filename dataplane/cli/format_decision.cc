#include "dataplane/cli/format_decision.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dataplane/cli/command.h"

namespace sarsen {
namespace {

std::string name_of(const DeviceUse& use) {
  if (use.resolved_path.empty() || use.resolved_path == use.path) return use.path;
  return fmt::format("{} (which is {})", use.path, use.resolved_path);
}

std::string describe(const ForeignSignature& signature) {
  std::string text = "a " + signature.what;
  if (!signature.label.empty()) text += fmt::format(" '{}'", signature.label);
  if (!signature.offset.empty()) text += fmt::format(" at byte {}", signature.offset);
  return text;
}

std::optional<std::string> refuse_foreign(const DeviceUse& use, const DeviceContents& contents) {
  if (contents.foreign.empty()) return std::nullopt;
  std::string list;
  for (const auto& signature : contents.foreign) {
    list += (list.empty() ? "" : ", ") + describe(signature);
  }
  return fmt::format(
      "{} holds {}. Nothing was changed. Sarsen never overwrites what is not its own: give an "
      "empty device, or, if you are certain that this data is not needed, remove the signature "
      "and the data yourself (wipefs, blkdiscard)",
      name_of(use), list);
}

std::optional<std::string> refuse_store(const FormatRequest& request, const DeviceUse& use,
                                        const FoundStore& store) {
  if (store.device_ids.empty()) {
    return fmt::format(
        "{} holds a Sarsen store whose id cannot be read: {} superblock copies, none valid for "
        "this version. Nothing was changed. 'sarsen device inspect' says more; to give the data "
        "up, erase the device yourself (blkdiscard)",
        name_of(use), store.copies_found);
  }
  if (store.device_ids.size() > 1) {
    return fmt::format(
        "{} holds superblocks of different Sarsen stores: {}. Nothing was changed. To give both "
        "up, erase the device yourself (blkdiscard)",
        name_of(use), fmt::join(store.device_ids, ", "));
  }
  const std::string& id = store.device_ids.front();
  if (!request.destroy) {
    return fmt::format(
        "{} holds a Sarsen store, device id {}. Nothing was changed. To destroy all of its data: "
        "--destroy --confirm with that id",
        name_of(use), id);
  }
  if (request.confirmed_id != id) {
    return fmt::format(
        "{} is device {}, but --confirm says '{}'. Nothing was changed. Is this the right device? "
        "--confirm must be the device's own id, in full",
        name_of(use), id, request.confirmed_id);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> refuse_used(const DeviceUse& use) {
  if (use.reasons.empty()) return std::nullopt;
  return fmt::format("{} {}. Nothing was changed", name_of(use), fmt::join(use.reasons, "; "));
}

std::optional<std::string> refuse_format(const FormatRequest& request, const DeviceUse& use,
                                         const DeviceContents& contents) {
  if (auto used = refuse_used(use)) return used;  // I-CLI-1
  if (auto foreign = refuse_foreign(use, contents)) return foreign;
  if (contents.store) return refuse_store(request, use, *contents.store);  // I-CLI-2
  if (request.destroy) {
    return fmt::format(
        "{} holds no Sarsen store, so not the device '{}' that --confirm names. Nothing was "
        "changed. Is this the right device? A device without a store is formatted without "
        "--destroy",
        name_of(use), request.confirmed_id);
  }
  if (contents.data_at && !contents.interrupted_format) {
    return fmt::format(
        "{} is not empty: it has data at byte {}, without a signature that is known. Nothing was "
        "changed. Give an empty device, or, if you are certain that this data is not needed, "
        "erase it yourself ({})",
        name_of(use), *contents.data_at,
        use.block_device ? "blkdiscard, or dd from /dev/zero" : "remove the file, then --create");
  }
  return std::nullopt;
}

std::string describe_loss(const DeviceContents& contents) {
  if (contents.store && contents.store->newest) {
    const Superblock& superblock = *contents.store->newest;
    return fmt::format(
        "the Sarsen store {} (osd {}, cluster {}, formatted {}, opened {} times, {}) with all of "
        "its data",
        to_string(superblock.device), superblock.osd_id, to_string(superblock.cluster),
        describe_time(superblock.formatted_wall_time_ns), superblock.start_count,
        describe_bytes(superblock.geometry.device_bytes));
  }
  if (contents.interrupted_format) return "the remains of a format that was interrupted";
  return "nothing: the device is empty";
}

}  // namespace sarsen
