// How many images of a data set may be bad before the command fails: --max-bad.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/error.h"

namespace redline::data {

// A fraction of the images, but enough that a single damaged file does not fail a small set: at least ten, or
// one in twenty if the set has under 200 images. A fraction of 0 means none. UsageError if it is not from 0
// to 1.
inline std::int64_t bad_limit(double share, std::int64_t images) {
  if (!(share >= 0 && share <= 1)) throw UsageError("--max-bad {} is not a fraction from 0 to 1", share);
  if (share == 0) return 0;
  const std::int64_t floor = std::min<std::int64_t>(10, (images + 19) / 20);
  return std::max(floor, static_cast<std::int64_t>(share * static_cast<double>(images)));
}

}  // namespace redline::data
