// The measured peak speeds of a device, with which an op's speed is compared (the roofline).
#pragma once

#include "backend/backend.h"

namespace redline::profile {

struct Ceilings {
  double flops = 0;  // per second, for large matrix products and convolutions in the dtype of activations
  double bytes = 0;  // per second, read and written, for a large addition

  // The least time that work can take, in seconds.
  double least_seconds(double work_flops, double work_bytes) const;
  // Whether its bytes take longer than its FLOPs; false if either ceiling is unknown.
  bool memory_bounds(double work_flops, double work_bytes) const;
};

// Takes a fraction of a second. `dtype` is the type of activations.
Ceilings measure_ceilings(backend::Backend& backend, graph::DType dtype);

}  // namespace redline::profile
