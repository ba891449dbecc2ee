#include "tests/sim/failure_line.h"

#include <csignal>
#include <cstring>

#include <unistd.h>

namespace sarsen::sim {
namespace {

// All that the handler touches; the text is made beforehand.
char guarded_text[512];
const Simulator* guarded_simulator = nullptr;

void write_text(const char* text) {
  (void)!::write(STDOUT_FILENO, text, std::strlen(text));
}

void write_number(std::uint64_t number) {
  char digits[24];
  char* at = digits + sizeof(digits) - 1;
  *at = 0;
  do {
    *--at = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number != 0);
  write_text(at);
}

void on_signal(int signal_number) {
  write_text(guarded_text);
  if (guarded_simulator != nullptr) {
    write_text(", event ");
    write_number(guarded_simulator->events_run());
  }
  write_text(signal_number == SIGALRM ? ": takes too long\n" : ": ended by signal ");
  if (signal_number != SIGALRM) {
    write_number(static_cast<std::uint64_t>(signal_number));
    write_text(" (above: why)\n");
  }
  ::_exit(3);
}

std::string command_of(const FailureLine& run) {
  std::string text = "hack/sim --first-seed " + std::to_string(run.seed) + " --seeds 1 --ops " +
                     std::to_string(run.operations) + " --workload " + run.workload;
  if (!run.planted.empty()) text += " --planted " + run.planted;
  return text + "  # commit " + run.commit;
}

}  // namespace

std::string failure_line(const FailureLine& run, std::uint64_t option_hash, std::uint64_t event,
                         const std::string& what) {
  char options[32];
  std::snprintf(options, sizeof(options), "%016lx", option_hash);
  return command_of(run) + ", options " + options + ", event " + std::to_string(event) + ": " +
         what;
}

void guard_seed(const FailureLine& run, unsigned seconds_max) {
  guarded_simulator = nullptr;
  const std::string text = command_of(run);
  std::strncpy(guarded_text, text.c_str(), sizeof(guarded_text) - 1);
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM}) {
    struct sigaction action{};
    action.sa_handler = on_signal;
    ::sigaction(number, &action, nullptr);
  }
  ::alarm(seconds_max);
}

void guard_simulator(const Simulator& simulator) {
  guarded_simulator = &simulator;
}

void end_guard() {
  ::alarm(0);
  guarded_simulator = nullptr;
}

}  // namespace sarsen::sim
