#include "op_cases.h"

#include <initializer_list>
#include <iterator>
#include <string>
#include <utility>

#include "case_graph.h"

namespace redline::cases {
namespace {

using bench::OpCase;
using graph::DType;
using graph::kNone;
using graph::OpKind;
using graph::Shape;
using graph::TensorId;
using graph::TensorKind;

// Collects the cases of one dtype.
class Table : private CaseGraph {
 public:
  using CaseGraph::CaseGraph;

  std::vector<OpCase> run() {
    convolutions();
    norms();
    fused();
    pools();
    elementwise();
    head();
    updates();
    guards();
    return std::move(cases_);
  }

  // 264 blocks or more, three tiles of 1024 vectors or three rows of pixels in a ring: more than that for
  // each.
  std::vector<OpCase> run_large() {
    const Shape x{9, 512, 39, 39};
    joined_activation(x);
    norm_gradient(x, 'a');
    affine_pool({76, 64, 140, 6}, {3, 2, 1});
    affine_pool({1, 64, 5, 131}, {3, 2, 1});  // wider than a block
    return std::move(cases_);
  }

 private:
  void add(OpKind kind, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
           graph::Attributes attributes = {}) {
    add_op(kind, std::move(inputs), std::move(outputs), attributes);
    graph::Graph graph = take();
    std::string name = bench::describe(graph, graph.ops().front());
    cases_.push_back({std::move(name), std::move(graph)});
  }

  // Where activations are narrow a backend may keep the gradients of matrices and filters so too.
  std::vector<DType> gradient_types() const {
    if (dtype() == DType::f32) return {DType::f32};
    return {DType::f32, dtype()};
  }

  void convolution(Shape x, std::int64_t out_channels, int kernel, graph::ConvAttr attr) {
    const Shape w{out_channels, x.c() / attr.groups, kernel, kernel};
    const Shape y{x.n(), out_channels, graph::window_output(x.h(), kernel, attr.stride, attr.pad, "case"),
                  graph::window_output(x.w(), kernel, attr.stride, attr.pad, "case")};
    const auto weight = [&](TensorKind kind, DType dtype) { return tensor(w, dtype, kind); };
    TensorId in = activation(x);
    add(OpKind::conv, {in, weight(TensorKind::parameter, DType::f32)}, {activation(y)}, attr);
    in = activation(x);
    TensorId filter = weight(TensorKind::parameter, DType::f32), out = activation(y);
    add(OpKind::conv, {in, filter}, {out, pair(out_channels)}, attr);
    in = activation(y);
    add(OpKind::conv_grad_input, {in, weight(TensorKind::parameter, DType::f32)}, {activation(x)}, attr);
    for (DType kept : gradient_types()) {
      in = activation(x), out = activation(y);
      add(OpKind::conv_grad_weight, {in, out}, {weight(TensorKind::gradient, kept)}, attr);
    }
  }

  void convolutions() {
    for (int stride : {1, 2}) {
      convolution({3, 16, 5, 7}, 16, 1, {stride, 0});
      convolution({1, 17, 7, 5}, 40, 1, {stride, 0});
      convolution({2, 64, 6, 6}, 32, 1, {stride, 0});
      convolution({3, 16, 5, 7}, 17, 3, {stride, 1});
      convolution({1, 40, 8, 8}, 5, 3, {stride, 1});
      convolution({2, 5, 9, 4}, 64, 3, {stride, 0});
      convolution({2, 32, 3, 3}, 32, 3, {stride, 2});
      convolution({1, 1, 7, 9}, 1, 3, {stride, 1});
      convolution({2, 3, 17, 15}, 16, 7, {stride, 3});
      convolution({1, 3, 32, 32}, 64, 7, {stride, 3});
      convolution({2, 3, 10, 224}, 64, 7, {stride, 3});
    }
    convolution({1, 16, 1, 1}, 16, 1, {1, 0});
    // Windows that are mostly padding, as small images give in the last stage.
    convolution({1, 16, 1, 1}, 32, 3, {2, 1});
    convolution({3, 32, 1, 1}, 32, 3, {1, 1});
    convolution({2, 64, 2, 2}, 64, 3, {2, 1});
    // Wide and small, as in the last stage of a network.
    convolution({3, 128, 2, 2}, 64, 3, {1, 1});
    convolution({2, 256, 2, 3}, 128, 1, {1, 0});
    // More images than pixels.
    convolution({9, 32, 3, 2}, 48, 3, {1, 1});
    convolution({17, 64, 2, 2}, 32, 3, {2, 1});
    convolution({8, 32, 4, 4}, 64, 1, {2, 0});
    grouped_convolutions();
  }

  // Groups of 4, 8, 16 and 32 channels, as ResNeXt has them, and of other sizes.
  void grouped_convolutions() {
    for (int stride : {1, 2}) {
      convolution({2, 32, 9, 7}, 32, 3, {stride, 1, 8});
      convolution({3, 64, 5, 5}, 64, 3, {stride, 1, 8});
      convolution({2, 64, 6, 6}, 64, 3, {stride, 1, 4});
      convolution({2, 128, 4, 5}, 128, 3, {stride, 1, 4});
      convolution({1, 48, 5, 4}, 96, 3, {stride, 1, 3});
    }
    convolution({9, 128, 2, 2}, 128, 3, {1, 1, 32});
    convolution({2, 64, 3, 3}, 32, 1, {1, 0, 2});
    convolution({2, 8, 5, 5}, 16, 3, {1, 1, 2});
    convolution({1, 80, 4, 4}, 40, 3, {1, 1, 5});
  }

  static std::vector<Shape> activation_shapes() {
    return {{3, 16, 5, 7}, {1, 17, 6, 5}, {2, 64, 4, 4}, {3, 5, 7, 1},
            {2, 40, 3, 3}, {4, 1, 2, 2},  {1, 32, 9, 8}};
  }

  std::vector<TensorId> norm_inputs(const Shape& x) {
    const TensorId y = activation(x), gamma = channels(x.c()), beta = channels(x.c());
    return {y, gamma, beta, channels(x.c(), TensorKind::statistic), channels(x.c(), TensorKind::statistic)};
  }

  void norms() {
    for (const Shape& x : activation_shapes()) {
      graph::NormAttr attr;
      auto inputs = norm_inputs(x);
      add(OpKind::batch_norm, inputs, {activation(x), pair(x.c())}, attr);
      inputs = norm_inputs(x);
      add(OpKind::norm_stats, inputs, {pair(x.c()), pair(x.c())}, attr);
      inputs = norm_inputs(x);
      inputs.push_back(pair(x.c()));  // sums that the convolution gathered
      add(OpKind::norm_stats, inputs, {pair(x.c()), pair(x.c())}, attr);
      attr.training = false;
      inputs = norm_inputs(x);
      add(OpKind::batch_norm, inputs, {activation(x), kNone}, attr);
      inputs = norm_inputs(x);
      add(OpKind::norm_stats, inputs, {pair(x.c()), kNone}, attr);

      const TensorId dy = activation(x), y = activation(x), gamma = channels(x.c()), saved = pair(x.c());
      const TensorId dx = activation(x), dgamma = channels(x.c(), TensorKind::gradient);
      add(OpKind::batch_norm_grad, {dy, y, gamma, saved}, {dx, dgamma, channels(x.c(), TensorKind::gradient)},
          graph::NormAttr{});
    }
  }

  void fused() {
    for (const Shape& x : activation_shapes()) {
      activations(x);
      norm_gradients(x);
    }
  }

  void activations(const Shape& x) {
    const std::int64_t c = x.c();
    for (bool relu : {true, false}) {
      const graph::ActAttr attr{relu};
      TensorId y = activation(x), affine = pair(c);
      add(OpKind::affine_act, {y, affine, kNone, kNone}, {activation(x), kNone}, attr);
      y = activation(x), affine = pair(c);
      TensorId shortcut = activation(x);
      add(OpKind::affine_act, {y, affine, shortcut, kNone}, {activation(x), kNone}, attr);
      if (!relu) continue;
      y = activation(x), affine = pair(c), shortcut = activation(x);
      add(OpKind::affine_act, {y, affine, shortcut, kNone}, {activation(x), mask(x)}, attr);
      joined_activation(x);
    }
  }

  void joined_activation(const Shape& x) {
    const TensorId y = activation(x), affine = pair(x.c()), shortcut = activation(x);
    const TensorId shortcut_affine = pair(x.c());
    add(OpKind::affine_act, {y, affine, shortcut, shortcut_affine}, {activation(x), mask(x)},
        graph::ActAttr{true});
  }

  // The gate is a mask, the sign of the affine, or nothing; one or two gradients come in.
  void norm_gradients(const Shape& x) {
    const std::int64_t c = x.c();
    for (const char gate : {'m', 'a', '-'}) {
      for (bool second : {false, true}) {
        const TensorId g = activation(x), g2 = second ? activation(x) : kNone, y = activation(x);
        const TensorId affine = gate == 'a' ? pair(c) : kNone, bits = gate == 'm' ? mask(x) : kNone,
                       saved = pair(c);
        const TensorId dgamma = channels(c, TensorKind::gradient), dbeta = channels(c, TensorKind::gradient);
        const TensorId masked = second || gate == 'm' ? activation(x) : kNone;
        add(OpKind::norm_grad_stats, {g, g2, y, affine, bits, saved}, {dgamma, dbeta, masked},
            graph::NormAttr{});
      }
      norm_gradient(x, gate);
    }
  }

  void norm_gradient(const Shape& x, char gate) {
    const std::int64_t c = x.c();
    const TensorId g = activation(x), y = activation(x);
    const TensorId affine = gate == 'a' ? pair(c) : kNone, bits = gate == 'm' ? mask(x) : kNone;
    const TensorId saved = pair(c), gamma = channels(c);
    const TensorId dgamma = channels(c, TensorKind::gradient), dbeta = channels(c, TensorKind::gradient);
    add(OpKind::norm_grad_apply, {g, y, affine, bits, saved, gamma, dgamma, dbeta}, {activation(x)},
        graph::NormAttr{});
  }

  static Shape pooled(const Shape& x, const graph::PoolAttr& attr) {
    return {x.n(), x.c(), graph::window_output(x.h(), attr.kernel, attr.stride, attr.pad, "case"),
            graph::window_output(x.w(), attr.kernel, attr.stride, attr.pad, "case")};
  }

  void affine_pool(const Shape& x, const graph::PoolAttr& attr) {
    const Shape y = pooled(x, attr);
    const TensorId in = activation(x), affine = pair(x.c());
    add(OpKind::affine_pool, {in, affine}, {activation(y), activation(y, DType::u8), activation(y)}, attr);
  }

  void pools() {
    const std::pair<Shape, graph::PoolAttr> windows[] = {
        {{3, 16, 5, 7}, {3, 2, 1}}, {{1, 17, 8, 8}, {3, 2, 1}}, {{2, 64, 6, 9}, {3, 2, 1}},
        {{2, 5, 7, 7}, {2, 2, 0}},  {{1, 40, 6, 6}, {3, 1, 1}}, {{4, 1, 3, 3}, {3, 2, 0}},
        {{1, 32, 1, 1}, {3, 2, 1}},
    };
    for (const auto& [x, attr] : windows) {
      const Shape y = pooled(x, attr);
      TensorId in = activation(x);
      add(OpKind::max_pool, {in}, {activation(y), activation(y, DType::u8)}, attr);
      in = activation(x);
      add(OpKind::max_pool, {in}, {activation(y), kNone}, attr);
      affine_pool(x, attr);
      const TensorId dy = activation(y), index = activation(y, DType::u8);
      add(OpKind::max_pool_grad, {dy, index}, {activation(x)}, attr);
    }
    for (const Shape& x : activation_shapes()) {
      add(OpKind::avg_pool, {activation(x)}, {activation({x.n(), x.c()})});
      add(OpKind::avg_pool_grad, {activation({x.n(), x.c()})}, {activation(x)});
      for (const int side : {2, 3}) {  // of odd images, the windows at the edge are cut off
        const Shape y{x.n(), x.c(), (x.h() + side - 1) / side, (x.w() + side - 1) / side};
        TensorId from = activation(x);
        add(OpKind::local_avg_pool, {from}, {activation(y)}, graph::LocalPoolAttr{side});
        from = activation(y);
        add(OpKind::local_avg_pool_grad, {from}, {activation(x)}, graph::LocalPoolAttr{side});
      }
    }
  }

  void elementwise() {
    for (const Shape& x : activation_shapes()) {
      add(OpKind::relu, {activation(x)}, {activation(x)});
      TensorId a = activation(x);
      add(OpKind::relu_grad, {a, activation(x)}, {activation(x)});
      a = activation(x);
      add(OpKind::add, {a, activation(x)}, {activation(x)});
    }
    for (const Shape& x : {Shape{3, 3, 5, 7}, Shape{1, 3, 16, 16}}) {
      for (DType images : {DType::u8, DType::f32}) {
        add(OpKind::normalize_image, {tensor(x, images, TensorKind::input)}, {activation(x)},
            graph::NormalizeAttr{});
      }
    }
  }

  void head() {
    const std::pair<Shape, std::int64_t> sizes[] = {{{3, 16}, 5}, {{1, 17}, 10}, {{5, 64}, 33}, {{2, 40}, 2}};
    for (const auto& [x, classes] : sizes) {
      const Shape w{classes, x[1]}, y{x[0], classes};
      TensorId in = activation(x), weight = tensor(w, DType::f32, TensorKind::parameter);
      add(OpKind::linear, {in, weight, channels(classes)}, {activation(y, DType::f32)});
      in = activation(y), weight = tensor(w, DType::f32, TensorKind::parameter);
      add(OpKind::linear_grad_input, {in, weight}, {activation(x)});
      for (DType kept : gradient_types()) {
        in = activation(x);
        const TensorId dy = activation(y), dw = tensor(w, kept, TensorKind::gradient);
        add(OpKind::linear_grad_weight, {in, dy}, {dw, channels(classes, TensorKind::gradient)});
      }
    }
    for (const Shape& logits : {Shape{5, 10}, Shape{1, 3}, Shape{16, 1000}, Shape{9, 5}}) {
      for (float smoothing : {0.0F, 0.1F}) {
        for (bool training : {true, false}) loss(logits, smoothing, training, /*mixed=*/false);
        loss(logits, smoothing, /*training=*/true, /*mixed=*/true);
      }
    }
  }

  void loss(const Shape& logits, float smoothing, bool training, bool mixed) {
    std::vector<TensorId> inputs = {activation(logits, DType::f32),
                                    tensor({logits[0]}, DType::i32, TensorKind::input),
                                    training ? tensor({1}, DType::f32, TensorKind::scaler) : kNone};
    if (mixed) {
      inputs.push_back(tensor({logits[0]}, DType::i32, TensorKind::input));
      inputs.push_back(tensor({logits[0]}, DType::f32, TensorKind::input));
    }
    const TensorId metrics = tensor({graph::kLossMetrics}, DType::f32, TensorKind::metric);
    add(OpKind::softmax_cross_entropy, std::move(inputs), {metrics, training ? activation(logits) : kNone},
        graph::LossAttr{smoothing});
  }

  void updates() {
    for (const Shape& shape : {Shape{16, 5, 3, 3}, Shape{17, 40, 1, 1}, Shape{10, 33}, Shape{7}}) {
      updates(shape, DType::f32);
      if (dtype() != DType::f32 && shape.rank() > 1) updates(shape, dtype());
    }
  }

  // Gradients of all sizes together, some smaller than a vector, one of more than one share or chunk.
  void guards() {
    const Shape shapes[] = {{16, 5, 3, 3}, {300, 260, 1, 1}, {10, 33}, {7}, {1}};
    for (const DType gradients : gradient_types()) {
      const auto scaler = [&] { return tensor({1}, DType::f32, TensorKind::scaler); };
      const TensorId scale = scaler(), good = scaler(), skipped = scaler();
      std::vector<TensorId> inputs{scalars(), scale, good, skipped};
      for (const Shape& shape : shapes)
        inputs.push_back(tensor(shape, shape.rank() > 1 ? gradients : DType::f32, TensorKind::gradient));
      const TensorId found = check(), squares = activation({std::ssize(shapes)}, DType::f32);
      graph::ScaleAttr attr{gradients == DType::f16};
      attr.clip_norm = 5.0F;
      add(OpKind::gradient_check, std::move(inputs), {found, squares, scale, good, skipped}, attr);
    }
    std::vector<TensorId> values{scalars()}, copies;
    for (const std::int64_t c : {64, 7, 1, 300}) {
      values.push_back(channels(c, TensorKind::statistic));
      copies.push_back(activation({c}, DType::f32));
    }
    add(OpKind::snapshot, std::move(values), std::move(copies));
    std::vector<TensorId> inputs{check()}, restored;
    for (const std::int64_t c : {64, 7, 1, 300}) inputs.push_back(activation({c}, DType::f32));
    for (const std::int64_t c : {64, 7, 1, 300}) restored.push_back(channels(c, TensorKind::statistic));
    inputs.insert(inputs.end(), restored.begin(), restored.end());
    add(OpKind::restore, std::move(inputs), std::move(restored));
  }

  void updates(const Shape& shape, DType gradients) {
    const auto of = [&](TensorKind kind) {
      return tensor(shape, kind == TensorKind::gradient ? gradients : DType::f32, kind);
    };
    for (bool nesterov : {false, true}) {
      const TensorId w = of(TensorKind::parameter), dw = of(TensorKind::gradient),
                     v = of(TensorKind::momentum);
      add(OpKind::sgd, {w, dw, v, scalars(), check()}, {w, v}, graph::SgdAttr{0.9F, 0.01F, nesterov, 0.5F});
    }
    const TensorId w = of(TensorKind::parameter), dw = of(TensorKind::gradient), v = of(TensorKind::momentum);
    add(OpKind::lars, {w, dw, v, scalars(), check()}, {w, v},
        graph::LarsAttr{0.9F, 0.01F, 0.02F, 1e-8F, 0.5F});
    for (const OpKind kind : {OpKind::adamw, OpKind::lamb}) {
      const TensorId weights = of(TensorKind::parameter), gradient = of(TensorKind::gradient),
                     mean = of(TensorKind::momentum), square = of(TensorKind::momentum);
      add(kind, {weights, gradient, mean, square, scalars(), check()}, {weights, mean, square},
          graph::AdamAttr{0.9F, 0.99F, 1e-6F, 0.01F, 0.5F});
    }
    const TensorId total = tensor(shape, DType::f32, TensorKind::gradient), more = of(TensorKind::gradient);
    add(OpKind::accumulate, {total, more, scalars()}, {total});
    const TensorId average = of(TensorKind::average), value = of(TensorKind::parameter);
    add(OpKind::ema, {average, value, scalars(), check()}, {average});
    const TensorId reduced = of(TensorKind::gradient);
    add(OpKind::all_reduce, {reduced}, {reduced});
  }

  std::vector<OpCase> cases_;
};

}  // namespace

std::vector<OpCase> op_cases(DType dtype) { return Table(dtype).run(); }
std::vector<OpCase> large_op_cases(DType dtype) { return Table(dtype).run_large(); }

}  // namespace redline::cases
