// Errors that a user can act on. Every failure is thrown as one of these, caught once in main, printed,
// and turned into the documented exit code. The message names what failed, where, and what to try next.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace redline {

enum class ExitCode : int {
  ok = 0,
  usage = 64,        // the command line or configuration is wrong
  bad_data = 65,     // the input data is damaged or not what was promised
  unavailable = 69,  // a device, library or package is not there
  internal = 70,     // a bug in Redline
  io = 74,           // the file system refused
  try_again = 75,    // preempted, or a peer died; a checkpoint was written
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// One type per exit code, each formatting its message: throw UsageError("--lr {} is negative", lr).
template <ExitCode kCode>
class TypedError : public Error {
 public:
  template <typename... Args>
  explicit TypedError(fmt::format_string<Args...> text, Args&&... args)
      : Error(kCode, fmt::format(text, std::forward<Args>(args)...)) {}
};

using UsageError = TypedError<ExitCode::usage>;
using DataError = TypedError<ExitCode::bad_data>;
using UnavailableError = TypedError<ExitCode::unavailable>;
using InternalError = TypedError<ExitCode::internal>;
using IoError = TypedError<ExitCode::io>;
using TryAgainError = TypedError<ExitCode::try_again>;

// A device's memory is full. Its own type, so that the code that chose the sizes can suggest smaller ones.
class OutOfMemoryError : public UnavailableError {
 public:
  using UnavailableError::UnavailableError;
};

// An invariant that holds unless Redline itself is wrong; cheap, and on in release builds.
template <typename... Args>
void check(bool holds, fmt::format_string<Args...> text, Args&&... args) {
  if (!holds) throw InternalError("{}", fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace redline
