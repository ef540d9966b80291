#include "backend/memory_study.h"

#include "backend/cpu/cpu.h"
#include "backend/cuda_plugin.h"

namespace redline::backend {

std::shared_ptr<MemoryStudy> make_memory_study(const DeviceOptions& options) {
  if (options.device == "cpu") return make_cpu_memory_study(options);
  if (options.device == "cuda" || gpu_number(options.device)) return load_cuda_memory_study(options);
  throw UnavailableError("the device {} has no memory to study", options.device);
}

}  // namespace redline::backend
