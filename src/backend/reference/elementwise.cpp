#include <algorithm>
#include <cstddef>

#include "backend/reference/kernels.h"

namespace redline::backend::reference {

void normalize_image(Arguments& args) {
  if (args.input_dtype(0) != graph::DType::u8) {  // made ready by the caller
    std::ranges::copy(args.in(0), args.out(0).begin());
    return;
  }
  const auto images = args.in_bytes(0);  // NHWC
  const auto x = args.out(0);            // NCHW
  const auto& attr = args.attr<graph::NormalizeAttr>();
  const graph::Shape& shape = args.output_shape(0);
  const auto batch = static_cast<std::size_t>(shape.n()), channels = static_cast<std::size_t>(shape.c());
  const auto plane = static_cast<std::size_t>(shape.h() * shape.w());
  for (std::size_t n = 0; n < batch; ++n) {
    for (std::size_t c = 0; c < channels; ++c) {
      for (std::size_t p = 0; p < plane; ++p) {
        const double value = images[(n * plane + p) * channels + c] / 255.0;
        x[(n * channels + c) * plane + p] = static_cast<float>((value - static_cast<double>(attr.mean[c])) /
                                                               static_cast<double>(attr.std[c]));
      }
    }
  }
}

// Written so that NaN stays NaN.
void relu(Arguments& args) {
  const auto x = args.in(0);
  const auto y = args.out(0);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = x[i] < 0.0F ? 0.0F : x[i];
}

void relu_grad(Arguments& args) {
  const auto dy = args.in(0), y = args.in(1);
  const auto dx = args.out(0);
  for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = y[i] > 0.0F ? dy[i] : 0.0F;
}

void add(Arguments& args) {
  const auto a = args.in(0), b = args.in(1);
  const auto y = args.out(0);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = a[i] + b[i];
}

}  // namespace redline::backend::reference
