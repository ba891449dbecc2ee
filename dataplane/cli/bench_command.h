// `sarsen image bench`: reads or writes an image as fast as it goes, through an image session of
// this process, and says how fast that was.
//
// The image is attached for the time of the run, to a holder of its own: a run never disturbs a
// node that has the image, and is refused then. Writing destroys what was there: refused when the
// image holds anything, unless its name is typed once more.
#pragma once

#include <cstdint>
#include <string>

#include "dataplane/cli/command.h"

namespace sarsen {

enum class BenchType { read, write, randread, randwrite };

struct BenchOptions {
  std::string mon;
  std::string image;  // as parse_image_name() takes it
  BenchType type = BenchType::randwrite;
  std::uint64_t io_bytes = 4096;
  std::uint32_t io_threads = 16;  // operations at a time
  std::uint64_t total_bytes = 0;  // 0: until `seconds`
  std::uint32_t seconds = 0;      // 0: until `total_bytes`; both 0: 10 seconds
  std::string confirm;
  OutputFormat format = OutputFormat::text;
};

ExitCode run_image_bench(const BenchOptions& options);

}  // namespace sarsen
