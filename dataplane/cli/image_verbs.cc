#include <memory>

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
}

}  // namespace sarsen
