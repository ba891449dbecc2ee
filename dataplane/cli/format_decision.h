// Whether a device may be formatted: a pure function of what was found and of what was asked.
//
// Invariants
//   I-CLI-1  A device that somebody uses, that carries a foreign signature, or that holds data
//            nobody recognises is never formatted; no option changes that.
//   I-CLI-2  A Sarsen store is formatted only when its id, as every readable superblock has it,
//            was typed. A typed id that is not on the device refuses too: it is the wrong device.
#pragma once

#include <optional>
#include <string>

#include "dataplane/cli/device_contents.h"
#include "dataplane/cli/device_use.h"

namespace sarsen {

struct FormatRequest {
  bool destroy = false;
  std::string confirmed_id;  // empty: none was typed
};

// Why not; empty: nothing speaks against it.
std::optional<std::string> refuse_format(const FormatRequest& request, const DeviceUse& use,
                                         const DeviceContents& contents);
// The part that can be said before the device is opened.
std::optional<std::string> refuse_used(const DeviceUse& use);
// What a format would destroy: one sentence.
std::string describe_loss(const DeviceContents& contents);

}  // namespace sarsen
