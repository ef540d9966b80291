#include "graph/graph.h"

#include <utility>

#include "base/error.h"
#include "graph/operands.h"

namespace redline::graph {

TensorId Graph::add_tensor(Tensor tensor) {
  tensors_.push_back(std::move(tensor));
  return static_cast<TensorId>(tensors_.size() - 1);
}

Graph Graph::without_ops() const {
  Graph out;
  out.tensors_ = tensors_;
  return out;
}

void Graph::add_op(Op op) {
  for (const auto* list : {&op.inputs, &op.outputs}) {
    for (TensorId id : *list) {
      check(id == kNone || (id >= 0 && id < static_cast<TensorId>(tensors_.size())),
            "op {} '{}' refers to tensor {}, which does not exist", name_of(op.kind), op.name, id);
    }
  }
  ops_.push_back(std::move(op));
}

TensorId Graph::find(const std::string& name) const {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].name == name) return static_cast<TensorId>(i);
  }
  return kNone;
}

std::vector<TensorId> Graph::of_kind(TensorKind kind) const {
  std::vector<TensorId> ids;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].kind == kind) ids.push_back(static_cast<TensorId>(i));
  }
  return ids;
}

std::int64_t window_output(std::int64_t input, int kernel, int stride, int pad, const std::string& where) {
  const std::int64_t room = input + 2 * pad - kernel;
  if (room < 0) {
    throw UsageError("{}: a window of {} does not fit an input of {} with padding {}; use larger images",
                     where, kernel, input, pad);
  }
  return room / stride + 1;
}

TensorId Builder::input(const std::string& name, Shape shape, DType dtype) {
  return graph_.add_tensor({name, shape, dtype, TensorKind::input});
}

TensorId Builder::parameter(const std::string& name, Shape shape, TensorKind kind) {
  return graph_.add_tensor({.name = name, .shape = shape, .kind = kind, .frozen = frozen_});
}

TensorId Builder::activation(const std::string& name, Shape shape, DType dtype) {
  return graph_.add_tensor({name, shape, dtype, TensorKind::activation});
}

TensorId Builder::normalize_image(TensorId images, const NormalizeAttr& attr) {
  const TensorId x = activation("normalized", graph_.tensor(images).shape);
  graph_.add_op({OpKind::normalize_image, "input", Phase::forward, {images}, {x}, attr});
  return x;
}

TensorId Builder::conv(const std::string& name, TensorId x, std::int64_t channels, int kernel,
                       const ConvAttr& attr) {
  const Shape in = graph_.tensor(x).shape;
  check(attr.groups > 0 && in.c() % attr.groups == 0 && channels % attr.groups == 0,
        "{}: {} groups do not divide {} and {} channels", name, attr.groups, in.c(), channels);
  const TensorId w = parameter(name + ".weight", {channels, in.c() / attr.groups, kernel, kernel});
  const TensorId y =
      activation(name, {in.n(), channels, window_output(in.h(), kernel, attr.stride, attr.pad, name),
                        window_output(in.w(), kernel, attr.stride, attr.pad, name)});
  graph_.add_op({OpKind::conv, name, Phase::forward, {x, w}, {y}, attr});
  return y;
}

TensorId Builder::batch_norm(const std::string& name, TensorId x) {
  const Shape in = graph_.tensor(x).shape;
  const Shape channels{in.c()};
  const TensorId gamma = parameter(name + ".weight", channels);
  const TensorId beta = parameter(name + ".bias", channels);
  const TensorId mean = parameter(name + ".running_mean", channels, TensorKind::statistic);
  const TensorId var = parameter(name + ".running_var", channels, TensorKind::statistic);
  const TensorId y = activation(name, in);
  NormAttr attr;
  attr.training = trains();
  const TensorId saved = trains() ? activation(name + ".saved", {2, in.c()}, DType::f32) : kNone;
  graph_.add_op({OpKind::batch_norm, name, Phase::forward, {x, gamma, beta, mean, var}, {y, saved}, attr});
  return y;
}

TensorId Builder::relu(const std::string& name, TensorId x) {
  const TensorId y = activation(name, graph_.tensor(x).shape);
  graph_.add_op({OpKind::relu, name, Phase::forward, {x}, {y}, {}});
  return y;
}

TensorId Builder::add(const std::string& name, TensorId a, TensorId b) {
  check(graph_.tensor(a).shape == graph_.tensor(b).shape, "{}: cannot add {} and {}", name,
        graph_.tensor(a).shape.text(), graph_.tensor(b).shape.text());
  const TensorId y = activation(name, graph_.tensor(a).shape);
  graph_.add_op({OpKind::add, name, Phase::forward, {a, b}, {y}, {}});
  return y;
}

TensorId Builder::max_pool(const std::string& name, TensorId x, const PoolAttr& attr) {
  const Shape in = graph_.tensor(x).shape;
  const Shape out{in.n(), in.c(), window_output(in.h(), attr.kernel, attr.stride, attr.pad, name),
                  window_output(in.w(), attr.kernel, attr.stride, attr.pad, name)};
  const TensorId y = activation(name, out);
  const TensorId index = trains() ? activation(name + ".index", out, DType::u8) : kNone;
  graph_.add_op({OpKind::max_pool, name, Phase::forward, {x}, {y, index}, attr});
  return y;
}

TensorId Builder::avg_pool(const std::string& name, TensorId x) {
  const Shape in = graph_.tensor(x).shape;
  const TensorId y = activation(name, {in.n(), in.c()});
  graph_.add_op({OpKind::avg_pool, name, Phase::forward, {x}, {y}, {}});
  return y;
}

TensorId Builder::local_avg_pool(const std::string& name, TensorId x, const LocalPoolAttr& attr) {
  const Shape in = graph_.tensor(x).shape;
  const auto windows = [&](std::int64_t size) { return (size + attr.kernel - 1) / attr.kernel; };
  const TensorId y = activation(name, {in.n(), in.c(), windows(in.h()), windows(in.w())});
  graph_.add_op({OpKind::local_avg_pool, name, Phase::forward, {x}, {y}, attr});
  return y;
}

TensorId Builder::linear(const std::string& name, TensorId x, std::int64_t features) {
  const Shape in = graph_.tensor(x).shape;
  const TensorId w = parameter(name + ".weight", {features, in[1]});
  const TensorId b = parameter(name + ".bias", {features});
  const TensorId y = activation(name, {in[0], features}, DType::f32);
  graph_.add_op({OpKind::linear, name, Phase::forward, {x, w, b}, {y}, {}});
  return y;
}

TensorId Builder::softmax_cross_entropy(const std::string& name, TensorId logits, TensorId labels,
                                        float smoothing, TensorId other_labels, TensorId label_weights) {
  check((other_labels == kNone) == (label_weights == kNone), "{}: other labels without weights", name);
  const TensorId metrics = graph_.add_tensor({"metrics", {kLossMetrics}, DType::f32, TensorKind::metric});
  const TensorId grad = training_ ? activation(name + ".grad", graph_.tensor(logits).shape) : kNone;
  std::vector<TensorId> inputs = {logits, labels, kNone};  // a planner adds the loss scale
  if (other_labels != kNone) inputs.insert(inputs.end(), {other_labels, label_weights});
  graph_.add_op({OpKind::softmax_cross_entropy,
                 name,
                 Phase::forward,
                 std::move(inputs),
                 {metrics, grad},
                 LossAttr{smoothing}});
  return metrics;
}

double flops(const Graph& graph, const Op& op) {
  const auto elements = [&](TensorId id) { return static_cast<double>(graph.tensor(id).shape.elements()); };
  const auto rows = [&](TensorId id) { return static_cast<double>(graph.tensor(id).shape[0]); };
  switch (op.kind) {
    case OpKind::conv:
    case OpKind::conv_grad_input:
    case OpKind::conv_grad_weight: {  // the same multiply-adds: one per element of y and weight of a filter
      const operands::ConvTensors tensors = operands::conv_tensors(op);
      const Shape& filter = graph.tensor(tensors.w).shape;
      return 2.0 * elements(tensors.y) * static_cast<double>(filter[1] * filter[2] * filter[3]);
    }
    case OpKind::linear:
      return 2.0 * rows(op.inputs[operands::Linear::x]) * elements(op.inputs[operands::Linear::w]);
    case OpKind::linear_grad_input:
      return 2.0 * rows(op.inputs[operands::LinearGradInput::dy]) *
             elements(op.inputs[operands::LinearGradInput::w]);
    case OpKind::linear_grad_weight:
      return 2.0 * rows(op.inputs[operands::LinearGradWeight::x]) *
             elements(op.outputs[operands::LinearGradWeight::dw]);
    default:
      return 0.0;
  }
}

}  // namespace redline::graph
