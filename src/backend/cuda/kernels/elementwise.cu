// Flat ops and the image input.
#include "backend/cuda/kernels/vec.cuh"

namespace redline::backend::cuda {
namespace {

struct Relu {
  static __device__ float of(float x, float) { return x < 0.0F ? 0.0F : x; }
};
struct ReluGrad {
  static __device__ float of(float dy, float y) { return y > 0.0F ? dy : 0.0F; }
};
struct Add {
  static __device__ float of(float a, float b) { return a + b; }
};
struct Convert {
  static __device__ float of(float x, float) { return x; }
};

// y = Op of one flat array or of two, element by element, one vector per thread.
template <typename Op, typename From, typename To, int N>
__global__ void __launch_bounds__(kThreads)
    flat_kernel(std::int64_t vectors, const void* a, const void* b /* ? */, void* y) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= vectors) return;
  const Vec<From, N> first = load<From, N>(a, i), second = b == nullptr ? first : load<From, N>(b, i);
  store(y, i, Vec<To, N>::make([&](int k) { return Op::of(first.at(k), second.at(k)); }));
}

// Launches with the widest vectors that divide `count`.
template <typename Op, typename From, typename To>
void launch_flat(std::int64_t count, const void* a, const void* b, void* y, cudaStream_t stream) {
  constexpr int kWide = 16 / sizeof(To);
  const bool wide = count % kWide == 0;
  const std::int64_t vectors = wide ? count / kWide : count;
  const auto kernel = wide ? flat_kernel<Op, From, To, kWide> : flat_kernel<Op, From, To, 1>;
  kernel<<<blocks_for(vectors), kThreads, 0, stream>>>(vectors, a, b, y);
}

// The bytes of a row of images, normalised.
struct BytesOfImages {
  const std::uint8_t* images;
  ImageNormalize args;

  // Four neighbouring pixels of a row, zeros where they are outside the image.
  REDLINE_DEVICE void four(const Images& shape, std::int64_t image, int h, int w,
                           float (&pixels)[4][3]) const {
    const std::int64_t first = ((image * shape.h + h) * shape.w + w) * 3;
    const bool row = h >= 0 && h < shape.h;
    if (row && w >= 0 && w + 4 <= shape.w && first % 4 == 0) {
      const auto* words = reinterpret_cast<const std::uint32_t*>(images + first);
      const std::uint32_t word[3] = {words[0], words[1], words[2]};
#pragma unroll
      for (int i = 0; i < 12; ++i) put(pixels, i, static_cast<std::uint8_t>(word[i / 4] >> (8 * (i % 4))));
    } else {
#pragma unroll
      for (int i = 0; i < 12; ++i) {
        if (row && w + i / 3 >= 0 && w + i / 3 < shape.w) {
          put(pixels, i, images[first + i]);
        } else {
          pixels[i / 3][i % 3] = 0.0F;
        }
      }
    }
  }

 private:
  REDLINE_DEVICE void put(float (&pixels)[4][3], int i, std::uint8_t byte) const {
    pixels[i / 3][i % 3] = fmaf(static_cast<float>(byte), args.scale[i % 3], args.bias[i % 3]);
  }
};

struct FloatsOfImages {
  const float* images;  // planes

  REDLINE_DEVICE void four(const Images& shape, std::int64_t image, int h, int w,
                           float (&pixels)[4][3]) const {
    for (int p = 0; p < 4; ++p) {
      for (int c = 0; c < 3; ++c) {
        const bool there = h >= 0 && h < shape.h && w + p >= 0 && w + p < shape.w;
        pixels[p][c] = there ? images[((image * 3 + c) * shape.h + h) * shape.w + w + p] : 0.0F;
      }
    }
  }
};

constexpr int kFoldedBefore = 2;  // pairs of padding before a folded image; there is one after it

// What launch_image works on: four columns by two rows per thread, the padding of folded images included.
struct ImageGrid {
  int fours, rows, shift;
  __host__ __device__ explicit ImageGrid(const Images& shape)
      : fours((shape.w + (shape.folded ? 2 * kFoldedBefore + 2 : 0) + 3) / 4),
        rows((shape.h + 1) / 2 + (shape.folded ? kFoldedBefore + 1 : 0)),
        shift(shape.folded ? 2 * kFoldedBefore : 0) {}
};

// Two neighbouring pixels, each with a fourth channel of zeros.
template <typename T>
REDLINE_DEVICE Vec<T, 8> two_pixels(const float (&row)[4][3], int first) {
  return Vec<T, 8>::make([&](int k) { return k % 4 < 3 ? row[first + k / 4][k % 4] : 0.0F; });
}

template <typename T, bool kFolded, typename From>
__global__ void __launch_bounds__(kThreads) image_kernel(Images shape, From from, void* x) {
  const ImageGrid grid(shape);
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= shape.count * grid.rows * grid.fours) return;
  const int w = static_cast<int>(i % grid.fours) * 4, h = static_cast<int>(i / grid.fours % grid.rows) * 2;
  const std::int64_t image = i / grid.fours / grid.rows;
  float pixels[2][4][3];
#pragma unroll
  for (int dy = 0; dy < 2; ++dy) from.four(shape, image, h + dy - grid.shift, w - grid.shift, pixels[dy]);
  if constexpr (kFolded) {
    const int pairs = (shape.w + 1) / 2 + kFoldedBefore + 1;
#pragma unroll
    for (int at = 0; at < 4; ++at) {
      const int pair = at / 2, dy = at % 2;
      if (w / 2 + pair >= pairs) break;
      store(x, ((image * grid.rows + h / 2) * pairs + w / 2 + pair) * 2 + dy,
            two_pixels<T>(pixels[dy], pair * 2));
    }
  } else if (shape.w % 4 == 0) {
#pragma unroll
    for (int at = 0; at < 4; ++at) {
      const int dy = at / 2, pair = at % 2;
      if (h + dy >= shape.h) continue;
      store(x, ((image * shape.h + h + dy) * shape.w + w) / 2 + pair, two_pixels<T>(pixels[dy], pair * 2));
    }
  } else {
#pragma unroll
    for (int at = 0; at < 8; ++at) {
      const int dy = at / 4, p = at % 4;
      if (h + dy >= shape.h || w + p >= shape.w) continue;
      store(x, (image * shape.h + h + dy) * shape.w + w + p,
            Vec<T, 4>::make([&](int k) { return k < 3 ? pixels[dy][p][k] : 0.0F; }));
    }
  }
}

template <typename From>
void launch_image(Type type, const Images& shape, const From& from, void* x, cudaStream_t stream) {
  const ImageGrid of(shape);
  const int grid = blocks_for(shape.count * of.rows * of.fours);
  dispatch_type(type, [&]<typename T>() {
    const auto kernel = shape.folded ? image_kernel<T, true, From> : image_kernel<T, false, From>;
    kernel<<<grid, kThreads, 0, stream>>>(shape, from, x);
  });
}

// A block per filter of 4 x 4 x (2, 2, 4), a thread per element.
template <typename T>
__global__ void clear_folded_padding_kernel(T* dw) {
  const int i = threadIdx.x, inside = i % 16, pair_x = i / 16 % 4, pair_y = i / 64;
  const bool no_row = pair_y == 0 && inside < 8, no_column = pair_x == 0 && inside % 8 < 4;
  if (no_row || no_column || inside % 4 == 3) dw[blockIdx.x * 256 + i] = from_float<T>(0.0F);
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

void flat(graph::OpKind op, Type type, std::int64_t count, const void* a, const void* b, void* y,
          cudaStream_t stream) {
  dispatch_type(type, [&]<typename T>() {
    if (op == graph::OpKind::relu) return launch_flat<Relu, T, T>(count, a, nullptr, y, stream);
    if (op == graph::OpKind::relu_grad) return launch_flat<ReluGrad, T, T>(count, a, b, y, stream);
    launch_flat<Add, T, T>(count, a, b, y, stream);
  });
}

void cast(Type type, std::int64_t count, const float* x, void* y, cudaStream_t stream) {
  dispatch_type(type, [&]<typename T>() { launch_flat<Convert, float, T>(count, x, nullptr, y, stream); });
}

void widen(Type type, std::int64_t count, const void* x, float* y, cudaStream_t stream) {
  dispatch_type(type, [&]<typename T>() { launch_flat<Convert, T, float>(count, x, nullptr, y, stream); });
}

void normalize_image(Type type, const Images& shape, const ImageNormalize& args, const std::uint8_t* images,
                     void* x, cudaStream_t stream) {
  launch_image(type, shape, BytesOfImages{images, args}, x, stream);
}

void pack_image(Type type, const Images& shape, const float* from, void* x, cudaStream_t stream) {
  launch_image(type, shape, FloatsOfImages{from}, x, stream);
}

void clear_folded_padding(Type type, std::int64_t filters, void* dw, cudaStream_t stream) {
  dispatch_type(type, [&]<typename T>() {
    clear_folded_padding_kernel<T><<<static_cast<int>(filters), 256, 0, stream>>>(static_cast<T*>(dw));
  });
}

void fill_rows(std::int64_t rows, int columns, const float* bias, float* y, cudaStream_t stream) {
  fill_rows_kernel<<<blocks_for(rows * columns), kThreads, 0, stream>>>(rows * columns, columns, bias, y);
}

void column_sums(Type type, int rows, int columns, const void* dy, float* db, cudaStream_t stream) {
  dispatch_type(type, [&]<typename T>() {
    column_sums_kernel<T>
        <<<blocks_for(columns), kThreads, 0, stream>>>(rows, columns, static_cast<const T*>(dy), db);
  });
}

}  // namespace redline::backend::cuda
