#include "dataplane/base/log.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <spdlog/async_logger.h>
#include <spdlog/details/thread_pool.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include "dataplane/base/assert.h"

namespace sarsen {
namespace {

class LogErrors final : public ErrorCategory {
 public:
  std::string_view name() const override { return "log"; }
  std::string_view sentence(int) const override { return "the log file cannot be opened"; }
  ErrorClass error_class(int) const override { return ErrorClass::invalid; }
};

const ErrorCategory& log_errors() {
  static const LogErrors category;
  return category;
}

class FunctionSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit FunctionSink(std::function<void(std::string_view)> write) : write_(std::move(write)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    write_(std::string_view(line.data(), line.size()));
  }
  void flush_() override {}
  std::function<void(std::string_view)> write_;
};

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return spdlog::level::debug;
    case LogLevel::info: return spdlog::level::info;
    case LogLevel::warning: return spdlog::level::warn;
    case LogLevel::error: return spdlog::level::err;
    case LogLevel::off: break;
  }
  return spdlog::level::off;
}

constexpr std::array<std::string_view, 5> kLevelNames{"debug", "info", "warning", "error", "off"};

// Parts of keys whose values must not be seen.
constexpr std::array<std::string_view, 8> kSecretWords{
    "secret", "password", "passphrase", "passwd", "token", "ticket", "credential", "private_key"};

bool names_a_secret(std::string_view key) {
  return std::any_of(kSecretWords.begin(), kSecretWords.end(),
                     [&](std::string_view word) { return key.find(word) != key.npos; });
}

bool is_key(std::string_view key) {
  return !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

bool needs_quotes(std::string_view text) {
  return text.empty() || std::any_of(text.begin(), text.end(), [](char c) {
           return c == ' ' || c == '"' || c == '=' || c == '\\' ||
                  static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
         });
}

// Control characters are escaped, so that a value can neither start a line nor drive a terminal.
void append_quoted(std::string& line, std::string_view text) {
  line += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      line += '\\';
      line += c;
    } else if (c == '\n') {
      line += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      fmt::format_to(std::back_inserter(line), "\\x{:02x}", byte);
    } else {
      line += c;
    }
  }
  line += '"';
}

void append_text(std::string& line, std::string_view text) {
  std::string cut;
  if (text.size() > kLogValueBytesMax) {
    // Not in the middle of a character of several bytes.
    std::size_t end = kLogValueBytesMax;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
    cut.assign(text.substr(0, end)).append("...");
    text = cut;
  }
  if (needs_quotes(text)) {
    append_quoted(line, text);
  } else {
    line += text;
  }
}

}  // namespace

struct LogOutput::State {
  LogOptions options;
  WallTime wall_time;
  std::shared_ptr<spdlog::details::thread_pool> writer;  // when asynchronous; dies after the logger
  std::shared_ptr<spdlog::logger> logger;

  State(LogOptions log_options, WallTime time, std::shared_ptr<spdlog::sinks::sink> sink,
        const std::string& line_end)
      : options(log_options), wall_time(std::move(time)) {
    if (options.asynchronous) {
      writer = std::make_shared<spdlog::details::thread_pool>(options.queue_lines_max, 1);
      logger = std::make_shared<spdlog::async_logger>(
          "sarsen", std::move(sink), writer, spdlog::async_overflow_policy::overrun_oldest);
    } else {
      logger = std::make_shared<spdlog::logger>("sarsen", std::move(sink));
    }
    logger->set_formatter(std::make_unique<spdlog::pattern_formatter>(
        "time=%Y-%m-%dT%H:%M:%S.%fZ level=%l%v", spdlog::pattern_time_type::utc, line_end));
    logger->set_level(to_spdlog(options.level));
    logger->flush_on(spdlog::level::warn);
  }
};

std::optional<LogLevel> log_level_from(std::string_view name) {
  const auto* const found = std::find(kLevelNames.begin(), kLevelNames.end(), name);
  if (found == kLevelNames.end()) return std::nullopt;
  return static_cast<LogLevel>(found - kLevelNames.begin());
}

LogOutput::LogOutput(std::unique_ptr<State> state) : state_(std::move(state)) {}

LogOutput::~LogOutput() {
  state_->logger->flush();
}

std::unique_ptr<LogOutput> LogOutput::to_stderr(LogOptions options, WallTime wall_time) {
  auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  return std::unique_ptr<LogOutput>(
      new LogOutput(std::make_unique<State>(options, std::move(wall_time), std::move(sink), "\n")));
}

Result<std::unique_ptr<LogOutput>> LogOutput::to_file(const std::string& path, LogOptions options,
                                                      WallTime wall_time) {
  // Looked at first, because the library reports a failure by an exception.
  std::FILE* const file = std::fopen(path.c_str(), "ae");
  if (file == nullptr) return fail(Error(log_errors(), 1, path + ": " + std::strerror(errno)));
  std::fclose(file);
  auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
  return std::unique_ptr<LogOutput>(
      new LogOutput(std::make_unique<State>(options, std::move(wall_time), std::move(sink), "\n")));
}

std::unique_ptr<LogOutput> LogOutput::to_function(LogLevel level, WallTime wall_time,
                                                  std::function<void(std::string_view)> write) {
  auto sink = std::make_shared<FunctionSink>(std::move(write));
  return std::unique_ptr<LogOutput>(new LogOutput(std::make_unique<State>(
      LogOptions{.level = level}, std::move(wall_time), std::move(sink), "")));
}

LogLevel LogOutput::level() const {
  switch (state_->logger->level()) {
    case spdlog::level::trace:
    case spdlog::level::debug: return LogLevel::debug;
    case spdlog::level::info: return LogLevel::info;
    case spdlog::level::warn: return LogLevel::warning;
    case spdlog::level::err: return LogLevel::error;
    default: return LogLevel::off;
  }
}

void LogOutput::set_level(LogLevel level) {
  state_->logger->set_level(to_spdlog(level));
}

std::uint64_t LogOutput::lines_dropped() const {
  return state_->writer ? state_->writer->overrun_counter() : 0;
}

void LogOutput::flush() {
  state_->logger->flush();
}

std::int64_t LogOutput::now_ns() const {
  return state_->wall_time();
}

void LogOutput::write(LogLevel level, std::string_view text, std::int64_t time_ns) {
  const std::chrono::nanoseconds since_1970(time_ns);
  const spdlog::log_clock::time_point time(
      std::chrono::duration_cast<spdlog::log_clock::duration>(since_1970));
  state_->logger->log(time, spdlog::source_loc{}, to_spdlog(level),
                      spdlog::string_view_t(text.data(), text.size()));
}

void Logger::append(std::string& line, const LogField& field) {
  SARSEN_ASSERT(is_key(field.key_), "a log key is lower-case words joined by underscores");
  line += ' ';
  line += field.key_;
  line += '=';
  if (names_a_secret(field.key_)) {
    line += "[hidden]";
    return;
  }
  switch (field.kind_) {
    case LogField::Kind::boolean: line += field.signed_ != 0 ? "true" : "false"; break;
    case LogField::Kind::integer: line += fmt::to_string(field.signed_); break;
    case LogField::Kind::natural: line += fmt::to_string(field.unsigned_); break;
    case LogField::Kind::real: line += fmt::format("{:.6g}", field.real_); break;
    case LogField::Kind::text: append_text(line, field.text_); break;
    case LogField::Kind::error: append_text(line, field.error_->message()); break;
  }
}

Logger Logger::with(LogFields fields) const {
  Logger logger = *this;
  if (output_ == nullptr) return logger;
  for (const LogField& field : fields) append(logger.fields_, field);
  return logger;
}

void Logger::log(LogLevel level, std::string_view event, LogFields fields, std::int64_t time_ns,
                 std::uint64_t suppressed) const {
  std::string line = fields_;
  append(line, {"event", event});
  for (const LogField& field : fields) append(line, field);
  if (suppressed > 0) append(line, {"suppressed", suppressed});
  output_->write(level, line, time_ns);
}

void Logger::log_now(LogLevel level, std::string_view event, LogFields fields) const {
  if (accepts(level)) log(level, event, fields, output_->now_ns(), 0);
}

void Logger::debug(std::string_view event, LogFields fields) const {
  log_now(LogLevel::debug, event, fields);
}

void Logger::info(std::string_view event, LogFields fields) const {
  log_now(LogLevel::info, event, fields);
}

void Logger::warning(std::string_view event, LogFields fields) const {
  log_now(LogLevel::warning, event, fields);
}

void Logger::error(std::string_view event, LogFields fields) const {
  log_now(LogLevel::error, event, fields);
}

void Logger::warning(LogRateLimit& limit, std::string_view event, LogFields fields) const {
  if (!accepts(LogLevel::warning)) return;
  const std::int64_t now = output_->now_ns();
  // A wall clock that was set back starts the interval anew.
  const bool quiet =
      limit.last_ns_ && now >= *limit.last_ns_ && now - *limit.last_ns_ < limit.interval_ns_;
  if (quiet) {
    ++limit.suppressed_;
    return;
  }
  limit.last_ns_ = now;
  log(LogLevel::warning, event, fields, now, std::exchange(limit.suppressed_, 0));
}

}  // namespace sarsen
