#include <memory>

#include "dataplane/cli/cluster_commands.h"
#include "dataplane/cli/verbs.h"

namespace sarsen {
namespace {

void add_create(CLI::App& cluster, Verb& verb) {
  const auto options = std::make_shared<ClusterCreateOptions>();
  CLI::App* create = cluster.add_subcommand(
      "create",
      "Makes the map store of a new cluster in a new or empty folder, for sarsen-mon to be started "
      "on. The only way to an empty map: a mon whose store was lost does not start with one.");
  create->add_option("--data", options->data, "The folder, as sarsen-mon takes it")
      ->required()
      ->type_name("DIR");
  create->add_option("--pool", options->pool, "Name of the first pool")->capture_default_str();
  create
      ->add_option("--group-bits", options->group_bits,
                   "The pool gets 2^N placement groups, 0 to 16")
      ->type_name("N")
      ->capture_default_str();
  add_output(*create, options->format);
  create->footer(
      footer("  sarsen cluster create --data /var/lib/sarsen/mon\n"
             "  sarsen cluster create --data /var/lib/sarsen/mon --group-bits 7 -o json"));
  create->callback([&verb, options] { verb = [options] { return run_cluster_create(*options); }; });
}

void add_look(CommandLine& line, const char* name, const char* what,
              ExitCode (*run)(const StatusOptions&), const char* examples) {
  const auto options = std::make_shared<StatusOptions>();
  CLI::App* look = line.app.add_subcommand(name, what);
  add_mon(*look, options->mon);
  add_output(*look, options->format);
  look->footer(footer(examples));
  look->callback([&line, options, run] { line.verb = [options, run] { return run(*options); }; });
}

}  // namespace

void add_cluster_verbs(CommandLine& line) {
  CLI::App* cluster = line.app.add_subcommand("cluster", "A whole cluster");
  cluster->require_subcommand(1);
  add_create(*cluster, line.verb);
  add_look(line, "status", "How the cluster is: health, OSDs, pools, space", run_status,
           "  sarsen status\n"
           "  sarsen status --mon unix:/run/sarsen/mon.sock -o json");
  add_look(line, "health",
           "Whether the cluster is well, and every check that says it is not, with details. Exit "
           "status 1 when it is not HEALTH_OK",
           run_health,
           "  sarsen health\n"
           "  sarsen health -o json | jq -r '.checks[].check'");
}

}  // namespace sarsen
