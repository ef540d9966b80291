#include "backend/backend.h"

#include "backend/cpu/cpu.h"
#include "backend/cuda_plugin.h"
#include "backend/reference/reference.h"
#include "base/error.h"

namespace redline::backend {

std::unique_ptr<Backend> make_backend(const DeviceOptions& options) {
  if (options.device == "cpu") return make_cpu_backend(options);
  if (options.device == "cuda") return load_cuda_backend(options);
  if (options.device == "reference") return make_reference_backend();
  throw UsageError("unknown device '{}': choose cpu, cuda or reference", options.device);
}

std::vector<std::string> device_names() { return {"cpu", "cuda", "reference"}; }

}  // namespace redline::backend
