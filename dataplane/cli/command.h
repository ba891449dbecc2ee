// What every verb shares: exit codes, where a report goes, how numbers and names are written.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "dataplane/base/result.h"
#include "dataplane/store/index/object_key.h"

namespace sarsen {

// Keeps the order in which a report was made.
using Json = nlohmann::ordered_json;

enum class ExitCode : int {
  ok = 0,
  problems = 1,   // refused, or looked and found something wrong; nothing was changed
  could_not = 2,  // wrong usage, or the thing could not be opened, read or written
};

enum class OutputFormat { text, json };

// "64.0 MiB (67108864 bytes)"
std::string describe_bytes(std::uint64_t bytes);
// "2026-11-30T14:40:01Z"
std::string describe_time(std::int64_t wall_time_ns);
// "pool 1 family 7 branch 0 object 42"
std::string describe_object(const ObjectKey& object);
// "1/7/0/42", as --object takes it.
std::string object_name(const ObjectKey& object);
// Error: bad_argument, saying what would be accepted.
Result<ObjectKey> parse_object(std::string_view name);

// A report for people: objects as aligned lines, arrays of flat objects as tables.
std::string render_text(const Json& report);
// Writes the report to standard output in the chosen format.
void print_report(const Json& report, OutputFormat format);
// A sentence to standard error; with json also {"error": sentence} to standard output.
ExitCode print_failure(ExitCode code, const std::string& sentence, OutputFormat format);

}  // namespace sarsen
