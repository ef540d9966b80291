#include <cstddef>
#include <vector>

#include "backend/reference/kernels.h"
#include "graph/operands.h"

namespace redline::backend::reference {

using namespace graph::operands;

void linear(Arguments& args) {
  const auto x = args.in(Linear::x), w = args.in(Linear::w), b = args.in(Linear::b);
  const auto y = args.out(Linear::y);
  const auto batch = static_cast<std::size_t>(args.input_shape(Linear::x)[0]);
  const auto features = static_cast<std::size_t>(args.input_shape(Linear::x)[1]);
  const auto classes = static_cast<std::size_t>(args.input_shape(Linear::w)[0]);
  for (std::size_t n = 0; n < batch; ++n) {
    for (std::size_t k = 0; k < classes; ++k) {
      double sum = b[k];
      for (std::size_t c = 0; c < features; ++c) {
        sum += static_cast<double>(x[n * features + c]) * static_cast<double>(w[k * features + c]);
      }
      y[n * classes + k] = static_cast<float>(sum);
    }
  }
}

void linear_grad_input(Arguments& args) {
  const auto dy = args.in(LinearGradInput::dy), w = args.in(LinearGradInput::w);
  const auto dx = args.out(LinearGradInput::dx);
  const auto batch = static_cast<std::size_t>(args.input_shape(LinearGradInput::dy)[0]);
  const auto classes = static_cast<std::size_t>(args.input_shape(LinearGradInput::w)[0]);
  const auto features = static_cast<std::size_t>(args.input_shape(LinearGradInput::w)[1]);
  std::vector<double> row(features);
  for (std::size_t n = 0; n < batch; ++n) {
    row.assign(features, 0.0);
    for (std::size_t k = 0; k < classes; ++k) {
      const double g = dy[n * classes + k];
      for (std::size_t c = 0; c < features; ++c) row[c] += g * static_cast<double>(w[k * features + c]);
    }
    for (std::size_t c = 0; c < features; ++c) dx[n * features + c] = static_cast<float>(row[c]);
  }
}

void linear_grad_weight(Arguments& args) {
  const auto x = args.in(LinearGradWeight::x), dy = args.in(LinearGradWeight::dy);
  const auto dw = args.out(LinearGradWeight::dw), db = args.out(LinearGradWeight::db);
  const auto batch = static_cast<std::size_t>(args.input_shape(LinearGradWeight::x)[0]);
  const auto features = static_cast<std::size_t>(args.input_shape(LinearGradWeight::x)[1]);
  const auto classes = static_cast<std::size_t>(args.input_shape(LinearGradWeight::dy)[1]);
  std::vector<double> row(features);
  for (std::size_t k = 0; k < classes; ++k) {
    row.assign(features, 0.0);
    double bias = 0.0;
    for (std::size_t n = 0; n < batch; ++n) {
      const double g = dy[n * classes + k];
      bias += g;
      for (std::size_t c = 0; c < features; ++c) row[c] += g * static_cast<double>(x[n * features + c]);
    }
    if (!dw.empty()) {
      for (std::size_t c = 0; c < features; ++c) dw[k * features + c] = static_cast<float>(row[c]);
    }
    if (!db.empty()) db[k] = static_cast<float>(bias);
  }
}

}  // namespace redline::backend::reference
