// Stands in for NVIDIA's driver and its management library, as libcuda.so.1 and libnvidia-ml.so.1: one GPU,
// or none, as these variables say, each with a value of an ordinary machine where it is not set.
//   FAKE_CUDA      the version of CUDA that it runs, 13000
//   FAKE_INIT      what cuInit returns, 0
//   FAKE_GPUS      the number of GPUs, 1
//   FAKE_NAME      the GPU's name
//   FAKE_COMPUTE   its compute capability, 90
//   FAKE_MODE      its compute mode, 0
//   FAKE_FREE      bytes of its 64 GiB that are free, all
//   FAKE_MIG       1 when it is divided into slices
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr unsigned long long kMemory = 64ULL << 30;

long long number(const char* variable, long long otherwise) {
  const char* value = std::getenv(variable);
  return value == nullptr ? otherwise : std::atoll(value);
}

}  // namespace

extern "C" {

int cuInit(unsigned) { return static_cast<int>(number("FAKE_INIT", 0)); }
int cuDriverGetVersion(int* version) {
  *version = static_cast<int>(number("FAKE_CUDA", 13000));
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = static_cast<int>(number("FAKE_GPUS", 1));
  return 0;
}
int cuDeviceGet(int* device, int index) {
  *device = index;
  return 0;
}
int cuDeviceGetName(char* text, int size, int) {
  const char* name = std::getenv("FAKE_NAME");
  std::snprintf(text, static_cast<std::size_t>(size), "%s", name == nullptr ? "Fake H200" : name);
  return 0;
}
int cuDeviceTotalMem_v2(std::size_t* bytes, int) {
  *bytes = kMemory;
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  const long long compute = number("FAKE_COMPUTE", 90);
  constexpr int kComputeMode = 20, kComputeMajor = 75;
  *value = static_cast<int>(attribute == kComputeMode    ? number("FAKE_MODE", 0)
                            : attribute == kComputeMajor ? compute / 10
                                                         : compute % 10);
  return 0;
}
int cuDeviceGetPCIBusId(char* text, int size, int) {
  std::snprintf(text, static_cast<std::size_t>(size), "0000:18:00.0");
  return 0;
}
int cuGetErrorString(int error, const char** text) {
  *text = error == 100 ? "no CUDA-capable device is detected" : "unknown error";
  return 0;
}

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  std::snprintf(text, size, "%s", number("FAKE_CUDA", 13000) < 13000 ? "550.54.15" : "580.65.06");
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 1;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned, void** device) {
  static int card = 0;
  *device = &card;
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** device) {
  return std::strcmp(address, "0000:18:00.0") == 0 ? nvmlDeviceGetHandleByIndex_v2(0, device) : 6;
}
int nvmlDeviceGetMemoryInfo(void*, unsigned long long* memory) {
  memory[0] = kMemory;
  memory[1] = static_cast<unsigned long long>(number("FAKE_FREE", static_cast<long long>(kMemory)));
  memory[2] = kMemory - memory[1];
  return 0;
}
int nvmlDeviceGetMigMode(void*, unsigned* now, unsigned* after) {
  *now = *after = static_cast<unsigned>(number("FAKE_MIG", 0));
  return 0;
}

}  // extern "C"
