// In the place of what loads the plugin (backend/cuda_plugin.cpp), for tests that the emulated backend is
// linked to.
#include "backend/cuda_plugin.h"

extern "C" redline::backend::Backend* redline_make_cuda_backend(
    const redline::backend::DeviceOptions* options);

namespace redline::backend {

bool has_cuda_driver() { return true; }
std::string why_no_cuda() { return {}; }
std::unique_ptr<Backend> load_cuda_backend(const DeviceOptions& options) {
  return std::unique_ptr<Backend>(redline_make_cuda_backend(&options));
}
std::shared_ptr<MemoryStudy> load_cuda_memory_study(const DeviceOptions&) {
  throw UnavailableError("the emulator has no memory to study");
}
std::unique_ptr<comm::Fabric> load_cuda_fabric(const FabricOptions&) {
  throw UnavailableError("the emulator has no fabric");
}

}  // namespace redline::backend
