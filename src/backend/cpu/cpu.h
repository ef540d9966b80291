// The CPU backend: oneDNN's convolutions and matrix products, and Redline's kernels for everything between
// them. Activations stay in blocks of 16 channels from the stem to the pool.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/memory_study.h"

namespace redline::backend {

// Throws UsageError for an impossible thread count.
std::unique_ptr<Backend> make_cpu_backend(const DeviceOptions& options);
// A study of main memory, with up to as many threads as the backend would use.
std::shared_ptr<MemoryStudy> make_cpu_memory_study(const DeviceOptions& options);

}  // namespace redline::backend
