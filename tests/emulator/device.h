// What nvcc gives the source of a kernel, for a compiler that knows nothing of GPUs. Comes before every
// kernel that translate.py made ready.
#pragma once

#include <cuda_runtime_api.h>
#include <vector_functions.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "block.h"

#undef __shared__
#define __shared__ static  // one block runs at a time
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__

inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;

inline void __syncthreads() { redline::emulator::sync_at(0, 0); }
inline void __syncwarp() {
  redline::emulator::by_warp(nullptr, [](std::span<void* const>) {});
}
inline void __threadfence() {}

namespace redline::emulator {

// What the lane `from(own lane)` gives.
template <typename T, typename From>
T shuffle(T value, const From& from) {
  T given = value;
  struct Own {
    T *in, *out;
    int from;
  } own{&value, &given, from(lane())};
  by_warp(&own, [](std::span<void* const> lanes) {
    for (void* each : lanes) {
      const auto* to = static_cast<const Own*>(each);
      if (to == nullptr || to->from < 0 || to->from >= kWarp) continue;
      const auto* source = static_cast<const Own*>(lanes[static_cast<std::size_t>(to->from)]);
      if (source != nullptr) *to->out = *source->in;
    }
  });
  return given;
}

}  // namespace redline::emulator

template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return redline::emulator::shuffle(value, [=](int lane) { return lane ^ mask; });
}
template <typename T>
T __shfl_sync(unsigned, T value, int from) {
  return redline::emulator::shuffle(value, [=](int) { return from % redline::emulator::kWarp; });
}
template <typename T>
T __shfl_down_sync(unsigned, T value, int offset) {
  return redline::emulator::shuffle(value, [=](int lane) {
    const int from = lane + offset;
    return from < redline::emulator::kWarp ? from : lane;
  });
}
inline unsigned __ballot_sync(unsigned, bool own) {
  unsigned bits = own ? 1U << redline::emulator::lane() : 0U;
  for (int offset = 1; offset < redline::emulator::kWarp; offset *= 2)
    bits |= __shfl_xor_sync(~0U, bits, offset);
  return bits;
}

template <typename T>
T __ldg(const T* at) {
  return *at;
}
template <typename T>
T __ldcg(const T* at) {
  return *at;
}
template <typename T>
T atomicAdd(T* at, T value) {
  const T before = *at;
  *at += value;
  return before;
}
template <typename T>
T atomicMax(T* at, T value) {
  const T before = *at;
  if (value > before) *at = value;
  return before;
}
using std::isfinite;
using std::isnan;
using std::max;
using std::min;
inline unsigned __popc(unsigned bits) { return static_cast<unsigned>(__builtin_popcount(bits)); }
inline float rsqrtf(float value) { return 1.0F / std::sqrt(value); }
// The bytes of `low` and `high` that the selector's digits name; with its eighth bit, their top bit eight
// times.
inline unsigned redline_emulator_prmt(unsigned low, unsigned high, unsigned selector) {
  const std::uint64_t both = std::uint64_t{high} << 32 | low;
  unsigned out = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned digit = selector >> 4 * i & 15U;
    auto byte = static_cast<unsigned>(both >> 8 * (digit & 7U) & 255U);
    if ((digit & 8U) != 0) byte = (byte & 128U) != 0 ? 255U : 0U;
    out |= byte << 8 * i;
  }
  return out;
}

std::uint64_t redline_emulator_nanoseconds();

namespace redline::emulator {
// Puts a grid on a stream: see runtime.cpp.
void launch(const Grid& grid, cudaStream_t stream, std::function<void()> thread);

struct Launch {
  Grid grid;
  cudaStream_t stream = nullptr;
  Launch(dim3 blocks, dim3 threads, std::size_t shared_bytes = 0, cudaStream_t on = nullptr)
      : grid{blocks, threads, shared_bytes}, stream(on) {}
};
template <typename Thread>
void launch(const Launch& how, Thread thread) {
  launch(how.grid, how.stream, std::function<void()>(std::move(thread)));
}

}  // namespace redline::emulator

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* how, void (*kernel)(Parameters...),
                               Arguments... arguments) {
  redline::emulator::launch({how->gridDim, how->blockDim, how->dynamicSmemBytes}, how->stream,
                            std::function<void()>([=] { kernel(static_cast<Parameters>(arguments)...); }));
  return cudaSuccess;
}
template <typename... Parameters>
cudaError_t cudaFuncSetAttribute(void (*)(Parameters...), cudaFuncAttribute, int) {
  return cudaSuccess;
}
template <typename... Parameters>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*)(Parameters...)) {
  *attributes = {};
  return cudaSuccess;
}
