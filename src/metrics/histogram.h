// The distribution of a tensor's values.
#pragma once

#include <span>

#include "metrics/records.h"

namespace redline::metrics {

// Buckets of equal width from the smallest to the largest finite value; others are left out. One bucket if
// all are equal, none if there is no finite value.
Histogram histogram_of(std::string tag, std::int64_t step, std::span<const float> values);

}  // namespace redline::metrics
