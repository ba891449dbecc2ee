// The rules behind decide(), by subject. Each changes `state` and gives whether it did; after an
// error the caller throws `state` away. Internal to this folder.
#pragma once

#include <cstdint>
#include <string>

#include "dataplane/base/result.h"
#include "dataplane/mon/machine/mon_command.h"
#include "dataplane/mon/machine/mon_state.h"

namespace sarsen::rules {

// image_rules.cc
Result<bool> apply(MonState& state, const CreateImage& command, std::int64_t wall_time_ns);
Result<bool> apply(MonState& state, const ResizeImage& command);
Result<bool> apply(MonState& state, const RemoveImage& command);
Result<bool> apply(MonState& state, const NotePurged& command);

// attachment_rules.cc
Result<bool> apply(MonState& state, const AttachRequest& command);
Result<bool> apply(MonState& state, const DetachRequest& command);
// "holder 7 as single writer (attach epoch 3), ..."
std::string describe_holders(const ImageEntry& image);

// osd_rules.cc
Result<bool> apply(MonState& state, const CreateOsd& command);
Result<bool> apply(MonState& state, const ForgetOsd& command);
Result<bool> apply(MonState& state, const OsdBoot& command);
Result<bool> apply(MonState& state, const MarkOsd& command);

// Names that people type: letters, digits, '.', '_' and '-', the first a letter or digit or '_'.
Result<void> check_name(const char* of_what, const std::string& name);

inline Unexpected refuse(MonError code, std::string why) {
  return fail(make_error(code, std::move(why)));
}

}  // namespace sarsen::rules
