// How an op becomes launches: a maker looks at the op once, at compile time, and gives a Step that only puts
// work on a stream, so that it can be captured into a CUDA graph. Makers are grouped by family, one file
// each.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/clears.h"
#include "backend/cuda/conv.h"
#include "backend/cuda/device.h"
#include "backend/cuda/nccl.h"
#include "backend/op_view.h"

namespace redline::backend::cuda {

// Empty for an op that another one's step does too.
using Step = std::function<void(cudaStream_t)>;

// Scratch memory of the steps of one stream, which run one after the other: makers say how much they need
// before it is allocated.
class WorkSpace {
 public:
  void need(std::size_t bytes) { bytes_ = bytes > bytes_ ? bytes : bytes_; }
  void allocate() { memory_ = DeviceMemory(bytes_); }
  std::byte* data() const { return memory_.data(); }
  std::size_t size() const { return memory_.size(); }

 private:
  std::size_t bytes_ = 0;
  DeviceMemory memory_;
};

// Memory and libraries that steps share.
class Shared {
 public:
  // tf32: fp32 matrix products may round their inputs. Without `nccl` the process is alone.
  Shared(ConvLibrary& convs, const cudaDeviceProp& device, bool tf32, std::shared_ptr<const Nccl> nccl);
  ~Shared();
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  ConvLibrary& convs() { return convs_; }
  const cudaDeviceProp& device() const { return device_; }
  void need(std::size_t bytes) { work_.need(bytes); }
  WorkSpace& beside() { return beside_; }  // of the steps that run beside the others
  // Scratch memory that one step has to itself: where it will lie in own_work(). None for more than a little.
  std::optional<std::size_t> need_own(std::size_t bytes);
  std::byte* own_work(std::size_t offset) const { return own_.data() + offset; }
  MemorySpan own_work() const { return {own_.data(), own_.size()}; }
  void allocate();
  std::byte* work() const { return work_.data(); }
  std::size_t work_bytes() const { return work_.size() + beside_.size() + own_.size(); }
  ReduceSpace reduce_space() const;
  void* blas() const { return blas_; }  // cublasHandle_t
  // With whom a norm shares its statistics; null for its own rank alone.
  const Nccl* peers_of(const graph::NormAttr& norm) const {
    return norm.synchronised ? nccl_.get() : nullptr;
  }

 private:
  ConvLibrary& convs_;
  const cudaDeviceProp& device_;
  std::shared_ptr<const Nccl> nccl_;
  WorkSpace work_, beside_;
  std::size_t own_bytes_ = 0;
  DeviceMemory own_, counters_, blas_work_;
  void* blas_ = nullptr;
};

// Several ways to do the work of neighbouring ops: each gives one step per op. The fastest is found by timing
// them, once per key.
struct Ways {
  std::string key;  // of the choice; unused when there is one way only
  std::vector<std::vector<Step>> ways;
  // Where they merge the ops, which of them (counted from the first) each step does; as plan::Groups::ops.
  std::vector<std::vector<int>> does = {};
  // The first of other ops that have to be merged for these to be: they make again what is not written here.
  std::optional<std::size_t> needs = {};
  // What the steps change of what a run keeps, which timing them must not.
  std::vector<std::span<std::byte>> kept = {};
};

// Where a plan's tensors lie, and its weights as kernels of activations of a type read them.
struct Places {
  std::function<std::byte*(graph::TensorId)> address;
  std::function<std::byte*(graph::TensorId, graph::DType)> weights;
};

// conv_steps.cpp: cuDNN's plans for every convolution of a graph, found together.
class ConvSteps {
 public:
  ConvSteps(const plan::Plan& plan, const Places& places, Shared& shared);
  Ways make(const graph::Op& op) const;

 private:
  struct Found {
    std::shared_ptr<const ConvPlan> plain, with_sums;  // the latter may be null
  };
  const plan::Plan& plan_;
  Places places_;
  Shared& shared_;
  std::map<const graph::Op*, Found> found_;
};

// merged.cpp: ways to do neighbouring ops, beginning with the op at a position, in one kernel; those of fewer
// ops first. None where they cannot be merged; without a key where that always pays.
std::vector<Ways> merge_steps(const plan::Plan& plan, std::size_t position, const Places& places,
                              Shared& shared);
// The 1x1 convolution that also gives the norm's sums, by kernels of our own; empty where they cannot be
// used.
std::vector<Step> make_pointwise_sums(const OpView& op, std::byte* weights, Shared& shared);

// linear.cpp
Step make_linear(const OpView& op, std::byte* weights, Shared& shared);
Step make_linear_grad_input(const OpView& op, std::byte* weights, Shared& shared);
Step make_linear_grad_weight(const OpView& op, Shared& shared);
// steps.cpp: everything but convolutions, matrix products and updates.
Step make_step(const OpView& op, Shared& shared);
Pool pool_of(const graph::Shape& in, const graph::Shape& out, const graph::PoolAttr& attr);
// `sums` are this rank's, or their mean over the ranks that the norm takes together.
NormFinalize norm_finalize_of(const OpView& op, const float* sums, float* affine, const Shared& shared);
// With `finalize`, the affine is worked out there too.
Step make_affine_act(const OpView& op, const std::optional<NormFinalize>& finalize);
NormGradStats norm_grad_stats_of(const OpView& op);
NormGradApply norm_grad_apply_of(const OpView& op);

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
