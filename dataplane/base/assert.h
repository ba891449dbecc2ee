// Assertions that stay on in release: a false one is a bug in Sarsen, never bad input or bad media.
//
// Three different words (style rule 11): a bug asserts; corrupt data is an Error that is repaired
// from a peer; something unavailable is an Error that is retried.
#pragma once

namespace sarsen {

// Prints "assertion failed: ..." with file and line to stderr and aborts.
[[noreturn]] void assertion_failed(const char* condition, const char* message, const char* file,
                                   int line);

}  // namespace sarsen

// `message` names the invariant by its id in docs/invariants.md, or says what is impossible.
#define SARSEN_ASSERT(condition, message)                                  \
  do {                                                                     \
    if (!(condition)) [[unlikely]]                                         \
      ::sarsen::assertion_failed(#condition, message, __FILE__, __LINE__); \
  } while (false)
