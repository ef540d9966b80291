// Sixteen-byte vectors of the storage types, computed on in fp32.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "backend/cuda/kernels/kernels.h"

namespace redline::backend::cuda {

template <typename T>
__device__ __forceinline__ float to_float(T value) {
  return static_cast<float>(value);
}
template <>
__device__ __forceinline__ float to_float(__half value) {
  return __half2float(value);
}
template <>
__device__ __forceinline__ float to_float(__nv_bfloat16 value) {
  return __bfloat162float(value);
}

template <typename T>
__device__ __forceinline__ T from_float(float value);
template <>
__device__ __forceinline__ float from_float(float value) {
  return value;
}
template <>
__device__ __forceinline__ __half from_float(float value) {
  return __float2half_rn(value);
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float(float value) {
  return __float2bfloat16_rn(value);
}

// N elements that are loaded and stored at once.
template <typename T, int N>
struct alignas(sizeof(T) * N) Vec {
  T v[N];

  __device__ __forceinline__ float at(int i) const { return to_float(v[i]); }
  __device__ __forceinline__ void set(int i, float value) { v[i] = from_float<T>(value); }
};

template <typename T, int N>
__device__ __forceinline__ Vec<T, N> load(const void* base, std::int64_t index) {
  return static_cast<const Vec<T, N>*>(base)[index];
}
template <typename T, int N>
__device__ __forceinline__ void store(void* base, std::int64_t index, const Vec<T, N>& value) {
  static_cast<Vec<T, N>*>(base)[index] = value;
}

// Per-channel fp32 values of one vector's channels.
template <int N>
struct Lanes {
  float v[N];
  __device__ __forceinline__ explicit Lanes(const float* array, int first) {
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = array[first + i];
  }
  __device__ __forceinline__ float operator[](int i) const { return v[i]; }
};

// Calls body.template operator()<T, N>() with the widest vectors that divide `channels`.
template <typename Body>
void dispatch(Type type, int channels, const Body& body) {
  switch (type) {
    case Type::f32:
      return channels % 4 == 0 ? body.template operator()<float, 4>() : body.template operator()<float, 1>();
    case Type::f16:
      return channels % 8 == 0 ? body.template operator()<__half, 8>()
                               : body.template operator()<__half, 1>();
    case Type::bf16:
      return channels % 8 == 0 ? body.template operator()<__nv_bfloat16, 8>()
                               : body.template operator()<__nv_bfloat16, 1>();
  }
}

inline constexpr int kThreads = 256;

inline std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// A grid whose stride is a multiple of the vectors of a row, so that a thread sees one channel vector only.
inline int grid_for(std::int64_t vectors, int row_vectors, int per_thread) {
  constexpr std::int64_t kBlocks = 132 * 16;
  std::int64_t unit = row_vectors;
  for (std::int64_t a = unit, b = kThreads; b != 0;) {  // row_vectors / gcd(row_vectors, threads)
    const std::int64_t rest = a % b;
    a = b;
    b = rest;
    if (b == 0) unit = row_vectors / a;
  }
  const std::int64_t wanted = divide_up(vectors, std::int64_t{kThreads} * per_thread);
  const std::int64_t blocks = wanted < kBlocks ? wanted : kBlocks;
  return static_cast<int>(divide_up(blocks, unit) * unit);
}

}  // namespace redline::backend::cuda
