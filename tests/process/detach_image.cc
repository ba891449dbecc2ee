// What another node does that takes an image over: detach_image MON IMAGE_ID HOLDER ATTACH_EPOCH

#include <cstdio>
#include <cstdlib>

#include "dataplane/membership/rpc/mon_client.h"

int main(int argc, char** argv) {
  using namespace sarsen;
  if (argc != 5) {
    std::printf("usage: detach_image MON IMAGE_ID HOLDER ATTACH_EPOCH\n");
    return 2;
  }
  const auto number = [argv](int i) { return std::strtoull(argv[i], nullptr, 10); };
  auto mon = MonClient::create({.mon = argv[1]});
  if (!mon) {
    std::printf("error: %s\n", mon.error().message().c_str());
    return 1;
  }
  const auto detached = (*mon)->detach_image({.image = ImageId(number(2)),
                                              .holder = HolderId(number(3)),
                                              .epoch = AttachEpoch(number(4)),
                                              .force = true});
  if (detached) return 0;
  std::printf("error: %s\n", detached.error().message().c_str());
  return 1;
}
