// How long operations report progress, and ask whether to continue.
#pragma once

#include <cstdint>
#include <functional>

namespace redline::data {

// Called now and then with the number of items done and the total, by any one thread at a time; with 0 and 0
// before the items are known. Returning false asks the operation to stop; it then cleans up and throws
// Stopped. May be empty.
using Progress = std::function<bool(std::int64_t done, std::int64_t total)>;

// Thrown when progress asked to stop. Not an error: the caller knows why it asked.
struct Stopped {};

}  // namespace redline::data
