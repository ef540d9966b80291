// What a device reaches at most, measured: the roof that an op's speed is compared with.
#pragma once

#include "backend/backend.h"

namespace redline::profile {

struct Ceilings {
  double flops = 0;  // a second, of large matrix products and convolutions in the type of activations
  double bytes = 0;  // a second, read and written, of a large addition

  // Seconds that work takes at least.
  double least_seconds(double work_flops, double work_bytes) const;
  // Whether its bytes take longer than its FLOPs; false when either ceiling is not known.
  bool memory_bounds(double work_flops, double work_bytes) const;
};

// Takes a fraction of a second. `dtype` is that of activations.
Ceilings measure_ceilings(backend::Backend& backend, graph::DType dtype);

}  // namespace redline::profile
