// What may change the cluster map: one struct per kind of command.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "dataplane/membership/mon_api.h"

namespace sarsen {

struct CreateImage {
  ImageName name;
  std::uint64_t size_bytes = 0;
};

struct ResizeImage {
  ImageName name;
  std::uint64_t size_bytes = 0;
  bool allow_shrink = false;
};

struct RemoveImage {
  ImageName name;
};

struct CreateOsd {
  Uuid device{};
  std::string node;
};

struct ForgetOsd {
  OsdId osd{};
  Uuid device{};
};

// The mon has heard nothing of this run of an OSD for too long, hears of it again, or heard that it
// ends. Changes no configuration: with one copy nobody else could lead.
struct MarkOsd {
  OsdId osd{};
  std::uint64_t incarnation = 0;
  bool up = false;
};

struct NotePurged {
  OsdId osd{};
  std::uint64_t incarnation = 0;
  std::vector<PurgeDone> done;
};

using MonCommand = std::variant<CreateImage, ResizeImage, RemoveImage, AttachRequest, DetachRequest,
                                CreateOsd, ForgetOsd, OsdBoot, MarkOsd, NotePurged>;

}  // namespace sarsen
