#include "tests/sim/failure_line.h"

#include <csignal>
#include <cstring>

#include <unistd.h>

namespace sarsen::sim {
namespace {

// All that the handler touches; the text is made beforehand.
char guarded_text[512];
const Simulator* guarded_simulator = nullptr;

// A line made without memory of its own. Written at once: several seeds fail at the same time, and
// what they write into one pipe must not mix.
class SignalLine {
 public:
  void add(const char* text) {
    while (*text != 0 && size_ < sizeof(bytes_)) bytes_[size_++] = *text++;
  }
  void add(std::uint64_t number) {
    char digits[24];
    char* at = digits + sizeof(digits) - 1;
    *at = 0;
    do {
      *--at = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number != 0);
    add(at);
  }
  void write() const { (void)!::write(STDOUT_FILENO, bytes_, size_); }

 private:
  char bytes_[sizeof(guarded_text) + 128];
  std::size_t size_ = 0;
};

void on_signal(int signal_number) {
  SignalLine line;
  line.add(guarded_text);
  if (guarded_simulator != nullptr) {
    line.add(", event ");
    line.add(guarded_simulator->events_run());
  }
  line.add(signal_number == SIGALRM ? ": takes too long\n" : ": ended by signal ");
  if (signal_number != SIGALRM) {
    line.add(static_cast<std::uint64_t>(signal_number));
    line.add(" (above: why)\n");
  }
  line.write();
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
