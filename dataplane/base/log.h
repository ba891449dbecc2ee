// Structured log lines: one event, one line, key=value, for people and for collectors.
//
//   Logger log = root.component("store.journal").with({{"device", name}});
//   log.info("segment opened", {{"segment", 7}, {"bytes", size}});
//
//   time=2026-11-30T14:40:01.123456Z level=info component=store.journal device=/dev/sdb
//       event="segment opened" segment=7 bytes=67108864                         (on one line)
//
// The event is a constant sentence, what varies goes into fields: so lines can be counted and
// found. Levels: error, somebody must act; warning, something was survived that should be rare;
// info, a change of state; debug, the rest.
//
// Objects    main() makes a LogOutput and hands Loggers down; there is no global one. A Logger is a
//            small value that borrows the output; a default Logger discards everything.
// Threads    LogOutput may be used from all threads at once. A Logger and a LogRateLimit belong to
//            whoever holds them.
// Waiting    With `asynchronous` lines are written by a thread of the output; when its queue is
// full the
//            oldest line is dropped and counted, never is the caller kept waiting. Without it the
//            caller writes: for programs of one command, tests and the simulator.
// Secrets    A Secret is not accepted as a value. A value whose key names a secret ("passphrase",
//            "token", ...) is replaced by [hidden], in case one comes as a string.
// Bounded by kLogValueBytesMax per value; longer ones are cut and end in "...".
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "dataplane/base/result.h"
#include "dataplane/base/secret.h"
#include "dataplane/base/units.h"

namespace sarsen {

enum class LogLevel : std::uint8_t { debug, info, warning, error, off };

// "debug", "info", "warning", "error" or "off".
std::optional<LogLevel> log_level_from(std::string_view name);

inline constexpr std::size_t kLogValueBytesMax = 1024;

// A key and a value, valid until the end of the full expression that makes it. Keys are lower-case
// words joined by underscores.
class LogField {
 public:
  LogField(std::string_view key, bool value) : key_(key), kind_(Kind::boolean), signed_(value) {}
  template <std::signed_integral T>
  LogField(std::string_view key, T value) : key_(key), kind_(Kind::integer), signed_(value) {}
  template <std::unsigned_integral T>
  LogField(std::string_view key, T value) : key_(key), kind_(Kind::natural), unsigned_(value) {}
  template <std::floating_point T>
  LogField(std::string_view key, T value) : key_(key), kind_(Kind::real), real_(value) {}
  template <typename Tag, typename T>
  LogField(std::string_view key, Strong<Tag, T> value) : LogField(key, value.value) {}
  LogField(std::string_view key, std::string_view value)
      : key_(key), kind_(Kind::text), text_(value) {}
  LogField(std::string_view key, const std::string& value)
      : LogField(key, std::string_view(value)) {}
  LogField(std::string_view key, const char* value) : LogField(key, std::string_view(value)) {}
  LogField(std::string_view key, const Error& value)
      : key_(key), kind_(Kind::error), error_(&value) {}
  LogField(std::string_view key, const Secret& value) = delete;
  template <typename T>
  LogField(std::string_view key, T* pointer) = delete;  // an address says nothing to a reader

 private:
  friend class Logger;
  enum class Kind : std::uint8_t { boolean, integer, natural, real, text, error };
  std::string_view key_;
  Kind kind_;
  union {
    std::int64_t signed_;
    std::uint64_t unsigned_;
    double real_;
    const Error* error_;
  };
  std::string_view text_;
};

using LogFields = std::initializer_list<LogField>;

struct LogOptions {
  LogLevel level = LogLevel::info;
  bool asynchronous = false;
  std::size_t queue_lines_max = 8192;  // when asynchronous
};

// Where lines go. Outlives its Loggers; writes what is queued when it dies.
class LogOutput {
 public:
  // Nanoseconds since 1970, UTC; may be called from any thread. Clock::wall_time_ns in daemons.
  using WallTime = std::function<std::int64_t()>;

  static std::unique_ptr<LogOutput> to_stderr(LogOptions options, WallTime wall_time);
  // Appends to the file at `path`. Error: the file cannot be opened.
  static Result<std::unique_ptr<LogOutput>> to_file(const std::string& path, LogOptions options,
                                                    WallTime wall_time);
  // Hands each line, without its line end, to `write`; never asynchronous. For tests.
  static std::unique_ptr<LogOutput> to_function(LogLevel level, WallTime wall_time,
                                                std::function<void(std::string_view)> write);
  LogOutput(const LogOutput&) = delete;
  LogOutput& operator=(const LogOutput&) = delete;
  ~LogOutput();

  LogLevel level() const;
  void set_level(LogLevel level);
  bool accepts(LogLevel level) const { return level >= this->level(); }
  // Lines that were dropped because the queue was full.
  std::uint64_t lines_dropped() const;
  // Asks the writer to push out what it has; waits for it only when not asynchronous.
  void flush();

 private:
  friend class Logger;
  struct State;
  explicit LogOutput(std::unique_ptr<State> state);
  void write(LogLevel level, std::string_view text, std::int64_t time_ns);
  std::int64_t now_ns() const;
  std::unique_ptr<State> state_;
};

// Lets one line through per interval, and counts the others: for what may happen a million times a
// second when it happens. One per place that logs, a member of the object that it belongs to.
class LogRateLimit {
 public:
  explicit LogRateLimit(std::int64_t interval_ns) : interval_ns_(interval_ns) {}

 private:
  friend class Logger;
  const std::int64_t interval_ns_;
  std::optional<std::int64_t> last_ns_;
  std::uint64_t suppressed_ = 0;
};

class Logger {
 public:
  // Discards everything.
  Logger() = default;
  explicit Logger(LogOutput& output) : output_(&output) {}

  // A logger whose lines name the component, "store.journal".
  Logger component(std::string_view name) const { return with({{"component", name}}); }
  // A logger whose lines carry these fields too.
  Logger with(LogFields fields) const;

  void debug(std::string_view event, LogFields fields = {}) const;
  void info(std::string_view event, LogFields fields = {}) const;
  void warning(std::string_view event, LogFields fields = {}) const;
  void error(std::string_view event, LogFields fields = {}) const;
  // At most once per interval of `limit`; `suppressed` says how many lines were left out before.
  void warning(LogRateLimit& limit, std::string_view event, LogFields fields = {}) const;

  bool accepts(LogLevel level) const { return output_ != nullptr && output_->accepts(level); }

 private:
  void log(LogLevel level, std::string_view event, LogFields fields, std::int64_t time_ns,
           std::uint64_t suppressed) const;
  void log_now(LogLevel level, std::string_view event, LogFields fields) const;
  static void append(std::string& line, const LogField& field);

  LogOutput* output_ = nullptr;
  std::string fields_;  // formatted, each with a space before it
};

}  // namespace sarsen
