// What the files of verbs share: options that every verb has, and where a parsed verb is put.
//
// A file NOUN_verbs.cc adds the verbs of one noun to the command line. Each verb keeps its options
// in a shared_ptr that its callback holds, and sets CommandLine::verb when it was asked for; main()
// runs that after the whole line was parsed.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "dataplane/cli/command.h"

namespace sarsen {

using Verb = std::function<ExitCode()>;

struct CommandLine {
  CLI::App app{"Sarsen, replicated block storage.", "sarsen"};
  Verb verb;                  // what was asked for; empty when the parser answered
  CLI::App* image = nullptr;  // see image_noun()
};

// The exit statuses, for the end of every help page.
extern const char* const kExitCodes;
// "Examples:", the examples (lines that end in a newline), and the exit statuses.
std::string footer(const std::string& examples);
// -o text|json
void add_output(CLI::App& verb, OutputFormat& format);
// --mon ADDRESS; default: environment variable SARSEN_MON, then kDefaultMonAddress.
void add_mon(CLI::App& verb, std::string& address);

inline constexpr const char* kDefaultMonAddress = "unix:/run/sarsen/mon.sock";

// The noun `image`, to which several files add verbs.
CLI::App& image_noun(CommandLine& line);

}  // namespace sarsen
