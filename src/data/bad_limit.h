// How many images of a data set may be bad before the work on it ends: --max-bad.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/error.h"

namespace redline::data {

// A share of the images, but not so few that one damaged file ends the work on a small set: at least ten, or
// one in twenty where the set has under 200 images. A share of 0 means none at all. UsageError for what is
// not a share.
inline std::int64_t bad_limit(double share, std::int64_t images) {
  if (!(share >= 0 && share <= 1)) throw UsageError("--max-bad {} is not a share from 0 to 1", share);
  if (share == 0) return 0;
  const std::int64_t floor = std::min<std::int64_t>(10, (images + 19) / 20);
  return std::max(floor, static_cast<std::int64_t>(share * static_cast<double>(images)));
}

}  // namespace redline::data
