// How an op becomes launches: a maker looks at the op once, at compile time, and gives a Step that only puts
// work on a stream, so that it can be captured into a CUDA graph. Makers are grouped by family, one file
// each.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "backend/cuda/conv.h"
#include "backend/cuda/device.h"
#include "backend/op_view.h"

namespace redline::backend::cuda {

using Step = std::function<void(cudaStream_t)>;

// Memory and libraries that steps share. Steps run one after the other on one stream, so they share one work
// space; makers say how much they need before it is allocated.
class Shared {
 public:
  explicit Shared(ConvLibrary& convs);
  ~Shared();
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  ConvLibrary& convs() { return convs_; }
  void need(std::size_t bytes) { bytes_ = bytes > bytes_ ? bytes : bytes_; }
  void allocate();
  std::byte* work() const { return work_.data(); }
  std::size_t work_bytes() const { return work_.size(); }
  ReduceSpace reduce_space() const;
  void* blas() const { return blas_; }  // cublasHandle_t

 private:
  ConvLibrary& convs_;
  std::size_t bytes_ = 0;
  DeviceMemory work_, counters_, blas_work_;
  void* blas_ = nullptr;
};

// conv.cpp's plans for every convolution of a graph, found together.
class ConvSteps {
 public:
  ConvSteps(const plan::Plan& plan, ConvLibrary& library);
  // `weights` is the copy that kernels read (conv, grad_input) or the gradient (grad_weight).
  Step make(const OpView& op, const graph::Op& key, std::byte* weights, Shared& shared) const;

 private:
  struct Choice {
    std::shared_ptr<const ConvPlan> plan;
    bool sums_apart = false;  // the norm's sums need a pass of their own
  };
  std::map<const graph::Op*, Choice> choices_;
};

// linear.cpp
Step make_linear(const OpView& op, std::byte* weights, Shared& shared);
Step make_linear_grad_input(const OpView& op, std::byte* weights, Shared& shared);
Step make_linear_grad_weight(const OpView& op, Shared& shared);
// steps.cpp: everything but convolutions, matrix products and updates.
Step make_step(const OpView& op, Shared& shared);

// update_steps.cpp: ops that are one launch over many tensors, and the ops around them.
class UpdateSteps {
 public:
  using Address = std::function<std::byte*(graph::TensorId)>;
  // `copy` gives the copy of a matrix or filter in `copy_type` that kernels read, to be kept up to date; not
  // asked for when that is fp32, whose copy is the parameter itself.
  UpdateSteps(const plan::Plan& plan, Address address, Address copy, graph::DType copy_type, Shared& shared);
  static bool makes(graph::OpKind kind);
  // The first optimizer op of a kind updates the parameters of all of them; the others do nothing.
  Step make(const graph::Op& op);

 private:
  Step make_optimizer(const graph::Op& first);
  Step make_check(const graph::Op& op);
  Step make_copies(const graph::Op& op, const float* flag);
  void add_chunks(const graph::Op& op, std::vector<UpdateChunk>& chunks) const;

  const plan::Plan& plan_;
  Address address_, copy_;
  graph::DType copy_type_;
  Shared& shared_;
  std::set<graph::OpKind> made_;
};

}  // namespace redline::backend::cuda
