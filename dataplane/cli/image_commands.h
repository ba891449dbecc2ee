// The verbs of `sarsen image` that change or show the catalogue. Each prints its report and gives
// the exit code.
#pragma once

#include <cstdint>
#include <string>

#include "dataplane/base/result.h"
#include "dataplane/cli/command.h"
#include "dataplane/membership/mon_api.h"

namespace sarsen {

// "POOL/IMAGE", or "IMAGE" of pool rbd. Error: bad_argument.
Result<ImageName> parse_image_name(const std::string& name);

struct ImageOptions {
  std::string mon;
  std::string image;  // as parse_image_name() takes it
  std::uint64_t size_bytes = 0;
  bool allow_shrink = false;
  std::string confirm;       // remove, detach: the name once more
  std::uint64_t holder = 0;  // detach
  bool wait = true;          // remove: until the space is given back
  OutputFormat format = OutputFormat::text;
};
ExitCode run_image_create(const ImageOptions& options);
ExitCode run_image_info(const ImageOptions& options);
ExitCode run_image_resize(const ImageOptions& options);
// Refuses when the image is attached, and when `confirm` is not its name.
ExitCode run_image_remove(const ImageOptions& options);

// Ends all attachments of a holder that cannot do it itself: a node that is gone. Whatever of it
// still runs can never write to the image again. Refuses when `confirm` is not the image's name.
ExitCode run_image_detach(const ImageOptions& options);

struct ImageListOptions {
  std::string mon;
  std::string pool;  // empty: all
  OutputFormat format = OutputFormat::text;
};
ExitCode run_image_list(const ImageListOptions& options);

}  // namespace sarsen
