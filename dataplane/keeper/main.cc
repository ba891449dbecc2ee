// sarsen-keeper: holds the open descriptors of this node's block devices while sarsen-blockd is
// restarted or upgraded. See dataplane/docs/keeper_protocol.md.

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include <sys/mman.h>
#include <sys/resource.h>

#include "dataplane/keeper/server.h"

namespace {

// Descriptors are the keeper's stock: as many as the administrator allows.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 || std::strcmp(argv[1], "--socket") != 0) {
    std::fprintf(stderr, "usage: sarsen-keeper --socket PATH\n");
    return 2;
  }
  raise_descriptor_limit();
  auto server = std::make_unique<sarsen::keeper::Server>();
  if (const std::string error = server->listen(argv[2]); !error.empty()) {
    std::fprintf(stderr, "sarsen-keeper: %s\n", error.c_str());
    return 1;
  }
  // It must answer while memory is reclaimed through the devices it keeps.
  if (::mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
    std::perror("sarsen-keeper: memory is not locked (raise RLIMIT_MEMLOCK): mlockall");
  }
  std::printf("sarsen-keeper: protocol 1 on %s\n", argv[2]);
  std::fflush(stdout);
  server->run();
  return 0;
}
