// Flat ops and the image input.
#include "backend/cuda/kernels/vec.cuh"

namespace redline::backend::cuda {
namespace {

// y = body over a flat array, one vector a thread.
template <typename T, int N, typename Body>
__global__ void __launch_bounds__(kThreads) flat_kernel(std::int64_t vectors, void* y, Body body) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < vectors) store<T, N>(y, i, body.template at<N>(i));
}

// Launches with the widest vectors that divide `count`.
template <typename T, typename Body>
void launch_flat(std::int64_t count, void* y, cudaStream_t stream, Body body) {
  constexpr int kWide = 16 / sizeof(T);
  if (count % kWide == 0) {
    const std::int64_t vectors = count / kWide;
    flat_kernel<T, kWide>
        <<<static_cast<int>(divide_up(vectors, kThreads)), kThreads, 0, stream>>>(vectors, y, body);
  } else {
    flat_kernel<T, 1><<<static_cast<int>(divide_up(count, kThreads)), kThreads, 0, stream>>>(count, y, body);
  }
}

template <typename T>
struct Relu {
  const void* x;
  template <int N>
  __device__ Vec<T, N> at(std::int64_t i) const {
    Vec<T, N> out = load<T, N>(x, i);
#pragma unroll
    for (int k = 0; k < N; ++k) out.set(k, out.at(k) < 0.0F ? 0.0F : out.at(k));
    return out;
  }
};

template <typename T>
struct ReluGrad {
  const void *dy, *y;
  template <int N>
  __device__ Vec<T, N> at(std::int64_t i) const {
    Vec<T, N> out = load<T, N>(dy, i);
    const Vec<T, N> value = load<T, N>(y, i);
#pragma unroll
    for (int k = 0; k < N; ++k) out.set(k, value.at(k) > 0.0F ? out.at(k) : 0.0F);
    return out;
  }
};

template <typename T>
struct Add {
  const void *a, *b;
  template <int N>
  __device__ Vec<T, N> at(std::int64_t i) const {
    Vec<T, N> out = load<T, N>(a, i);
    const Vec<T, N> other = load<T, N>(b, i);
#pragma unroll
    for (int k = 0; k < N; ++k) out.set(k, out.at(k) + other.at(k));
    return out;
  }
};

template <typename From, typename To>
struct Convert {
  const void* x;
  template <int N>
  __device__ Vec<To, N> at(std::int64_t i) const {
    const Vec<From, N> in = load<From, N>(x, i);
    Vec<To, N> out;
#pragma unroll
    for (int k = 0; k < N; ++k) out.set(k, in.at(k));
    return out;
  }
};

// Calls body.template operator()<T>().
template <typename Body>
void dispatch_type(Type type, const Body& body) {
  dispatch(type, 1, [&]<typename T, int N>() { body.template operator()<T>(); });
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    normalize_kernel(ImageNormalize args, const std::uint8_t* images, void* x) {
  // Four pixels a thread: three words in, four vectors of four out.
  const std::int64_t first = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * 4;
  if (first >= args.pixels) return;
  std::uint8_t bytes[12];
  if (first + 4 <= args.pixels) {
    const auto* words = reinterpret_cast<const std::uint32_t*>(images + first * 3);
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      const std::uint32_t word = words[i];
#pragma unroll
      for (int b = 0; b < 4; ++b) bytes[i * 4 + b] = static_cast<std::uint8_t>(word >> (8 * b));
    }
  } else {
    for (int i = 0; i < 12; ++i) bytes[i] = first * 3 + i < args.pixels * 3 ? images[first * 3 + i] : 0;
  }
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    if (first + p >= args.pixels) return;
    Vec<T, 4> out;
#pragma unroll
    for (int c = 0; c < 3; ++c)
      out.set(c, fmaf(static_cast<float>(bytes[p * 3 + c]), args.scale[c], args.bias[c]));
    out.set(3, 0.0F);
    store<T, 4>(x, first + p, out);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    pack_image_kernel(std::int64_t pixels, std::int64_t plane, const float* from, void* x) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= pixels) return;
  Vec<T, 4> out;
  for (int c = 0; c < 3; ++c) out.set(c, from[(i / plane * 3 + c) * plane + i % plane]);
  out.set(3, 0.0F);
  store<T, 4>(x, i, out);
}

__global__ void fill_rows_kernel(std::int64_t count, int columns, const float* bias, float* y) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) y[i] = bias[i % columns];
}

template <typename T>
__global__ void column_sums_kernel(int rows, int columns, const T* dy, float* db) {
  const int column = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (column >= columns) return;
  float sum = 0.0F;
#pragma unroll 8
  for (int row = 0; row < rows; ++row) sum += to_float(dy[std::int64_t{row} * columns + column]);
  db[column] = sum;
}

}  // namespace

void relu(Type type, std::int64_t count, const void* x, void* y, cudaStream_t stream) {
  dispatch_type(type, [&]<typename T>() { launch_flat<T>(count, y, stream, Relu<T>{x}); });
}

void relu_grad(Type type, std::int64_t count, const void* dy, const void* y, void* dx, cudaStream_t stream) {
  dispatch_type(type, [&]<typename T>() { launch_flat<T>(count, dx, stream, ReluGrad<T>{dy, y}); });
}

void add(Type type, std::int64_t count, const void* a, const void* b, void* y, cudaStream_t stream) {
  dispatch_type(type, [&]<typename T>() { launch_flat<T>(count, y, stream, Add<T>{a, b}); });
}

void cast(Type type, std::int64_t count, const float* x, void* y, cudaStream_t stream) {
  dispatch_type(type, [&]<typename T>() { launch_flat<T>(count, y, stream, Convert<float, T>{x}); });
}

void widen(Type type, std::int64_t count, const void* x, float* y, cudaStream_t stream) {
  dispatch_type(type, [&]<typename T>() { launch_flat<float>(count, y, stream, Convert<T, float>{x}); });
}

void normalize_image(Type type, const ImageNormalize& args, const std::uint8_t* images, void* x,
                     cudaStream_t stream) {
  dispatch_type(type, [&]<typename T>() {
    const int grid = static_cast<int>(divide_up(args.pixels, std::int64_t{kThreads} * 4));
    normalize_kernel<T><<<grid, kThreads, 0, stream>>>(args, images, x);
  });
}

void pack_image(Type type, std::int64_t images, std::int64_t plane, const float* from, void* x,
                cudaStream_t stream) {
  dispatch_type(type, [&]<typename T>() {
    const int grid = static_cast<int>(divide_up(images * plane, kThreads));
    pack_image_kernel<T><<<grid, kThreads, 0, stream>>>(images * plane, plane, from, x);
  });
}

void fill_rows(std::int64_t rows, int columns, const float* bias, float* y, cudaStream_t stream) {
  fill_rows_kernel<<<static_cast<int>(divide_up(rows * columns, kThreads)), kThreads, 0, stream>>>(
      rows * columns, columns, bias, y);
}

void column_sums(Type type, int rows, int columns, const void* dy, float* db, cudaStream_t stream) {
  dispatch_type(type, [&]<typename T>() {
    column_sums_kernel<T><<<static_cast<int>(divide_up(columns, kThreads)), kThreads, 0, stream>>>(
        rows, columns, static_cast<const T*>(dy), db);
  });
}

}  // namespace redline::backend::cuda
