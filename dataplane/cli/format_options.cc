#include "dataplane/cli/format_options.h"

namespace sarsen {

void add_format_options(CLI::App& verb, FormatOptionsOfCommand& options) {
  const auto size = CLI::AsSizeValue(false);
  verb.add_option("PATH", options.path, "A whole block device, or a file for tests")->required();
  verb.add_option("--journal-bytes", options.store.sizes.journal_bytes,
                  "Size of the journal (default: a 32nd of the device, 16 MiB to 2 GiB)")
      ->transform(size)
      ->type_name("BYTES");
  verb.add_option("--lanes", options.store.sizes.lane_count,
                  "Slices with an index and free space of their own, 1 to 1024 (default 8)");
  auto* create =
      verb.add_flag("--create", options.create, "Make a sparse file; never overwrites one");
  auto* create_size =
      verb.add_option("--size", options.create_bytes, "Size of that file, as in 512M or 10G")
          ->transform(size)
          ->type_name("BYTES");
  auto* destroy = verb.add_flag("--destroy", options.request.destroy,
                                "Destroy the Sarsen store that is there; needs --confirm");
  auto* confirm = verb.add_option("--confirm", options.request.confirmed_id,
                                  "Id of the device whose data is destroyed, in full")
                      ->type_name("DEVICE-UUID");
  create->needs(create_size)->excludes(destroy);
  create_size->needs(create);
  destroy->needs(confirm);
  confirm->needs(destroy);
  verb.add_flag("-n,--dry-run", options.dry_run, "Check and say what would be destroyed");
}

}  // namespace sarsen
