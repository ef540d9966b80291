// Stands in for the driver's management library: one card at 0000:18:00.0, whose energy grows by a joule at
// every question, and whose PCIe counters it does not have. Its power limit can be set from 200 to 700 W and
// is kept, as a driver keeps it, in the file that REDLINE_FAKE_POWER_LIMIT names; REDLINE_FAKE_POWER_REFUSED
// forbids it.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int) { return "Not Found"; }
int nvmlSystemGetDriverVersion(char* text, unsigned) {
  std::strcpy(text, "580.1");
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** device) {
  static int card = 0;
  *device = &card;
  return std::strcmp(address, "0000:18:00.0") == 0 ? 0 : 6;
}
int nvmlDeviceGetName(void*, char* text, unsigned) {
  std::strcpy(text, "Fake H200");
  return 0;
}
int nvmlDeviceGetClockInfo(void*, int type, unsigned* mhz) {
  *mhz = type == 1 ? 1980 : 3201;
  return 0;
}
// How often the values were asked for that telemetry reads once a second.
static int state_questions = 0;
int fakeStateQuestions() { return state_questions; }
int nvmlDeviceGetMaxClockInfo(void*, int type, unsigned* mhz) {
  ++state_questions;
  *mhz = type == 1 ? 2010 : 3201;
  return 0;
}
int nvmlDeviceGetPowerManagementLimitConstraints(void*, unsigned* least, unsigned* most) {
  *least = 200000;
  *most = 700000;
  return 0;
}
// Three processes compute: who asks is one of them. Without room for them it fails, and gives their number.
int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count, void* list) {
  const bool room = *count >= 3 && list != nullptr;
  *count = 3;
  return room ? 0 : 7;
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  *milliwatts = 412345;
  return 0;
}
int nvmlDeviceGetPowerManagementLimit(void*, unsigned* milliwatts) {
  *milliwatts = 700000;
  const char* path = std::getenv("REDLINE_FAKE_POWER_LIMIT");
  std::FILE* file = path == nullptr ? nullptr : std::fopen(path, "r");
  if (file == nullptr) return 0;
  const bool read = std::fscanf(file, "%u", milliwatts) == 1;
  std::fclose(file);
  return read ? 0 : 999;
}
int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned* milliwatts) {
  return nvmlDeviceGetPowerManagementLimit(device, milliwatts);
}
int nvmlDeviceSetPowerManagementLimit(void*, unsigned milliwatts) {
  if (std::getenv("REDLINE_FAKE_POWER_REFUSED") != nullptr) return 4;
  const char* path = std::getenv("REDLINE_FAKE_POWER_LIMIT");
  std::FILE* file = path == nullptr ? nullptr : std::fopen(path, "w");
  if (file == nullptr) return 999;
  std::fprintf(file, "%u", milliwatts);
  std::fclose(file);
  return 0;
}
int nvmlDeviceGetTemperature(void*, int, unsigned* degrees) {
  *degrees = 55;
  return 0;
}
// Under the older of its two names.
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* bits) {
  *bits = 4 | 64;
  return 0;
}
int nvmlDeviceGetUtilizationRates(void*, unsigned* rates) {
  rates[0] = 97;
  rates[1] = 60;
  return 0;
}
// Performance monitoring: of what is asked for, the share of tensor cores is told, that of multiprocessors is
// 0 / 0 as in a short stretch, and the others are not told.
int nvmlGpmQueryDeviceSupport(void*, unsigned* support) {
  support[1] = 1;
  return 0;
}
int nvmlGpmSampleAlloc(void** sample) {
  *sample = new int(0);
  return 0;
}
int nvmlGpmSampleFree(void* sample) {
  delete static_cast<int*>(sample);
  return 0;
}
int nvmlGpmSampleGet(void*, void* sample) { return sample == nullptr ? 2 : 0; }
struct Metric {
  unsigned id;
  int result;
  double value;
  const char* names[3];
};
struct Query {
  unsigned version, count;
  void* samples[2];
  Metric metrics[1];
};
int nvmlGpmMetricsGet(Query* query) {
  for (unsigned i = 0; i < query->count; ++i) {
    Metric& metric = query->metrics[i];
    metric.result = metric.id == 5 || metric.id == 2 ? 0 : 3;
    metric.value = metric.id == 5 ? 42.5 : NAN;
  }
  return query->version == 1 && query->samples[0] != nullptr && query->samples[1] != nullptr ? 0 : 2;
}
int nvmlDeviceGetTotalEnergyConsumption(void*, unsigned long long* millijoules) {
  static unsigned long long joules = 0;
  *millijoules = 1000 * ++joules;
  return 0;
}
}
