#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "backend/reference/kernels.h"
#include "graph/operands.h"

namespace redline::backend::reference {

using namespace graph::operands;

namespace {

struct Planes {
  std::int64_t count, in_h, in_w, out_h, out_w;  // count: N x C

  Planes(const graph::Shape& in, const graph::Shape& out)
      : count(in.n() * in.c()), in_h(in.h()), in_w(in.w()), out_h(out.h()), out_w(out.w()) {}
};

struct Maximum {
  float value;
  std::uint8_t index;  // ky * kernel + kx
};

// The first maximum of a window in scan order; padding never wins, NaN always does.
Maximum window_maximum(const float* plane, const Planes& p, const graph::PoolAttr& attr, std::int64_t oy,
                       std::int64_t ox) {
  Maximum best{-std::numeric_limits<float>::infinity(), 0};
  bool found = false;
  for (int ky = 0; ky < attr.kernel; ++ky) {
    const std::int64_t iy = oy * attr.stride - attr.pad + ky;
    if (iy < 0 || iy >= p.in_h) continue;
    for (int kx = 0; kx < attr.kernel; ++kx) {
      const std::int64_t ix = ox * attr.stride - attr.pad + kx;
      if (ix < 0 || ix >= p.in_w) continue;
      const float value = plane[iy * p.in_w + ix];
      if (!found || value > best.value || (std::isnan(value) && !std::isnan(best.value))) {
        best = {value, static_cast<std::uint8_t>(ky * attr.kernel + kx)};
        found = true;
      }
    }
  }
  return best;
}

// `picked` (may be empty) gets the values of `raw` at the maxima of x.
void pool_into(Arguments& args, const float* x, std::span<float> picked = {}, const float* raw = nullptr) {
  const Planes p(args.input_shape(MaxPool::x), args.output_shape(MaxPool::y));
  const auto& attr = args.attr<graph::PoolAttr>();
  const auto y = args.out(MaxPool::y);
  const auto index = args.out_bytes(MaxPool::index);
  std::size_t out = 0;
  for (std::int64_t plane = 0; plane < p.count; ++plane) {
    for (std::int64_t oy = 0; oy < p.out_h; ++oy) {
      for (std::int64_t ox = 0; ox < p.out_w; ++ox, ++out) {
        const Maximum best = window_maximum(x + plane * p.in_h * p.in_w, p, attr, oy, ox);
        y[out] = best.value;
        if (!index.empty()) index[out] = best.index;
        if (picked.empty()) continue;
        const std::int64_t iy = oy * attr.stride - attr.pad + best.index / attr.kernel;
        const std::int64_t ix = ox * attr.stride - attr.pad + best.index % attr.kernel;
        picked[out] = raw[(plane * p.in_h + iy) * p.in_w + ix];
      }
    }
  }
}

}  // namespace

void max_pool(Arguments& args) { pool_into(args, args.in(MaxPool::x).data()); }

void affine_pool(Arguments& args) {
  const auto y = args.in(AffinePool::y), affine = args.in(AffinePool::affine);
  const graph::Shape& shape = args.input_shape(AffinePool::y);
  const auto channels = static_cast<std::size_t>(shape.c()),
             plane = static_cast<std::size_t>(shape.h() * shape.w());
  std::vector<float> activated(y.size());
  for (std::size_t i = 0; i < y.size(); ++i) {
    const std::size_t c = i / plane % channels;
    const float value = affine[c] * y[i] + affine[channels + c];
    activated[i] = value < 0.0F ? 0.0F : value;
  }
  pool_into(args, activated.data(), args.out(AffinePool::picked), y.data());
}

void max_pool_grad(Arguments& args) {
  const Planes p(args.output_shape(MaxPoolGrad::dx), args.input_shape(MaxPoolGrad::dy));
  const auto& attr = args.attr<graph::PoolAttr>();
  const auto dy = args.in(MaxPoolGrad::dy);
  const auto index = args.in_bytes(MaxPoolGrad::index);
  const auto dx = args.out(MaxPoolGrad::dx);
  std::vector<double> sums(dx.size(), 0.0);
  std::size_t out = 0;
  for (std::int64_t plane = 0; plane < p.count; ++plane) {
    for (std::int64_t oy = 0; oy < p.out_h; ++oy) {
      for (std::int64_t ox = 0; ox < p.out_w; ++ox, ++out) {
        const std::int64_t iy = oy * attr.stride - attr.pad + index[out] / attr.kernel;
        const std::int64_t ix = ox * attr.stride - attr.pad + index[out] % attr.kernel;
        sums[static_cast<std::size_t>((plane * p.in_h + iy) * p.in_w + ix)] += static_cast<double>(dy[out]);
      }
    }
  }
  for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = static_cast<float>(sums[i]);
}

void avg_pool(Arguments& args) {
  const auto x = args.in(AvgPool::x);
  const auto y = args.out(AvgPool::y);
  const std::size_t plane = x.size() / y.size();
  for (std::size_t i = 0; i < y.size(); ++i) {
    double sum = 0.0;
    for (std::size_t p = 0; p < plane; ++p) sum += static_cast<double>(x[i * plane + p]);
    y[i] = static_cast<float>(sum / static_cast<double>(plane));
  }
}

void avg_pool_grad(Arguments& args) {
  const auto dy = args.in(AvgPoolGrad::dy);
  const auto dx = args.out(AvgPoolGrad::dx);
  const std::size_t plane = dx.size() / dy.size();
  for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = dy[i / plane] / static_cast<float>(plane);
}

namespace {

// Calls visit(window, pixel, pixels) for every pixel: the offset of its window in the pooled tensor, the
// offset of the pixel, and the number of pixels in its window.
template <typename Visit>
void for_each_local_pixel(const Planes& p, std::int64_t kernel, Visit&& visit) {
  const auto length = [&](std::int64_t window, std::int64_t size) {
    return std::min(kernel, size - window * kernel);
  };
  for (std::int64_t plane = 0; plane < p.count; ++plane) {
    for (std::int64_t y = 0; y < p.in_h; ++y) {
      for (std::int64_t x = 0; x < p.in_w; ++x) {
        const std::int64_t oy = y / kernel, ox = x / kernel;
        visit(static_cast<std::size_t>((plane * p.out_h + oy) * p.out_w + ox),
              static_cast<std::size_t>((plane * p.in_h + y) * p.in_w + x),
              length(oy, p.in_h) * length(ox, p.in_w));
      }
    }
  }
}

}  // namespace

void local_avg_pool(Arguments& args) {
  const auto x = args.in(LocalAvgPool::x);
  const auto y = args.out(LocalAvgPool::y);
  std::vector<double> means(y.size(), 0.0);
  for_each_local_pixel(Planes(args.input_shape(LocalAvgPool::x), args.output_shape(LocalAvgPool::y)),
                       args.attr<graph::LocalPoolAttr>().kernel,
                       [&](std::size_t window, std::size_t pixel, std::int64_t pixels) {
                         means[window] += static_cast<double>(x[pixel]) / static_cast<double>(pixels);
                       });
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<float>(means[i]);
}

void local_avg_pool_grad(Arguments& args) {
  const auto dy = args.in(LocalAvgPoolGrad::dy);
  const auto dx = args.out(LocalAvgPoolGrad::dx);
  for_each_local_pixel(
      Planes(args.output_shape(LocalAvgPoolGrad::dx), args.input_shape(LocalAvgPoolGrad::dy)),
      args.attr<graph::LocalPoolAttr>().kernel,
      [&](std::size_t window, std::size_t pixel, std::int64_t pixels) {
        dx[pixel] = dy[window] / static_cast<float>(pixels);
      });
}

}  // namespace redline::backend::reference
