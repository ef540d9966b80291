// A convolution and its two gradients as one matrix product each. The input's windows are written out as a
// matrix (im2col) for some images at a time, so that the innermost loop runs over many contiguous
// elements even where images are small.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/reference/channels.h"
#include "backend/reference/kernels.h"
#include "graph/operands.h"

namespace redline::backend::reference {

using namespace graph::operands;

namespace {

struct Geometry {
  std::int64_t batch, in_channels, in_h, in_w;
  std::int64_t out_channels, out_h, out_w;
  std::int64_t kernel_h, kernel_w, stride, pad, groups;

  Geometry(const graph::Shape& x, const graph::Shape& w, const graph::Shape& y, const graph::ConvAttr& attr)
      : batch(x.n()),
        in_channels(x.c()),
        in_h(x.h()),
        in_w(x.w()),
        out_channels(y.c()),
        out_h(y.h()),
        out_w(y.w()),
        kernel_h(w.h()),
        kernel_w(w.w()),
        stride(attr.stride),
        pad(attr.pad),
        groups(attr.groups) {}

  std::int64_t out_plane() const { return out_h * out_w; }
  std::int64_t group_in() const { return in_channels / groups; }
  std::int64_t group_out() const { return out_channels / groups; }
  std::int64_t taps() const { return group_in() * kernel_h * kernel_w; }  // elements of one window
  // Images at a time: enough for rows of about a thousand elements.
  std::int64_t some() const { return std::clamp<std::int64_t>(1024 / out_plane(), 1, batch); }
};

// Calls visit(tap, position, offset) for every element of every window in a group's channels of `images`
// images: its index in the window, the window's index among all, and its offset in the images; offset -1 is
// padding.
template <typename Visit>
void for_each_tap(const Geometry& g, std::int64_t group, std::int64_t images, Visit&& visit) {
  std::int64_t tap = 0;
  for (std::int64_t c = group * g.group_in(); c < (group + 1) * g.group_in(); ++c) {
    for (std::int64_t ky = 0; ky < g.kernel_h; ++ky) {
      for (std::int64_t kx = 0; kx < g.kernel_w; ++kx, ++tap) {
        std::int64_t position = 0;
        for (std::int64_t n = 0; n < images; ++n) {
          const std::int64_t plane = (n * g.in_channels + c) * g.in_h * g.in_w;
          for (std::int64_t oy = 0; oy < g.out_h; ++oy) {
            const std::int64_t iy = oy * g.stride - g.pad + ky;
            const bool row_inside = iy >= 0 && iy < g.in_h;
            for (std::int64_t ox = 0; ox < g.out_w; ++ox, ++position) {
              const std::int64_t ix = ox * g.stride - g.pad + kx;
              const bool inside = row_inside && ix >= 0 && ix < g.in_w;
              visit(tap, position, inside ? plane + iy * g.in_w + ix : -1);
            }
          }
        }
      }
    }
  }
}

// c[m][p] = sum over k of a[m * row_stride + k * depth_stride] * b[k * columns + p], summed in double. Rows
// come in pieces: sink(m, p0, values, count).
template <typename Sink>
void multiply(std::int64_t rows, std::int64_t depth, std::int64_t columns, const float* a,
              std::int64_t row_stride, std::int64_t depth_stride, const float* b, Sink&& sink) {
  constexpr std::int64_t kRows = 4, kColumns = 256;
  double sums[kRows][kColumns];
  for (std::int64_t p0 = 0; p0 < columns; p0 += kColumns) {
    const std::int64_t width = std::min(kColumns, columns - p0);
    for (std::int64_t m0 = 0; m0 < rows; m0 += kRows) {
      const std::int64_t height = std::min(kRows, rows - m0);
      std::fill(&sums[0][0], &sums[0][0] + kRows * kColumns, 0.0);
      for (std::int64_t k = 0; k < depth; ++k) {
        // Rows past the end repeat the last one, and are dropped below.
        double factor[kRows];
        for (std::int64_t m = 0; m < kRows; ++m) {
          factor[m] = a[(m0 + std::min(m, height - 1)) * row_stride + k * depth_stride];
        }
        const float* row = b + k * columns + p0;
        for (std::int64_t p = 0; p < width; ++p) {
          const double value = row[p];
          sums[0][p] += factor[0] * value;
          sums[1][p] += factor[1] * value;
          sums[2][p] += factor[2] * value;
          sums[3][p] += factor[3] * value;
        }
      }
      for (std::int64_t m = 0; m < height; ++m) sink(m0 + m, p0, sums[m], width);
    }
  }
}

// dy of some images as rows of channels: [O][images * out_plane].
std::vector<float> channel_rows(const Geometry& g, const float* dy, std::int64_t images) {
  const std::int64_t plane = g.out_plane(), columns = images * plane;
  std::vector<float> rows(static_cast<std::size_t>(g.out_channels * columns));
  for (std::int64_t n = 0; n < images; ++n) {
    for (std::int64_t o = 0; o < g.out_channels; ++o) {
      std::copy_n(dy + (n * g.out_channels + o) * plane, plane, rows.data() + o * columns + n * plane);
    }
  }
  return rows;
}

}  // namespace

namespace {

// The sums of y and y^2 per channel, for the norm that follows.
void write_sums(std::span<const float> y, const Channels& channels, std::span<float> sums) {
  if (sums.empty()) return;
  for (std::size_t c = 0; c < channels.channels; ++c) {
    double sum = 0.0, squares = 0.0;
    channels.for_each(c, [&](std::size_t i) {
      sum += static_cast<double>(y[i]);
      squares += static_cast<double>(y[i]) * static_cast<double>(y[i]);
    });
    sums[c] = static_cast<float>(sum);
    sums[channels.channels + c] = static_cast<float>(squares);
  }
}

}  // namespace

void conv(Arguments& args) {
  const Geometry g(args.input_shape(Conv::x), args.input_shape(Conv::w), args.output_shape(Conv::y),
                   args.attr<graph::ConvAttr>());
  const auto x = args.in(Conv::x), w = args.in(Conv::w);
  const auto y = args.out(Conv::y);
  const std::int64_t plane = g.out_plane(), taps = g.taps();
  std::vector<float> windows;  // [taps][columns]
  for (std::int64_t first = 0; first < g.batch; first += g.some()) {
    const std::int64_t images = std::min(g.some(), g.batch - first), columns = images * plane;
    const float* source = x.data() + first * g.in_channels * g.in_h * g.in_w;
    float* target = y.data() + first * g.out_channels * plane;
    windows.resize(static_cast<std::size_t>(taps * columns));
    for (std::int64_t group = 0; group < g.groups; ++group) {
      const std::int64_t channel = group * g.group_out();
      for_each_tap(g, group, images, [&](std::int64_t tap, std::int64_t position, std::int64_t offset) {
        windows[static_cast<std::size_t>(tap * columns + position)] = offset < 0 ? 0.0F : source[offset];
      });
      multiply(g.group_out(), taps, columns, w.data() + channel * taps, taps, 1, windows.data(),
               [&](std::int64_t o, std::int64_t p0, const double* values, std::int64_t count) {
                 for (std::int64_t i = 0; i < count; ++i) {
                   const std::int64_t n = (p0 + i) / plane, p = (p0 + i) % plane;
                   target[(n * g.out_channels + channel + o) * plane + p] = static_cast<float>(values[i]);
                 }
               });
    }
  }
  write_sums(y, Channels(args.output_shape(Conv::y)), args.out(Conv::sums));
}

void conv_grad_input(Arguments& args) {
  const Geometry g(args.output_shape(ConvGradInput::dx), args.input_shape(ConvGradInput::w),
                   args.input_shape(ConvGradInput::dy), args.attr<graph::ConvAttr>());
  const auto dy = args.in(ConvGradInput::dy), w = args.in(ConvGradInput::w);
  const auto dx = args.out(ConvGradInput::dx);
  const std::int64_t plane = g.out_plane(), taps = g.taps(), image = g.in_channels * g.in_h * g.in_w;
  std::vector<double> windows, sums;  // [taps][columns]; [images][C][H][W]
  for (std::int64_t first = 0; first < g.batch; first += g.some()) {
    const std::int64_t images = std::min(g.some(), g.batch - first), columns = images * plane;
    const auto rows = channel_rows(g, dy.data() + first * g.out_channels * plane, images);
    windows.resize(static_cast<std::size_t>(taps * columns));
    sums.assign(static_cast<std::size_t>(images * image), 0.0);
    for (std::int64_t group = 0; group < g.groups; ++group) {
      const std::int64_t channel = group * g.group_out();
      multiply(taps, g.group_out(), columns, w.data() + channel * taps, 1, taps,
               rows.data() + channel * columns,
               [&](std::int64_t tap, std::int64_t p0, const double* values, std::int64_t count) {
                 std::copy_n(values, count, windows.data() + tap * columns + p0);
               });
      for_each_tap(g, group, images, [&](std::int64_t tap, std::int64_t position, std::int64_t offset) {
        if (offset < 0) return;
        sums[static_cast<std::size_t>(offset)] += windows[static_cast<std::size_t>(tap * columns + position)];
      });
    }
    std::transform(sums.begin(), sums.end(), dx.data() + first * image,
                   [](double sum) { return static_cast<float>(sum); });
  }
}

void conv_grad_weight(Arguments& args) {
  const Geometry g(args.input_shape(ConvGradWeight::x), args.output_shape(ConvGradWeight::dw),
                   args.input_shape(ConvGradWeight::dy), args.attr<graph::ConvAttr>());
  const auto x = args.in(ConvGradWeight::x), dy = args.in(ConvGradWeight::dy);
  const auto dw = args.out(ConvGradWeight::dw);
  const std::int64_t plane = g.out_plane(), taps = g.taps();
  std::vector<float> windows;  // [columns][taps]
  std::vector<double> sums(dw.size(), 0.0);
  for (std::int64_t first = 0; first < g.batch; first += g.some()) {
    const std::int64_t images = std::min(g.some(), g.batch - first), columns = images * plane;
    const float* source = x.data() + first * g.in_channels * g.in_h * g.in_w;
    const auto rows = channel_rows(g, dy.data() + first * g.out_channels * plane, images);
    windows.resize(static_cast<std::size_t>(taps * columns));
    for (std::int64_t group = 0; group < g.groups; ++group) {
      const std::int64_t channel = group * g.group_out();
      for_each_tap(g, group, images, [&](std::int64_t tap, std::int64_t position, std::int64_t offset) {
        windows[static_cast<std::size_t>(position * taps + tap)] = offset < 0 ? 0.0F : source[offset];
      });
      multiply(g.group_out(), columns, taps, rows.data() + channel * columns, columns, 1, windows.data(),
               [&](std::int64_t o, std::int64_t p0, const double* values, std::int64_t count) {
                 double* sum = sums.data() + (channel + o) * taps + p0;
                 for (std::int64_t i = 0; i < count; ++i) sum[i] += values[i];
               });
    }
  }
  std::transform(sums.begin(), sums.end(), dw.begin(), [](double sum) { return static_cast<float>(sum); });
}

}  // namespace redline::backend::reference
