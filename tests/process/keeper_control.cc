// One call of the keeper, for scripts: keeper_control SOCKET list | fail NAME | drop NAME | session

#include <cstdio>
#include <string>

#include "dataplane/keeper/client.h"

namespace {

using sarsen::keeper::Client;

int report(const sarsen::Result<void>& outcome) {
  if (outcome) return 0;
  std::printf("error: %s\n", outcome.error().message().c_str());
  return 1;
}

int list(Client& client) {
  const auto all = client.list();
  if (!all) return report(sarsen::fail(all.error()));
  for (const auto& each : *all) {
    std::printf("%s %s%s\n", each.name.c_str(), each.kind.c_str(), each.failed ? " failed" : "");
  }
  return 0;
}

int session(Client& client) {
  const auto next = client.session(0);
  if (!next) return report(sarsen::fail(next.error()));
  std::printf("%llu\n", static_cast<unsigned long long>(*next));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string verb = argc > 2 ? argv[2] : "";
  const std::string name = argc > 3 ? argv[3] : "";
  auto client = Client::connect(argc > 1 ? argv[1] : "");
  if (!client) return report(sarsen::fail(client.error()));
  if (verb == "list") return list(*client);
  if (verb == "session") return session(*client);
  if (verb == "fail") return report(client->fail(name));
  if (verb == "drop") return report(client->drop(name));
  std::printf("usage: keeper_control SOCKET list | fail NAME | drop NAME | session\n");
  return 2;
}
