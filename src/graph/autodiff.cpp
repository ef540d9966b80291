#include "graph/autodiff.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "graph/operands.h"

namespace redline::graph {
namespace {

// Walks the forward ops backwards, keeping for every tensor the gradients that reached it and are not yet
// summed.
class Differentiator {
 public:
  Differentiator(Graph& graph, DType weights)
      : graph_(graph), weights_(weights), addends_(graph.tensors().size()), trained_(graph.tensors().size()) {
    const auto is_trained = [&](TensorId id) {
      if (id == kNone) return false;
      const Tensor& tensor = graph.tensor(id);
      return trained_[index(id)] || (tensor.kind == TensorKind::parameter && !tensor.frozen);
    };
    for (const Op& op : graph.ops()) {
      if (std::ranges::none_of(op.inputs, is_trained)) continue;
      for (TensorId id : op.outputs)
        if (id != kNone) trained_[index(id)] = true;
    }
  }

  Gradients run() {
    const std::vector<Op> forward = graph_.ops();
    for (auto op = forward.rbegin(); op != forward.rend(); ++op) visit(*op);
    return std::move(gradients_);
  }

 private:
  void visit(const Op& op) {
    switch (op.kind) {
      case OpKind::softmax_cross_entropy:
        return loss(op);
      case OpKind::linear:
        return linear(op);
      case OpKind::avg_pool:
        return avg_pool(op);
      case OpKind::local_avg_pool:
        return local_avg_pool(op);
      case OpKind::max_pool:
        return max_pool(op);
      case OpKind::affine_pool:
        return affine_pool(op);
      case OpKind::affine_act:
        return affine_act(op);
      case OpKind::norm_stats:
        return;  // its consumers differentiate it
      case OpKind::add:
        return add(op);
      case OpKind::relu:
        return relu(op);
      case OpKind::batch_norm:
        return batch_norm(op);
      case OpKind::conv:
        return conv(op);
      case OpKind::normalize_image:
        return;
      default:
        throw InternalError("{} '{}' has no gradient", name_of(op.kind), op.name);
    }
  }

  void loss(const Op& op) {
    check(op.outputs[operands::Loss::gradient] != kNone,
          "the loss has no gradient output: the model was not built for training");
    give(op.inputs[operands::Loss::logits], op.outputs[operands::Loss::gradient]);
  }

  void linear(const Op& op) {
    const auto dy = take(op.outputs[operands::Linear::y]);
    if (!dy) return;
    emit(OpKind::linear_grad_weight, op, {op.inputs[operands::Linear::x], *dy},
         {parameter_gradient(op.inputs[operands::Linear::w]),
          parameter_gradient(op.inputs[operands::Linear::b])});
    if (!needs_gradient(op.inputs[operands::Linear::x])) return;
    const TensorId dx = gradient_like(op.inputs[operands::Linear::x]);
    emit(OpKind::linear_grad_input, op, {*dy, op.inputs[operands::Linear::w]}, {dx});
    give(op.inputs[operands::Linear::x], dx);
  }

  void avg_pool(const Op& op) {
    if (const auto dy = take(op.outputs[operands::AvgPool::y]))
      pass(OpKind::avg_pool_grad, op, {*dy}, op.inputs[operands::AvgPool::x]);
  }

  void local_avg_pool(const Op& op) {
    if (const auto dy = take(op.outputs[operands::LocalAvgPool::y]))
      pass(OpKind::local_avg_pool_grad, op, {*dy}, op.inputs[operands::LocalAvgPool::x]);
  }

  void max_pool(const Op& op) {
    if (const auto dy = take(op.outputs[operands::MaxPool::y]))
      pass(OpKind::max_pool_grad, op, {*dy, op.outputs[operands::MaxPool::index]},
           op.inputs[operands::MaxPool::x]);
  }

  void add(const Op& op) {
    const auto dy = take(op.outputs[operands::Add::y]);
    if (!dy) return;
    give(op.inputs[operands::Add::a], *dy);
    give(op.inputs[operands::Add::b], *dy);
  }

  void relu(const Op& op) {
    if (const auto dy = take(op.outputs[operands::Relu::y]))
      pass(OpKind::relu_grad, op, {*dy, op.outputs[operands::Relu::y]}, op.inputs[operands::Relu::x]);
  }

  void batch_norm(const Op& op) {
    const auto dy = take(op.outputs[operands::BatchNorm::y]);
    if (!dy) return;
    const TensorId x = op.inputs[operands::BatchNorm::x], gamma = op.inputs[operands::BatchNorm::gamma],
                   beta = op.inputs[operands::BatchNorm::beta];
    const TensorId dx = gradient_like(x);
    emit(OpKind::batch_norm_grad, op, {*dy, x, gamma, op.outputs[operands::BatchNorm::saved]},
         {dx, parameter_gradient(gamma), parameter_gradient(beta)});
    give(x, dx);
  }

  void conv(const Op& op) {
    const auto dy = take(op.outputs[operands::Conv::y]);
    if (!dy) return;
    const TensorId x = op.inputs[operands::Conv::x], w = op.inputs[operands::Conv::w];
    if (needs_gradient(x)) pass(OpKind::conv_grad_input, op, {*dy, w}, x);
    emit(OpKind::conv_grad_weight, op, {x, *dy}, {parameter_gradient(w)});
  }

  // max_pool(relu(affine(y))), its gate recomputed from y. Only the y that the pool picked have a gradient:
  // the norm's sums need no others.
  void affine_pool(const Op& op) {
    const auto dz = take(op.outputs[operands::AffinePool::z]);
    if (!dz) return;
    const TensorId affine = op.inputs[operands::AffinePool::affine],
                   index = op.outputs[operands::AffinePool::index],
                   picked = op.outputs[operands::AffinePool::picked];
    const Op stats = producer_of_affine(affine);
    const NormSums sums = norm_sums(stats, {*dz, kNone, affine, kNone}, picked);
    const TensorId g = gradient_like(op.inputs[operands::AffinePool::y]);
    emit(OpKind::max_pool_grad, op, {*dz, index}, {g});
    norm_apply(stats, {g, kNone, affine, kNone}, sums);
  }

  // The gradient that reaches a norm: g (+ g2), gated by a mask, or by affine(y) > 0 when `affine` is given.
  struct Incoming {
    TensorId g = kNone, g2 = kNone, affine = kNone, mask = kNone;
  };

  // z = act(affine(y) + affine(shortcut)).
  void affine_act(const Op& op) {
    std::vector<TensorId> incoming = std::move(addends_[index(op.outputs[operands::AffineAct::z])]);
    if (incoming.empty()) return;
    while (incoming.size() > 2) {
      const TensorId sum = sum_of(incoming[0], incoming[1], op.outputs[operands::AffineAct::z]);
      incoming.erase(incoming.begin(), incoming.begin() + 2);
      incoming.push_back(sum);
    }
    const TensorId shortcut = op.inputs[operands::AffineAct::shortcut],
                   shortcut_affine = op.inputs[operands::AffineAct::shortcut_affine],
                   mask = op.outputs[operands::AffineAct::mask];
    const bool relu = op.attr<ActAttr>().relu;
    Incoming in{incoming[0], incoming.size() > 1 ? incoming[1] : kNone, kNone, mask};
    // Without a shortcut the gate is a function of y alone, and y is read anyway.
    if (relu && mask == kNone) in.affine = op.inputs[operands::AffineAct::affine];

    const bool identity_shortcut = shortcut != kNone && shortcut_affine == kNone;
    const TensorId masked = in.g2 != kNone || (identity_shortcut && relu)
                                ? gradient_like(op.outputs[operands::AffineAct::z])
                                : kNone;
    norm(producer_of_affine(op.inputs[operands::AffineAct::affine]), in, masked);
    if (shortcut == kNone) return;
    const Incoming rest = masked != kNone ? Incoming{masked, kNone, kNone, kNone} : in;
    if (identity_shortcut) {
      give(shortcut, rest.g);
    } else {
      norm(producer_of_affine(shortcut_affine), rest);
    }
  }

  // Differentiates one norm_stats whose affine was applied somewhere, and returns the gradient of its y.
  void norm(const Op& stats, const Incoming& in, TensorId masked = kNone) {
    const NormSums sums = norm_sums(stats, in, stats.inputs[operands::NormStats::y], masked);
    norm_apply(stats, masked != kNone ? Incoming{masked, kNone, kNone, kNone} : in, sums);
  }

  struct NormSums {
    TensorId dgamma, dbeta;
  };
  // `in` is the gradient of what `y`, the norm's y or some of it, became.
  NormSums norm_sums(const Op& stats, const Incoming& in, TensorId y, TensorId masked = kNone) {
    const NormSums sums{parameter_gradient(stats.inputs[operands::NormStats::gamma]),
                        parameter_gradient(stats.inputs[operands::NormStats::beta])};
    emit(OpKind::norm_grad_stats, stats,
         {in.g, in.g2, y, in.affine, in.mask, stats.outputs[operands::NormStats::saved]},
         {sums.dgamma, sums.dbeta, masked});
    return sums;
  }
  void norm_apply(const Op& stats, const Incoming& in, const NormSums& sums) {
    const TensorId y = stats.inputs[operands::NormStats::y], dy = gradient_like(y);
    emit(OpKind::norm_grad_apply, stats,
         {in.g, y, in.affine, in.mask, stats.outputs[operands::NormStats::saved],
          stats.inputs[operands::NormStats::gamma], sums.dgamma, sums.dbeta},
         {dy});
    give(y, dy);
  }

  // By value: emitting ops moves the graph's own.
  Op producer_of_affine(TensorId affine) const {
    for (const Op& op : graph_.ops()) {
      if (op.kind == OpKind::norm_stats && op.outputs[operands::NormStats::affine] == affine) return op;
    }
    throw InternalError("tensor '{}' has no norm_stats", graph_.tensor(affine).name);
  }

  static std::size_t index(TensorId id) { return static_cast<std::size_t>(id); }

  // Whether it is a function of a parameter that is trained.
  bool needs_gradient(TensorId id) const { return trained_[index(id)]; }

  void give(TensorId id, TensorId gradient) {
    if (needs_gradient(id)) addends_.at(index(id)).push_back(gradient);
  }

  // The whole gradient of a tensor, summed where several consumers gave one.
  std::optional<TensorId> take(TensorId id) {
    std::vector<TensorId> parts = std::move(addends_[index(id)]);
    if (parts.empty()) return std::nullopt;
    TensorId total = parts[0];
    for (std::size_t i = 1; i < parts.size(); ++i) total = sum_of(total, parts[i], id);
    return total;
  }

  TensorId sum_of(TensorId a, TensorId b, TensorId of) {
    const TensorId sum = gradient_like(of);
    graph_.add_op({OpKind::add, graph_.tensor(of).name, Phase::backward, {a, b}, {sum}, {}});
    return sum;
  }

  TensorId gradient_like(TensorId id) {
    Tensor tensor = graph_.tensor(id);
    tensor.name += ".grad";
    tensor.kind = TensorKind::activation;
    return graph_.add_tensor(std::move(tensor));
  }

  TensorId parameter_gradient(TensorId parameter) {
    const auto known = gradients_.find(parameter);
    if (known != gradients_.end()) throw InternalError("'{}' is used twice", graph_.tensor(parameter).name);
    check(!graph_.tensor(parameter).frozen, "'{}' is frozen behind what is trained",
          graph_.tensor(parameter).name);
    Tensor tensor = graph_.tensor(parameter);
    tensor.name += kGradientSuffix;
    tensor.kind = TensorKind::gradient;
    if (tensor.shape.rank() > 1) tensor.dtype = weights_;
    return gradients_[parameter] = graph_.add_tensor(std::move(tensor));
  }

  void emit(OpKind kind, const Op& of, std::vector<TensorId> inputs, std::vector<TensorId> outputs) {
    graph_.add_op({kind, of.name, Phase::backward, std::move(inputs), std::move(outputs), of.attributes});
  }

  void pass(OpKind kind, const Op& of, std::vector<TensorId> inputs, TensorId to) {
    const TensorId dx = gradient_like(to);
    emit(kind, of, std::move(inputs), {dx});
    give(to, dx);
  }

  Graph& graph_;
  DType weights_;
  std::vector<std::vector<TensorId>> addends_;  // by forward TensorId
  std::vector<bool> trained_;                   // by forward TensorId
  Gradients gradients_;
};

}  // namespace

Gradients differentiate(Graph& graph, DType weights) { return Differentiator(graph, weights).run(); }

}  // namespace redline::graph
