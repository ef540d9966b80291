// Keeps a device from running ahead of what is launched on it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace redline::backend::cuda {

// Occupies the stream, and no memory, for that long: what is launched meanwhile then runs without a pause,
// however short it is and however slow the host.
void hold(std::uint64_t nanoseconds, cudaStream_t stream);

}  // namespace redline::backend::cuda
