#include <map>
#include <memory>
#include <string>

#include "dataplane/cli/bench_command.h"
#include "dataplane/cli/image_commands.h"
#include "dataplane/cli/verbs.h"

namespace sarsen {
namespace {

using Run = ExitCode (*)(const ImageOptions&);

// What every verb of one image has; the verb adds its own options to the result.
CLI::App& add_verb(CommandLine& line, const std::shared_ptr<ImageOptions>& options,
                   const char* name, const char* what, Run run, const char* examples) {
  CLI::App* verb = image_noun(line).add_subcommand(name, what);
  verb->add_option("IMAGE", options->image, "POOL/IMAGE, or IMAGE of pool rbd")
      ->required()
      ->type_name("[POOL/]IMAGE");
  add_mon(*verb, options->mon);
  add_output(*verb, options->format);
  verb->footer(footer(examples));
  verb->callback([&line, options, run] { line.verb = [options, run] { return run(*options); }; });
  return *verb;
}

void add_size(CLI::App& verb, ImageOptions& options) {
  verb.add_option("-s,--size", options.size_bytes,
                  "Bytes, or with a unit of 1024: 512M, 10G; rounded up to whole 4096 bytes")
      ->required()
      ->transform(CLI::AsSizeValue(false))
      ->type_name("SIZE");
}

void add_create(CommandLine& line) {
  const auto options = std::make_shared<ImageOptions>();
  CLI::App& verb =
      add_verb(line, options, "create",
               "Makes an image. It is thin: it takes space as it is written.", run_image_create,
               "  sarsen image create disk1 --size 10G\n"
               "  sarsen image create rbd/disk2 -s 512M -o json");
  add_size(verb, *options);
}

void add_resize(CommandLine& line) {
  const auto options = std::make_shared<ImageOptions>();
  CLI::App& verb = add_verb(line, options, "resize",
                            "Makes an image larger, attached or not; or smaller, when it is not "
                            "attached and --allow-shrink is given.",
                            run_image_resize,
                            "  sarsen image resize disk1 --size 20G\n"
                            "  sarsen image resize disk1 --size 5G --allow-shrink");
  add_size(verb, *options);
  verb.add_flag("--allow-shrink", options->allow_shrink,
                "Destroy what lies beyond the new size, when that is smaller");
}

void add_remove(CommandLine& line) {
  const auto options = std::make_shared<ImageOptions>();
  CLI::App& verb = add_verb(line, options, "rm",
                            "Destroys an image that nobody has attached, and waits until its space "
                            "is given back.",
                            run_image_remove,
                            "  sarsen image rm disk1 --confirm rbd/disk1\n"
                            "  sarsen image rm rbd/disk1 --confirm rbd/disk1 --no-wait");
  verb.alias("remove");
  verb.add_option("--confirm", options->confirm, "The name of the image once more, with its pool")
      ->type_name("POOL/IMAGE");
  verb.add_flag_callback(
      "--no-wait", [options] { options->wait = false; },
      "Only begin; the name is free again when the space is given back");
}

void add_detach(CommandLine& line) {
  const auto options = std::make_shared<ImageOptions>();
  CLI::App& verb = add_verb(
      line, options, "detach",
      "Takes an image from a node that is gone and cannot unmap it. Whatever still runs there can "
      "never write to the image again. On a node that works, use unmap.",
      run_image_detach, "  sarsen image detach disk1 --holder 4711 --confirm rbd/disk1");
  verb.add_option("--holder", options->holder, "The node's holder id, as image info shows it")
      ->required();
  verb.add_option("--confirm", options->confirm, "The name of the image once more, with its pool")
      ->type_name("POOL/IMAGE");
}

void add_bench(CommandLine& line) {
  static const std::map<std::string, BenchType> kTypes{{"read", BenchType::read},
                                                       {"write", BenchType::write},
                                                       {"randread", BenchType::randread},
                                                       {"randwrite", BenchType::randwrite}};
  const auto options = std::make_shared<BenchOptions>();
  CLI::App* verb = image_noun(line).add_subcommand(
      "bench",
      "Reads or writes an image as fast as it goes and says how fast that was. The image must not "
      "be attached to a node. Writing destroys what it holds, and is refused without --confirm "
      "when it holds anything.");
  verb->add_option("IMAGE", options->image, "POOL/IMAGE, or IMAGE of pool rbd")
      ->required()
      ->type_name("[POOL/]IMAGE");
  const auto size = CLI::AsSizeValue(false);
  verb->add_option("--io-type", options->type, "read, write, randread or randwrite")
      ->required()
      ->transform(CLI::CheckedTransformer(kTypes, CLI::ignore_case).description(""))
      ->type_name("TYPE");
  verb->add_option("--io-size", options->io_bytes, "Of one operation (default 4K; 512 to 4M)")
      ->transform(size)
      ->check(CLI::Range(std::uint64_t{512}, std::uint64_t{kObjectBytes}).description(""))
      ->type_name("BYTES");
  verb->add_option("--io-threads", options->io_threads, "Operations at a time (default 16)")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  verb->add_option("--io-total", options->total_bytes, "Ends after so many bytes")
      ->transform(size)
      ->type_name("BYTES");
  verb->add_option("--seconds", options->seconds,
                   "Ends after this time (default 10, without --io-total)")
      ->check(CLI::Range(0, 86400))
      ->type_name("N");
  verb->add_option("--confirm", options->confirm,
                   "To write into an image that holds data: its name once more, with its pool")
      ->type_name("POOL/IMAGE");
  add_mon(*verb, options->mon);
  add_output(*verb, options->format);
  verb->footer(
      footer("  sarsen image bench disk1 --io-type randwrite --seconds 10\n"
             "  sarsen image bench disk1 --io-type read --io-size 1M --io-threads 8 --io-total 1G\n"
             "  sarsen image bench rbd/disk1 --io-type write --confirm rbd/disk1 -o json\n"));
  verb->callback([&line, options] { line.verb = [options] { return run_image_bench(*options); }; });
}

void add_list(CommandLine& line) {
  const auto options = std::make_shared<ImageListOptions>();
  CLI::App* verb = image_noun(line).add_subcommand("ls", "The images of a pool, or of all");
  verb->alias("list");
  verb->add_option("POOL", options->pool, "Only of this pool");
  add_mon(*verb, options->mon);
  add_output(*verb, options->format);
  verb->footer(
      footer("  sarsen image ls\n"
             "  sarsen image ls rbd -o json | jq -r '.[].image'"));
  verb->callback([&line, options] { line.verb = [options] { return run_image_list(*options); }; });
}

}  // namespace

void add_image_verbs(CommandLine& line) {
  add_create(line);
  add_list(line);
  add_verb(line, std::make_shared<ImageOptions>(), "info", "One image: size, state, who has it",
           run_image_info,
           "  sarsen image info disk1\n"
           "  sarsen image info rbd/disk1 -o json");
  add_resize(line);
  add_remove(line);
  add_detach(line);
  add_bench(line);
}

}  // namespace sarsen
