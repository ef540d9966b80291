// Reads the device's clock between kernels, and keeps the device busy by it.
#include "backend/cuda/kernels/kernels.h"

namespace redline::backend::cuda {
namespace {

REDLINE_DEVICE std::uint64_t nanoseconds() {
  std::uint64_t now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

__global__ void stamp_kernel(std::uint64_t* now) { *now = nanoseconds(); }

__global__ void add_time_kernel(const std::uint64_t* begun, std::uint64_t* total) {
  *total += nanoseconds() - *begun;
}

__global__ void end_run_kernel(RunRecord* record, const float* loss, const float* check,
                               const std::uint64_t* exposed) {
  for (int i = 0; i < graph::kLossMetrics; ++i) record->loss[i] = loss == nullptr ? 0.0F : loss[i];
  for (int i = 0; i < graph::kStepChecks; ++i) record->check[i] = check == nullptr ? 0.0F : check[i];
  record->exposed = exposed == nullptr ? 0 : *exposed;
  record->end = nanoseconds();
}

__global__ void hold_kernel(std::uint64_t duration) {
  const std::uint64_t begun = nanoseconds();
  while (nanoseconds() - begun < duration) {
  }
}

}  // namespace

void stamp(std::uint64_t* now, cudaStream_t stream) { stamp_kernel<<<1, 1, 0, stream>>>(now); }

void add_time(const std::uint64_t* begun, std::uint64_t* total, cudaStream_t stream) {
  add_time_kernel<<<1, 1, 0, stream>>>(begun, total);
}

void end_run(RunRecord* record, const float* loss, const float* check, const std::uint64_t* exposed,
             cudaStream_t stream) {
  end_run_kernel<<<1, 1, 0, stream>>>(record, loss, check, exposed);
}

void hold(std::uint64_t nanoseconds, cudaStream_t stream) { hold_kernel<<<1, 1, 0, stream>>>(nanoseconds); }

}  // namespace redline::backend::cuda
