// Vectors of the storage types, computed on in fp32; numbers per channel; and how kernels are launched.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <numeric>

#include "backend/cuda/kernels/kernels.h"

namespace redline::backend::cuda {

inline constexpr int kThreads = 256;

inline std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
// The blocks of a kernel with one thread per item.
inline int blocks_for(std::int64_t items) { return static_cast<int>(divide_up(items, kThreads)); }

template <typename T>
REDLINE_DEVICE float to_float(T value) {
  return static_cast<float>(value);
}
// Two bf16 numbers, exactly. With CUDA's own conversion, bf16 kernels have more instructions and registers
// than those of fp16.
REDLINE_DEVICE float2 floats_of_bf16(std::uint32_t two) {
  return {std::bit_cast<float>(two << 16), std::bit_cast<float>(two & 0xffff0000U)};
}
// To nearest.
template <typename T>
REDLINE_DEVICE T from_float(float value) {
  return static_cast<T>(value);
}

// Kernels that launch() starts begin with this. If the GPU can, they start while the kernel before still
// runs; here they wait for its results, and let the next kernel start.
REDLINE_DEVICE void begin_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

struct Launch {
  dim3 grid;
  int threads = kThreads;
  std::size_t shared_bytes = 0;
  // Whether it may start while the kernel before it ends. Pays off for small kernels, which take little
  // longer than their launch; the blocks of large ones would keep other kernels from running.
  bool early = false;
};

// Whether so many vectors make a small kernel.
inline bool is_small(std::int64_t vectors) { return vectors < std::int64_t{1} << 21; }

// Launches a kernel that begins with begin_kernel().
template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), const Launch& how, cudaStream_t stream,
            const Arguments&... arguments) {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = how.grid;
  config.blockDim = dim3(static_cast<unsigned>(how.threads));
  config.dynamicSmemBytes = how.shared_bytes;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = how.early && launches_early() ? 1 : 0;
  cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

// N elements that are loaded and stored at once.
template <typename T, int N>
struct alignas(sizeof(T) * N) Vec {
  static constexpr int kSize = N;
  T v[N];

  REDLINE_DEVICE float at(int i) const {
    if constexpr (__is_same(T, __nv_bfloat16) && N % 2 == 0) {
      std::uint32_t two;
      std::memcpy(&two, &v[i / 2 * 2], sizeof two);
      const float2 floats = floats_of_bf16(two);
      return i % 2 == 0 ? floats.x : floats.y;
    }
    return to_float(v[i]);
  }
  REDLINE_DEVICE void set(int i, float value) { v[i] = from_float<T>(value); }

  // Element i is of(i).
  template <typename Of>
  static REDLINE_DEVICE Vec make(const Of& of) {
    Vec made;
#pragma unroll
    for (int i = 0; i < N; ++i) made.set(i, of(i));
    return made;
  }
};

template <typename T, int N>
REDLINE_DEVICE Vec<T, N> load(const void* base, std::int64_t index) {
  return static_cast<const Vec<T, N>*>(base)[index];
}
template <typename T, int N>
REDLINE_DEVICE void store(void* base, std::int64_t index, const Vec<T, N>& value) {
  static_cast<Vec<T, N>*>(base)[index] = value;
}

// Reduces a value of each thread over the block, in an order independent of timing. All threads get it.
template <int kCount, typename T, typename Op>
__device__ T block_reduce(T value, T identity, const Op& op) {
  __shared__ T shared[kCount / 32];
  for (int offset = 16; offset > 0; offset /= 2) value = op(value, __shfl_xor_sync(~0U, value, offset));
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  T total = identity;
  for (const T part : shared) total = op(total, part);
  return total;
}

// Per-channel fp32 values of one vector's channels; zeros from a null array.
template <int N>
struct Lanes {
  float v[N];
  REDLINE_DEVICE explicit Lanes(const float* array, int first) {
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = array == nullptr ? 0.0F : array[first + i];
  }
  REDLINE_DEVICE float operator[](int i) const { return v[i]; }
};

// Numbers per channel that have to be computed: a block computes each once and its threads pick theirs, or
// every thread computes those of its own channels, as it must if rows are too wide for a block.
enum class Find { by_block, by_thread };

template <int N, int kCount>
struct PerChannel {
  float v[kCount][N];

  static REDLINE_DEVICE bool shared_by_block(int channels, Find by) {
    return by == Find::by_block && channels <= kThreads * N;
  }

  // find(channel) returns kCount numbers. To be called by all threads of the block. `by` is a compile-time
  // constant.
  template <typename Numbers>
  REDLINE_DEVICE PerChannel(int first, int channels, Find by, const Numbers& find) {
    if (shared_by_block(channels, by)) {
      __shared__ float table[kCount][kThreads * N];
      for (int c = threadIdx.x; c < channels; c += kThreads) {
        const Values found = find(c);
#pragma unroll
        for (int i = 0; i < kCount; ++i) table[i][c] = found.v[i];
      }
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
#pragma unroll
        for (int k = 0; k < N; ++k) v[i][k] = table[i][first + k];
      }
    } else {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const Values found = find(first + k);
#pragma unroll
        for (int i = 0; i < kCount; ++i) v[i][k] = found.v[i];
      }
    }
  }

  struct Values {
    float v[kCount];
  };
};

// A norm's gradient in a channel: dy = a * g + b * y + c.
struct Slope {
  float a, b, c;
  REDLINE_DEVICE Slope(const NormGradApply& args, int channel, int channels, float count) {
    const float inverse = args.saved[channels + channel];
    a = args.gamma[channel] * inverse;
    b = -a * inverse * args.dgamma[channel] / count;
    c = -a * args.dbeta[channel] / count - b * args.saved[channel];
  }
};

// The same for a vector's channels.
template <int N>
struct NormSlope {
  PerChannel<N, 3> abc;
  REDLINE_DEVICE NormSlope(const NormGradApply& args, int first, int channels, float count, Find by)
      : abc(first, channels, by, [&](int at) {
          const Slope slope(args, at, channels, count);
          return typename PerChannel<N, 3>::Values{{slope.a, slope.b, slope.c}};
        }) {}
  REDLINE_DEVICE float at(int k, float g, float y) const {
    return fmaf(abc.v[0][k], g, fmaf(abc.v[1][k], y, abc.v[2][k]));
  }
};

// Calls body.template operator()<T>().
template <typename Body>
constexpr void dispatch_type(Type type, const Body& body) {
  switch (type) {
    case Type::f16:
      return body.template operator()<__half>();
    case Type::bf16:
      return body.template operator()<__nv_bfloat16>();
    default:
      return body.template operator()<float>();
  }
}

// The same for f16 and bf16 only; returns what body returns.
template <typename Body>
auto dispatch_narrow(Type type, const Body& body) {
  return type == Type::f16 ? body.template operator()<__half>() : body.template operator()<__nv_bfloat16>();
}

// Calls body.template operator()<T, N>() with the widest vectors that divide `channels`.
template <typename Body>
void dispatch(Type type, int channels, const Body& body) {
  dispatch_type(type, [&]<typename T>() {
    constexpr int kWide = 16 / sizeof(T);
    channels % kWide == 0 ? body.template operator()<T, kWide>() : body.template operator()<T, 1>();
  });
}

// Blocks of a grid whose stride is a multiple of a row's vectors: a thread always has the same channels.
inline int grid_for(std::int64_t vectors, int row_vectors, int per_thread) {
  const int unit = row_vectors / std::gcd(row_vectors, kThreads);
  const std::int64_t wanted = divide_up(vectors, std::int64_t{kThreads} * per_thread);
  const std::int64_t most = std::int64_t{multiprocessors()} * 16, blocks = wanted < most ? wanted : most;
  return static_cast<int>(divide_up(blocks, unit) * unit);
}

}  // namespace redline::backend::cuda
