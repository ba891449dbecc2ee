// Errors as values.
//
// Every module has one enum of error codes and one ErrorCategory that gives each code a sentence
// and a class. Whether an operation can be retried is a property of the code, not of the place that
// meets it. An Error is two words plus an optional detail, so a Result of a small value stays
// small.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace sarsen {

// What the receiver of an error should do about it.
enum class ErrorClass {
  invalid,      // the request is wrong; repeating it gives the same answer
  unavailable,  // not now: retry later, or elsewhere
  corrupt,      // stored data fails its checksum: repair from a peer, never treat as absent
  failed,       // the device or connection is gone for good: replace it
  cancelled,    // the caller asked for it
};

// One per module, with static lifetime. Identity is the address.
class ErrorCategory {
 public:
  virtual std::string_view name() const = 0;
  virtual std::string_view sentence(int code) const = 0;
  virtual ErrorClass error_class(int code) const = 0;

 protected:
  ~ErrorCategory() = default;
};

class [[nodiscard]] Error {
 public:
  Error(const ErrorCategory& category, int code) : category_(&category), code_(code) {}
  // `detail` names the thing and the value; it must never hold a secret.
  Error(const ErrorCategory& category, int code, std::string detail)
      : category_(&category),
        code_(code),
        detail_(std::make_shared<const std::string>(std::move(detail))) {}

  const ErrorCategory& category() const { return *category_; }
  int code() const { return code_; }
  ErrorClass error_class() const { return category_->error_class(code_); }
  bool retryable() const { return error_class() == ErrorClass::unavailable; }
  std::string_view detail() const {
    return detail_ ? std::string_view(*detail_) : std::string_view();
  }
  // "store: the device has no free space (need 3 chunks, 1 free)"
  std::string message() const;

 private:
  const ErrorCategory* category_;
  int code_;
  std::shared_ptr<const std::string> detail_;
};

template <typename T = void>
using Result = tl::expected<T, Error>;

using Unexpected = tl::unexpected<Error>;

inline Unexpected fail(Error error) {
  return Unexpected(std::move(error));
}

}  // namespace sarsen

// Returns the error of `expression` from the enclosing function, or goes on.
#define SARSEN_TRY(expression)                                      \
  do {                                                              \
    if (auto try_result_ = (expression); !try_result_) [[unlikely]] \
      return ::sarsen::fail(std::move(try_result_).error());        \
  } while (false)

// The same in a coroutine.
#define SARSEN_CO_TRY(expression)                                   \
  do {                                                              \
    if (auto try_result_ = (expression); !try_result_) [[unlikely]] \
      co_return ::sarsen::fail(std::move(try_result_).error());     \
  } while (false)
