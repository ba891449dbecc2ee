#include "dataplane/client/image_session.h"

#include <utility>

#include "dataplane/client/attached_session.h"
#include "dataplane/client/error.h"
#include "dataplane/runtime/timeout.h"

namespace sarsen {
namespace {

enum class Sight : std::uint8_t { nothing, no_image, no_attachment, attached, gone };

// Attach epochs only rise: a pair that is not there and is not newer than the latest was removed.
Sight look(const ClusterMap& map, const ImageSessionOptions& options) {
  if (map.epoch == MapEpoch(0)) return Sight::nothing;
  const ImageEntry* image = map.find_image(options.image);
  if (image == nullptr) return Sight::no_image;
  if (image->find_attachment(options.holder, options.attach_epoch) != nullptr) {
    return Sight::attached;
  }
  return options.attach_epoch > image->last_attach_epoch ? Sight::no_attachment : Sight::gone;
}

Error error_of(Sight sight, const ImageSessionOptions& options) {
  const std::string image = "image " + std::to_string(options.image.value);
  switch (sight) {
    case Sight::nothing: return make_error(ClientError::timed_out, "no cluster map came");
    case Sight::no_image: return make_error(ClientError::not_found, image);
    default: return make_error(ClientError::fenced, image);
  }
}

}  // namespace

Task<Result<std::unique_ptr<ImageSession>>> ImageSession::open(const Env& env, MapSource& map,
                                                               ImageSessionOptions options) {
  const Deadline deadline = Deadline::after(env.clock, options.open_max);
  while (true) {
    const MapEpoch seen = map.current()->epoch;
    const Sight sight = look(*map.current(), options);
    if (sight == Sight::attached) {
      co_return std::unique_ptr<ImageSession>(std::make_unique<AttachedSession>(env, map, options));
    }
    if (sight == Sight::gone || deadline.passed(env.clock)) {
      co_return fail(error_of(sight, options));
    }
    if (seen > MapEpoch(0)) map.suspect(seen);
    const auto wait = [&map, seen](CancelToken token) { return map.wait_newer(seen, token); };
    (void)co_await with_deadline(env.clock, env.executor, deadline, wait);
  }
}

}  // namespace sarsen
