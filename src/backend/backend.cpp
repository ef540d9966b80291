#include "backend/backend.h"

#include "backend/cpu/cpu.h"
#include "backend/cuda_plugin.h"
#include "backend/reference/reference.h"
#include "base/error.h"
#include "base/log.h"

namespace redline::backend {

namespace {

std::unique_ptr<Backend> make_best_backend(const DeviceOptions& options) {
  if (has_cuda_driver()) {
    try {
      return load_cuda_backend(options);
    } catch (const UnavailableError& why) {
      log_warning("the GPU is not used: {}", why.what());
    }
  }
  return make_cpu_backend(options);
}

}  // namespace

std::unique_ptr<Backend> make_backend(const DeviceOptions& options) {
  if (options.device == "auto") return make_best_backend(options);
  if (options.device == "cpu") return make_cpu_backend(options);
  if (options.device == "cuda" || gpu_number(options.device)) return load_cuda_backend(options);
  if (options.device == "reference") return make_reference_backend(options);
  throw UsageError("unknown device '{}': choose auto, cpu, cuda, cuda:N or reference", options.device);
}

std::vector<std::string> device_names() { return {"auto", "cpu", "cuda", "reference"}; }

}  // namespace redline::backend
