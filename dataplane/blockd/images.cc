#include "dataplane/blockd/images.h"

#include <utility>

#include "dataplane/runtime/error.h"
#include "dataplane/runtime/scope.h"

namespace sarsen::blockd {
namespace {

std::optional<ImageState> state_in(const keeper::Held& held) {
  if (held.kind != keeper::kKindFuse) return decode_image_state(held.state);
  const auto device = fuse::decode_device_state(held.state);
  return device ? decode_image_state(device->user) : std::nullopt;
}

Result<void> check(const MapOptions& options) {
  const auto name = parse_image_name(options.image);
  if (!name) return fail(name.error());
  if (options.sector_bytes != 512 && options.sector_bytes != 4096) {
    return fail(make_error(
        RuntimeError::bad_argument,
        "sector size " + std::to_string(options.sector_bytes) + ": expected 512 or 4096"));
  }
  return {};
}

bool is_same(const ImageState& state, const MapOptions& options) {
  return state.frontend == options.frontend && state.sector_bytes == options.sector_bytes &&
         state.mode == options.mode;
}

}  // namespace

// ---------------------------------------------------------------------------- take over

Task<Result<std::uint32_t>> Images::recover() {
  auto all =
      co_await context_.env.blocking.run([keeper = &context_.keeper] { return keeper->recover(); });
  if (!all) co_return sarsen::fail(all.error());
  std::uint32_t taken = 0;
  std::vector<std::uint32_t> loops;
  for (keeper::Held& held : *all) {
    if (held.kind == keeper::kKindFuse) {
      if (const auto device = fuse::decode_device_state(held.state)) {
        loops.push_back(device->loop_number);
      }
    }
    if (take_over(std::move(held))) ++taken;
  }
  const auto swept =
      co_await context_.env.blocking.run([helper = &context_.helper, prefix = context_.label_prefix,
                                          loops] { return helper->sweep(prefix, loops); });
  if (!swept) {
    context_.log.warning("half-made loop devices were not looked for", {{"error", swept.error()}});
  } else if (*swept > 0) {
    context_.log.warning("half-made loop devices were freed", {{"count", *swept}});
  }
  co_return taken;
}

bool Images::take_over(keeper::Held held) {
  auto state = state_in(held);
  if (!state) {
    // Of a later version, or of somebody else: it stays in the keeper, untouched.
    context_.log.error("the keeper holds what this version cannot take over",
                       {{"name", held.name}, {"kind", held.kind}});
    return false;
  }
  auto image = std::make_shared<MappedImage>(context_, std::move(*state));
  image->take_over(std::move(held));
  images_.emplace(image->state().name, std::move(image));
  return true;
}

// ------------------------------------------------------------------------- map and unmap

Images::Pointer Images::find(const std::string& name) {
  const auto found = images_.find(name);
  if (found == images_.end()) return nullptr;
  if (found->second->gone()) {
    images_.erase(found);
    return nullptr;
  }
  return found->second;
}

void Images::forget(const Pointer& image) {
  const auto found = images_.find(image->state().name);
  if (found != images_.end() && found->second == image) images_.erase(found);
}

Task<Result<ImageReport>> Images::map(MapOptions options) {
  if (const auto good = check(options); !good) co_return sarsen::fail(good.error());
  Pointer image = find(options.image);
  if (image && image->phase() == ImagePhase::detaching) {
    if (auto ended = co_await image->unmap(false); !ended) co_return sarsen::fail(ended.error());
    forget(image);
    image = find(options.image);
  }
  if (image) {
    if (!is_same(image->state(), options)) {
      co_return sarsen::fail(
          make_error(BlockdError::mapped_otherwise,
                     options.image + ": " + std::string(name_of(image->state().frontend)) +
                         ", sectors of " + std::to_string(image->state().sector_bytes) + " bytes" +
                         (image->state().read_only() ? ", read-only" : "")));
    }
    SARSEN_CO_TRY(co_await image->settled());
    if (image->phase() != ImagePhase::serving) {
      co_return sarsen::fail(make_error(
          image->phase() == ImagePhase::starting ? BlockdError::waiting : BlockdError::failed,
          options.image + " is " + std::string(name_of(image->phase()))));
    }
    co_return image->report();
  }
  ImageState state;
  state.name = options.image;
  state.mode = options.mode;
  state.frontend = options.frontend;
  state.sector_bytes = options.sector_bytes;
  image = std::make_shared<MappedImage>(context_, std::move(state));
  images_.emplace(options.image, image);
  if (auto mapped = co_await image->map(); !mapped) {
    forget(image);
    co_return sarsen::fail(mapped.error());
  }
  co_return image->report();
}

Task<Result<void>> Images::unmap(std::string name, bool force) {
  if (const auto good = parse_image_name(name); !good) co_return sarsen::fail(good.error());
  const Pointer image = find(name);
  if (!image) co_return co_await detach_leftovers(std::move(name));
  SARSEN_CO_TRY(co_await image->unmap(force));
  forget(image);
  co_return Result<void>();
}

// A blockd that was killed while it mapped or unmapped may have left an attachment.
Task<Result<void>> Images::detach_leftovers(std::string name) {
  const auto image = co_await context_.env.blocking.run(
      [mon = &context_.mon, parts = *parse_image_name(name)] { return mon->get_image(parts); });
  if (!image) co_return sarsen::fail(image.error());
  std::uint32_t detached = 0;
  for (const AttachmentEntry& left : image->attachments) {
    if (left.holder != context_.holder) continue;
    const DetachRequest request{image->id, left.holder, left.epoch, false};
    const auto done = co_await context_.env.blocking.run(
        [mon = &context_.mon, request] { return mon->detach_image(request); });
    if (!done) co_return sarsen::fail(done.error());
    ++detached;
  }
  if (detached == 0) co_return sarsen::fail(make_error(BlockdError::not_mapped, name));
  context_.log.info("detached what an earlier run left", {{"image", name}, {"count", detached}});
  co_return Result<void>();
}

Task<Result<void>> Images::fail(std::string name) {
  const Pointer image = find(name);
  if (!image) co_return sarsen::fail(make_error(BlockdError::not_mapped, name));
  co_return co_await image->fail();
}

std::vector<ImageReport> Images::report() const {
  std::vector<ImageReport> reports;
  for (const auto& [name, image] : images_) {
    if (!image->gone()) reports.push_back(image->report());
  }
  return reports;
}

Task<void> Images::stop() {
  Scope stopping(context_.env.executor);
  for (const auto& [name, image] : images_) stopping.spawn(image->stop());
  co_await stopping.join();
  images_.clear();
}

// --------------------------------------------------------------------------------- exports

std::vector<nbd::ExportSummary> Images::list() {
  std::vector<nbd::ExportSummary> summaries;
  for (const auto& [name, image] : images_) {
    if (image->state().frontend == Frontend::nbd && image->phase() == ImagePhase::serving) {
      summaries.push_back({name, std::string(name_of(image->phase()))});
    }
  }
  return summaries;
}

Task<Result<nbd::Export>> Images::open(std::string name) {
  const Pointer image = find(name);
  if (!image || image->state().frontend != Frontend::nbd) {
    co_return sarsen::fail(make_error(RuntimeError::not_found, name));
  }
  // A client that comes back after blockd was replaced must not see half a start.
  SARSEN_CO_TRY(co_await image->settled());
  if (image->phase() != ImagePhase::serving) {
    co_return sarsen::fail(
        make_error(BlockdError::waiting, name + " is " + std::string(name_of(image->phase()))));
  }
  co_return nbd::Export{{name, "image " + name}, image->target()};
}

}  // namespace sarsen::blockd
