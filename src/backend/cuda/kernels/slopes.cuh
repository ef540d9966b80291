// A norm's gradient, made on the way into a matrix product.
#pragma once

#include "backend/cuda/kernels/hopper.cuh"
#include "backend/cuda/kernels/vec.cuh"

#ifdef REDLINE_HOPPER

namespace redline::backend::cuda::hopper {

// What dy = a * g + b * y + c is in each channel, for two neighbours at a time. In shared memory.
struct Slopes {
  float4* ab;
  float2* c;

  // By `threads` threads, of which this is one.
  __device__ void find(const NormGradApply& norm, int channels, float count, int threads) {
    for (int pair = static_cast<int>(threadIdx.x); pair < channels / 2; pair += threads) {
      const Slope first(norm, 2 * pair, channels, count), second(norm, 2 * pair + 1, channels, count);
      ab[pair] = {first.a, second.a, first.b, second.b};
      c[pair] = {first.c, second.c};
    }
  }
  __device__ __forceinline__ Slopes from(int channel) const { return {ab + channel / 2, c + channel / 2}; }
};

// Of sixteen rows for each warp, in order, and 64 channels: g and y to dy, which is in registers then as
// products hold it, and in g's place. `slopes` are those of the first channel on.
template <typename T>
__device__ __forceinline__ void differentiate(std::uint32_t (&dy)[4][4], std::byte* g_at,
                                              const std::byte* y_at, const Slopes& slopes) {
  const int lane = threadIdx.x % 32, row = static_cast<int>(threadIdx.x) / 32 * 16 + lane % 16;
  const auto at = [&](int step) { return swizzled(row, 2 * step + lane / 16); };
  std::uint32_t y[4][4];
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    load_matrices(dy[step], g_at + at(step));
    load_matrices(y[step], y_at + at(step));
  }
#pragma unroll
  for (int step = 0; step < 4; ++step) {
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const int pair = step * 8 + part / 2 * 4 + lane % 4;
      const float4 ab = slopes.ab[pair];
      const float2 c = slopes.c[pair];
      const float2 gradient = Pair<T>::of_bits(dy[step][part]).floats();
      const float2 value = Pair<T>::of_bits(y[step][part]).floats();
      dy[step][part] = Pair<T>::of(fmaf(ab.x, gradient.x, fmaf(ab.z, value.x, c.x)),
                                   fmaf(ab.y, gradient.y, fmaf(ab.w, value.y, c.y)))
                           .bits();
    }
    store_matrices(g_at + at(step), dy[step]);
  }
}

}  // namespace redline::backend::cuda::hopper

#endif
