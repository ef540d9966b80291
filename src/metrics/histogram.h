// How the values of a tensor are spread.
#pragma once

#include <span>

#include "metrics/records.h"

namespace redline::metrics {

// Buckets of one width from the least to the greatest value that is finite; those that are not are left out.
// One bucket when all are the same, none when there is no finite value.
Histogram histogram_of(std::string tag, std::int64_t step, std::span<const float> values);

}  // namespace redline::metrics
