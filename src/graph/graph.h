// The graph: tensors and ops in execution order, and the builder that checks shapes as ops are added.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "graph/op.h"
#include "graph/tensor.h"

namespace redline::graph {

// A value type: passes take a graph and give a new one. Ops are kept in a valid execution order.
class Graph {
 public:
  const std::vector<Op>& ops() const { return ops_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const Tensor& tensor(TensorId id) const { return tensors_.at(static_cast<std::size_t>(id)); }

  TensorId add_tensor(Tensor tensor);
  // Adds an op whose outputs exist already. Throws InternalError when an id is unknown.
  void add_op(Op op);
  // Only its tensors: what a pass starts with.
  Graph without_ops() const;

  TensorId find(const std::string& name) const;  // kNone when there is none
  std::vector<TensorId> of_kind(TensorKind kind) const;

 private:
  std::vector<Tensor> tensors_;
  std::vector<Op> ops_;
};

// Output size of a convolution or pooling window; throws UsageError when the window does not fit.
std::int64_t window_output(std::int64_t input, int kernel, int stride, int pad, const std::string& where);

// Adds forward ops to a graph, inferring output shapes. `dtype` is that of activations; parameters,
// statistics and everything per channel are fp32.
class Builder {
 public:
  Builder(Graph& graph, DType dtype, bool training) : graph_(graph), dtype_(dtype), training_(training) {}

  // Whether the following ops are frozen: not trained, with norms that use the running statistics, and
  // nothing kept for a backward pass.
  void freeze(bool frozen) { frozen_ = frozen; }

  TensorId input(const std::string& name, Shape shape, DType dtype);
  TensorId normalize_image(TensorId images, const NormalizeAttr& attr);
  // `groups` must divide the channels on both sides.
  TensorId conv(const std::string& name, TensorId x, std::int64_t channels, int kernel, const ConvAttr& attr);
  TensorId batch_norm(const std::string& name, TensorId x);
  TensorId relu(const std::string& name, TensorId x);
  TensorId add(const std::string& name, TensorId a, TensorId b);
  TensorId max_pool(const std::string& name, TensorId x, const PoolAttr& attr);
  TensorId avg_pool(const std::string& name, TensorId x);
  TensorId local_avg_pool(const std::string& name, TensorId x, const LocalPoolAttr& attr);
  TensorId linear(const std::string& name, TensorId x, std::int64_t features);
  // Returns the metrics tensor. In training the gradient of the logits is a second output. other_labels and
  // label_weights are for mixed images, and given together; kNone otherwise.
  TensorId softmax_cross_entropy(const std::string& name, TensorId logits, TensorId labels, float smoothing,
                                 TensorId other_labels = kNone, TensorId label_weights = kNone);

 private:
  TensorId parameter(const std::string& name, Shape shape, TensorKind kind = TensorKind::parameter);
  TensorId activation(const std::string& name, Shape shape, DType dtype);
  TensorId activation(const std::string& name, Shape shape) { return activation(name, shape, dtype_); }
  bool trains() const { return training_ && !frozen_; }

  Graph& graph_;
  DType dtype_;
  bool training_;
  bool frozen_ = false;
};

// A multiply-add counts as two, as usual; zero for ops that only move memory.
double flops(const Graph& graph, const Op& op);

}  // namespace redline::graph
