#include "dataplane/mon/mon_server.h"

#include <chrono>

#include <sys/stat.h>

#include "dataplane/membership/rpc/mon_channel.h"
#include "dataplane/mon/listening.h"
#include "dataplane/mon/mon_service.h"

namespace sarsen {
namespace {

constexpr auto kShutdownMax = std::chrono::seconds(2);
// Calls that block for the store at the same time; more of them wait their turn.
constexpr int kThreadsMax = 32;

// Sockets are born without access for others.
class PrivateFiles {
 public:
  PrivateFiles() : before_(::umask(0177)) {}
  ~PrivateFiles() { ::umask(before_); }
  PrivateFiles(const PrivateFiles&) = delete;
  PrivateFiles& operator=(const PrivateFiles&) = delete;

 private:
  mode_t before_;
};

Address with_port(const Address& address, int port) {
  if (!address.starts_with("tcp:")) return address;
  return address.substr(0, address.rfind(':') + 1) + std::to_string(port);
}

}  // namespace

struct MonServer::Server {
  explicit Server(Mon& served) : mon(served), service(served) {}
  Mon& mon;
  MonService service;
  std::unique_ptr<grpc::Server> grpc;
};

Result<std::unique_ptr<MonServer>> MonServer::start(Mon& mon, std::vector<Address> addresses) {
  auto server = std::make_unique<Server>(mon);
  grpc::ServerBuilder builder;
  set_server_limits(builder);
  builder.SetResourceQuota(grpc::ResourceQuota("mon").SetMaxThreads(kThreadsMax));
  std::vector<int> ports(addresses.size(), 0);
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const auto target = grpc_target(addresses[i]);
    if (!target) return fail(target.error());
    SARSEN_TRY(prepare_listening(addresses[i]));
    builder.AddListeningPort(*target, grpc::InsecureServerCredentials(), &ports[i]);
  }
  builder.RegisterService(&server->service);
  {
    const PrivateFiles restricted;
    server->grpc = builder.BuildAndStart();
  }
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    if (server->grpc == nullptr || ports[i] == 0) {
      return fail(make_error(MonError::in_use, "cannot listen on " + addresses[i]));
    }
    SARSEN_TRY(restrict_socket(addresses[i]));
    addresses[i] = with_port(addresses[i], ports[i]);
  }
  return std::unique_ptr<MonServer>(new MonServer(std::move(server), std::move(addresses)));
}

MonServer::MonServer(std::unique_ptr<Server> server, std::vector<Address> addresses)
    : server_(std::move(server)), addresses_(std::move(addresses)) {}

MonServer::~MonServer() {
  stop();
}

void MonServer::stop() {
  if (server_->grpc == nullptr) return;
  server_->mon.stop();
  server_->grpc->Shutdown(std::chrono::system_clock::now() + kShutdownMax);
  server_->grpc->Wait();
  server_->grpc.reset();
}

}  // namespace sarsen
