#include <algorithm>
#include <cstddef>

#include "backend/reference/kernels.h"
#include "graph/operands.h"

namespace redline::backend::reference {

using namespace graph::operands;

void normalize_image(Arguments& args) {
  if (args.input_dtype(NormalizeImage::images) != graph::DType::u8) {  // made ready by the caller
    std::ranges::copy(args.in(NormalizeImage::images), args.out(NormalizeImage::x).begin());
    return;
  }
  const auto images = args.in_bytes(NormalizeImage::images);  // NHWC
  const auto x = args.out(NormalizeImage::x);                 // NCHW
  const auto& attr = args.attr<graph::NormalizeAttr>();
  const graph::Shape& shape = args.output_shape(NormalizeImage::x);
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
  const auto x = args.in(Relu::x);
  const auto y = args.out(Relu::y);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = x[i] < 0.0F ? 0.0F : x[i];
}

void relu_grad(Arguments& args) {
  const auto dy = args.in(ReluGrad::dy), y = args.in(ReluGrad::y);
  const auto dx = args.out(ReluGrad::dx);
  for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = y[i] > 0.0F ? dy[i] : 0.0F;
}

void add(Arguments& args) {
  const auto a = args.in(Add::a), b = args.in(Add::b);
  const auto y = args.out(Add::y);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = a[i] + b[i];
}

}  // namespace redline::backend::reference
