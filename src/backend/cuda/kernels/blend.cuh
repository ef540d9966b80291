// Two tensors made one, entry by entry, on the way into a matrix product.
#pragma once

#include "backend/cuda/kernels/hopper.cuh"

#ifdef REDLINE_HOPPER

namespace redline::backend::cuda::hopper {

// made = a * u + b * v + c, with numbers of each channel, those of two neighbours side by side. In shared
// memory.
struct Blend {
  float4* ab;
  float2* c;

  // find(channel) gives a, b and c, by `threads` threads of which this is one.
  template <typename Find>
  __device__ __forceinline__ void fill(int channels, int threads, const Find& find) {
    for (int pair = static_cast<int>(threadIdx.x); pair < channels / 2; pair += threads) {
      const auto first = find(2 * pair), second = find(2 * pair + 1);
      ab[pair] = {first.a, second.a, first.b, second.b};
      c[pair] = {first.c, second.c};
    }
  }
  __device__ __forceinline__ Blend from(int channel) const { return {ab + channel / 2, c + channel / 2}; }
};

// Sixteen rows of 64 channels for each warp, in order: what is made of u and v is in registers then as
// products hold it, and in u's place. `by` begins with the first of the channels.
template <typename T, bool kRelu>
__device__ __forceinline__ void blend(std::uint32_t (&made)[4][4], std::byte* u_at, const std::byte* v_at,
                                      const Blend& by) {
  const int lane = threadIdx.x % 32, row = static_cast<int>(threadIdx.x) / 32 * 16 + lane % 16;
  const auto at = [&](int step) { return swizzled(row, 2 * step + lane / 16); };
  std::uint32_t other[4][4];
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    load_matrices(made[step], u_at + at(step));
    load_matrices(other[step], v_at + at(step));
  }
#pragma unroll
  for (int step = 0; step < 4; ++step) {
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const int pair = step * 8 + part / 2 * 4 + lane % 4;
      const float4 ab = by.ab[pair];
      const float2 c = by.c[pair];
      const float2 u = Pair<T>::of_bits(made[step][part]).floats();
      const float2 v = Pair<T>::of_bits(other[step][part]).floats();
      const float first = fmaf(ab.x, u.x, fmaf(ab.z, v.x, c.x));
      const float second = fmaf(ab.y, u.y, fmaf(ab.w, v.y, c.y));
      made[step][part] = (kRelu ? Pair<T>::relu_of(first, second) : Pair<T>::of(first, second)).bits();
    }
    store_matrices(u_at + at(step), made[step]);
  }
}

// Which entries are positive: of 64 channels, in the order of memory, for row `lane / 4` of the warp's, or
// the one eight below. Four lanes know it.
template <typename T>
__device__ __forceinline__ uint2 positive(const std::uint32_t (&made)[4][4], int half) {
  const int lane = threadIdx.x % 32;
  std::uint32_t words[2] = {};
#pragma unroll
  for (int step = 0; step < 4; ++step) {
#pragma unroll
    for (int eight = 0; eight < 2; ++eight) {
      const std::uint32_t bits = Pair<T>::of_bits(made[step][2 * eight + half]).positive();
      words[step / 2] |= bits << (step % 2 * 16 + eight * 8);
    }
  }
#pragma unroll
  for (std::uint32_t& word : words) {
    word <<= lane % 4 * 2;
    word |= __shfl_xor_sync(~0U, word, 1);
    word |= __shfl_xor_sync(~0U, word, 2);
  }
  return {words[0], words[1]};
}

}  // namespace redline::backend::cuda::hopper

#endif
