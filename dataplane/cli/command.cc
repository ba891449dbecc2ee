#include "dataplane/cli/command.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <ctime>
#include <vector>

#include <fmt/format.h>

#include "dataplane/runtime/error.h"

namespace sarsen {
namespace {

bool is_flat(const Json& value) {
  return std::all_of(value.begin(), value.end(),
                     [](const Json& part) { return !part.is_structured(); });
}

bool is_table(const Json& value) {
  return value.is_array() && !value.empty() &&
         std::all_of(value.begin(), value.end(),
                     [](const Json& row) { return row.is_object() && is_flat(row); });
}

std::string plain(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "-";
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  return value.dump();
}

std::string words(std::string key) {
  std::replace(key.begin(), key.end(), '_', ' ');
  return key;
}

void render_table(const Json& rows, const std::string& indent, std::string& out) {
  std::vector<std::string> columns;
  for (const auto& row : rows) {
    for (const auto& [key, value] : row.items()) {
      if (std::find(columns.begin(), columns.end(), key) == columns.end()) columns.push_back(key);
    }
  }
  std::vector<std::vector<std::string>> cells(1);
  for (const auto& column : columns) cells[0].push_back(words(column));
  for (const auto& row : rows) {
    auto& line = cells.emplace_back();
    for (const auto& column : columns) {
      line.push_back(row.contains(column) ? plain(row[column]) : "");
    }
  }
  for (const auto& line : cells) {
    std::string text = indent;
    for (std::size_t i = 0; i < line.size(); ++i) {
      std::size_t width = 0;
      for (const auto& other : cells) width = std::max(width, other[i].size());
      text += i + 1 == line.size() ? line[i] : fmt::format("{:<{}}  ", line[i], width);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  }
}

void render(const Json& value, const std::string& indent, std::string& out) {
  if (is_table(value)) return render_table(value, indent, out);
  if (value.is_array()) {
    for (const auto& part : value) {
      if (part.is_structured()) {
        render(part, indent + "  ", out);
      } else {
        out += indent + plain(part) + "\n";
      }
    }
    return;
  }
  std::size_t width = 0;
  for (const auto& [key, part] : value.items()) {
    if (!part.is_structured()) width = std::max(width, key.size());
  }
  for (const auto& [key, part] : value.items()) {
    if (!part.is_structured()) {
      out += fmt::format("{}{:<{}}  {}\n", indent, words(key), width, plain(part));
    } else if (!part.empty()) {
      out += fmt::format("{}{}:\n", indent, words(key));
      render(part, indent + "  ", out);
    }
  }
}

}  // namespace

std::string describe_bytes(std::uint64_t bytes) {
  static constexpr std::array<const char*, 6> kUnits = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < kKiB) return fmt::format("{} bytes", bytes);
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return fmt::format("{:.1f} {} ({} bytes)", value, kUnits[unit], bytes);
}

std::string describe_time(std::int64_t wall_time_ns) {
  const std::time_t time = wall_time_ns / 1'000'000'000;
  std::tm parts{};
  if (gmtime_r(&time, &parts) == nullptr) return "unknown";
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

std::string describe_object(const ObjectKey& object) {
  return fmt::format("pool {} family {} branch {} object {}", object.pool.value, object.family,
                     object.branch, object.object_number);
}

std::string object_name(const ObjectKey& object) {
  return fmt::format("{}/{}/{}/{}", object.pool.value, object.family, object.branch,
                     object.object_number);
}

Result<ObjectKey> parse_object(std::string_view name) {
  std::array<std::uint64_t, 4> numbers{};
  const char* at = name.data();
  const char* const end = name.data() + name.size();
  bool good = true;
  for (std::size_t i = 0; i < numbers.size() && good; ++i) {
    const auto parsed = std::from_chars(at, end, numbers[i]);
    const bool last = i + 1 == numbers.size();
    good = parsed.ec == std::errc{} &&
           (last ? parsed.ptr == end : parsed.ptr != end && *parsed.ptr == '/');
    at = parsed.ptr + (last ? 0 : 1);
  }
  if (!good || numbers[0] > UINT32_MAX) {
    return fail(make_error(RuntimeError::bad_argument,
                           fmt::format("object '{}': expected POOL/FAMILY/BRANCH/NUMBER, four "
                                       "decimal numbers, as in 1/7/0/42",
                                       name)));
  }
  return ObjectKey{.pool = PoolId(static_cast<std::uint32_t>(numbers[0])),
                   .family = numbers[1],
                   .branch = numbers[2],
                   .object_number = numbers[3]};
}

std::string render_text(const Json& report) {
  std::string out;
  render(report, "", out);
  return out;
}

void print_report(const Json& report, OutputFormat format) {
  const std::string text = format == OutputFormat::json
                               ? report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"
                               : render_text(report);
  std::fputs(text.c_str(), stdout);
}

ExitCode print_failure(ExitCode code, const std::string& sentence, OutputFormat format) {
  std::fprintf(stderr, "sarsen: %s\n", sentence.c_str());
  if (format == OutputFormat::json) print_report(Json{{"error", sentence}}, format);
  return code;
}

}  // namespace sarsen
