// The verbs of `sarsen device`. Each prints its report and gives the exit code; main() parses.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "dataplane/cli/command.h"
#include "dataplane/cli/format_decision.h"
#include "dataplane/store/store.h"

namespace sarsen {

struct FormatOptionsOfCommand {
  std::string path;
  bool create = false;
  std::uint64_t create_bytes = 0;
  bool dry_run = false;
  FormatRequest request;
  FormatOptions store;
  // Called when nothing speaks against it any more, under the claim of the device, and before the
  // first byte is written: fills in who the device will be. An error ends the format.
  std::function<Result<void>(FormatOptions&)> before_writing;
  OutputFormat format = OutputFormat::text;
};
// Makes the device a store, or refuses and changes nothing; the report says "formatted". A file
// that it created goes away again when the format fails.
ExitCode run_device_format(const FormatOptionsOfCommand& options);

enum class InspectPart { superblock, journal, table, index, allocator, all };

struct InspectOptions {
  std::string path;
  InspectPart part = InspectPart::all;
  std::optional<std::string> object;  // as parse_object() takes it
  OutputFormat format = OutputFormat::text;
};
// Shows what is on the device; reads only, of any device in any state.
ExitCode run_device_inspect(const InspectOptions& options);

struct FsckOptions {
  std::string path;
  OutputFormat format = OutputFormat::text;
};
// Recovers in memory, audits, and verifies every block; the device is opened read-only.
ExitCode run_device_fsck(const FsckOptions& options);

}  // namespace sarsen
