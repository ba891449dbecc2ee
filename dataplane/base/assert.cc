#include "dataplane/base/assert.h"

#include <cstdio>
#include <cstdlib>

namespace sarsen {

void assertion_failed(const char* condition, const char* message, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: assertion failed: %s: %s\n", file, line, condition, message);
  std::fflush(stderr);
  std::abort();
}

}  // namespace sarsen
