#include "dataplane/cli/image_commands.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

#include "dataplane/membership/rpc/mon_client.h"

namespace sarsen {
namespace {

constexpr const char* kDefaultPool = "rbd";
constexpr auto kRemoveLookInterval = std::chrono::milliseconds(200);

// The mon refused, or it could not be asked.
ExitCode print_error(const Error& error, OutputFormat format) {
  const bool refused = &error.category() == &mon_errors() && !error.retryable();
  return print_failure(
      refused || is(error, MonError::busy) ? ExitCode::problems : ExitCode::could_not,
      error.message(), format);
}

const char* name_of(AttachMode mode) {
  switch (mode) {
    case AttachMode::single_writer: return "single-writer";
    case AttachMode::multi_writer: return "multi-writer";
    case AttachMode::read_only: return "read-only";
  }
  return "?";
}

const char* state_of(const ImageEntry& image) {
  if (image.state == ImageState::removing) return "removing";
  return image.purging ? "shrinking" : "ready";
}

Json image_report(const ImageName& name, const ImageEntry& image, OutputFormat format) {
  Json attachments = Json::array();
  for (const AttachmentEntry& attachment : image.attachments) {
    attachments.push_back({{"holder", attachment.holder.value},
                           {"mode", name_of(attachment.mode)},
                           {"attach_epoch", attachment.epoch.value}});
  }
  Json report{{"image", name.pool + "/" + name.name},
              {"id", image.id.value},
              {"size", describe_bytes(image.size_bytes)},
              {"objects", image.object_count()},
              {"object_bytes", kObjectBytes},
              {"state", state_of(image)},
              {"created", describe_time(image.created_wall_time_ns)}};
  // Programs get a number.
  if (format == OutputFormat::json) report["size"] = image.size_bytes;
  if (image.purging) report["placement_groups_purged"] = image.purged.size();
  report["attachments"] = attachments;
  return report;
}

struct Call {
  std::unique_ptr<MonClient> mon;
  ImageName name;
};

Result<Call> prepare(const ImageOptions& options) {
  auto name = parse_image_name(options.image);
  if (!name) return fail(std::move(name).error());
  auto client = MonClient::create({.mon = options.mon});
  if (!client) return fail(std::move(client).error());
  return Call{.mon = *std::move(client), .name = *std::move(name)};
}

ExitCode print_image(const Result<ImageEntry>& image, const ImageName& name, OutputFormat format) {
  if (!image) return print_error(image.error(), format);
  print_report(image_report(name, *image, format), format);
  return ExitCode::ok;
}

// On a terminal the line is written over; into a file nothing is.
void show_progress(const ImageEntry& image) {
  if (::isatty(STDERR_FILENO) == 0) return;
  std::fprintf(stderr, "\rremoving: %zu placement groups have given back their space",
               image.purged.size());
}

// Until the image is gone. A mon that restarts meanwhile is waited for.
ExitCode wait_until_gone(MonApi& mon, const ImageName& name, ImageId id, OutputFormat format) {
  while (true) {
    const auto image = mon.get_image(name);
    const bool gone = image ? image->id != id : is(image.error(), MonError::not_found);
    if (gone) break;
    if (!image && !image.error().retryable()) return print_error(image.error(), format);
    if (image) show_progress(*image);
    std::this_thread::sleep_for(kRemoveLookInterval);
  }
  if (::isatty(STDERR_FILENO) != 0) std::fputs("\n", stderr);
  print_report({{"image", name.pool + "/" + name.name}, {"removed", true}}, format);
  return ExitCode::ok;
}

}  // namespace

Result<ImageName> parse_image_name(const std::string& name) {
  const auto slash = name.find('/');
  ImageName parsed = slash == std::string::npos
                         ? ImageName{kDefaultPool, name}
                         : ImageName{name.substr(0, slash), name.substr(slash + 1)};
  if (parsed.pool.empty() || parsed.name.empty() || parsed.name.find('/') != std::string::npos) {
    return fail(make_error(
        RuntimeError::bad_argument,
        fmt::format("image '{}': expected POOL/IMAGE, or IMAGE of pool {}", name, kDefaultPool)));
  }
  return parsed;
}

ExitCode run_image_create(const ImageOptions& options) {
  auto call = prepare(options);
  if (!call) return print_failure(ExitCode::could_not, call.error().message(), options.format);
  return print_image(call->mon->create_image(call->name, options.size_bytes), call->name,
                     options.format);
}

ExitCode run_image_info(const ImageOptions& options) {
  auto call = prepare(options);
  if (!call) return print_failure(ExitCode::could_not, call.error().message(), options.format);
  return print_image(call->mon->get_image(call->name), call->name, options.format);
}

ExitCode run_image_resize(const ImageOptions& options) {
  auto call = prepare(options);
  if (!call) return print_failure(ExitCode::could_not, call.error().message(), options.format);
  return print_image(call->mon->resize_image(call->name, options.size_bytes, options.allow_shrink),
                     call->name, options.format);
}

ExitCode run_image_remove(const ImageOptions& options) {
  auto call = prepare(options);
  if (!call) return print_failure(ExitCode::could_not, call.error().message(), options.format);
  const std::string full_name = call->name.pool + "/" + call->name.name;
  if (options.confirm != full_name) {
    const auto image = call->mon->get_image(call->name);
    if (!image) return print_error(image.error(), options.format);
    return print_failure(ExitCode::problems,
                         fmt::format("this destroys image {} of {}, for good; to confirm, add "
                                     "--confirm {}. Nothing was changed",
                                     full_name, describe_bytes(image->size_bytes), full_name),
                         options.format);
  }
  const auto image = call->mon->remove_image(call->name);
  if (!image) return print_error(image.error(), options.format);
  if (options.wait) return wait_until_gone(*call->mon, call->name, image->id, options.format);
  print_report({{"image", full_name}, {"state", "removing"}}, options.format);
  return ExitCode::ok;
}

ExitCode run_image_detach(const ImageOptions& options) {
  auto call = prepare(options);
  if (!call) return print_failure(ExitCode::could_not, call.error().message(), options.format);
  const auto image = call->mon->get_image(call->name);
  if (!image) return print_error(image.error(), options.format);
  const std::string full_name = call->name.pool + "/" + call->name.name;
  const HolderId holder(options.holder);
  if (std::ranges::find(image->attachments, holder, &AttachmentEntry::holder) ==
      image->attachments.end()) {
    return print_failure(ExitCode::problems,
                         fmt::format("{} is not attached to holder {}; sarsen image info {} shows "
                                     "who has it",
                                     full_name, holder.value, full_name),
                         options.format);
  }
  if (options.confirm != full_name) {
    return print_failure(
        ExitCode::problems,
        fmt::format("this ends every device of {} on holder {}, and what was not written yet is "
                    "lost; to confirm, add --confirm {}. Nothing was changed",
                    full_name, holder.value, full_name),
        options.format);
  }
  const auto epoch =
      call->mon->detach_image({.image = image->id, .holder = holder, .epoch = {}, .force = true});
  if (!epoch) return print_error(epoch.error(), options.format);
  print_report({{"image", full_name},
                {"holder", holder.value},
                {"detached", true},
                {"map_epoch", epoch->value}},
               options.format);
  return ExitCode::ok;
}

ExitCode run_image_list(const ImageListOptions& options) {
  const auto client = MonClient::create({.mon = options.mon});
  if (!client) return print_failure(ExitCode::could_not, client.error().message(), options.format);
  const auto images = (*client)->list_images(options.pool);
  const auto status = (*client)->status();
  if (!images || !status) {
    return print_error(images ? status.error() : images.error(), options.format);
  }
  Json rows = Json::array();
  for (const ImageEntry& image : *images) {
    const auto pool = std::ranges::find(status->pools, image.pool, &PoolStatus::id);
    Json row{{"image", (pool == status->pools.end() ? "?" : pool->name) + "/" + image.name},
             {"size", describe_bytes(image.size_bytes)},
             {"state", state_of(image)},
             {"attached", image.attachments.size()}};
    if (options.format == OutputFormat::json) row["size"] = image.size_bytes;
    rows.push_back(std::move(row));
  }
  print_report(rows, options.format);
  return ExitCode::ok;
}

}  // namespace sarsen
