// How a group of ops becomes kernel launches. A maker looks at the group once, at compile time, and returns
// its candidates. The chosen one becomes a Step, which only puts work on a stream, so that it can be captured
// into a CUDA graph. Makers are in one file per family, as in the CPU backend: those of single ops are listed
// in step_table.cpp, those of fused groups in groups.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/cudnn.h"
#include "backend/cuda/device.h"
#include "backend/cuda/kernels/tile_launch.h"
#include "backend/cuda/nccl.h"
#include "backend/op_view.h"
#include "backend/tuner.h"
#include "graph/operands.h"

namespace redline::backend::cuda {

namespace operands = graph::operands;
using graph::DType;
using graph::OpKind;

using Step = std::function<void(cudaStream_t)>;

// Scratch memory that the steps of one stream share, as they run one after the other. Makers say how much
// they need before it is allocated.
class WorkSpace {
 public:
  void need(std::size_t bytes) { bytes_ = bytes > bytes_ ? bytes : bytes_; }
  void allocate();  // does nothing when there is enough
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

  ConvLibrary& convs() { return convs_; }
  const cudaDeviceProp& device() const { return device_; }
  void need(std::size_t bytes) { work_.need(bytes); }
  WorkSpace& side_work() { return side_work_; }  // of the steps on the side stream
  // Reserves scratch memory for a single step, and returns its offset in own_work(); none for a large size.
  std::optional<std::size_t> need_own(std::size_t bytes);
  std::byte* own_work(std::size_t offset) const { return own_.data() + offset; }
  std::span<const std::byte> own_work() const { return {own_.data(), own_.size()}; }
  // Allocates what was asked for so far. If more is needed later, the memory moves, and its content is lost.
  void allocate();
  void forget_own() { own_bytes_ = 0; }  // the steps that need_own() was for are gone
  void clear();                          // the same of all steps; frees what they used
  std::byte* work() const { return work_.data(); }
  std::size_t work_bytes() const { return work_.size() + side_work_.size() + own_.size(); }
  ReduceSpace reduce_space() const;
  void* blas() const { return blas_.get(); }  // cublasHandle_t
  // The ranks that a norm shares its statistics with; null for this rank alone.
  const Nccl* peers_of(const graph::NormAttr& norm) const {
    return norm.synchronised ? nccl_.get() : nullptr;
  }

 private:
  ConvLibrary& convs_;
  const cudaDeviceProp& device_;
  std::shared_ptr<const Nccl> nccl_;
  WorkSpace work_, side_work_;
  std::size_t own_bytes_ = 0;
  DeviceMemory own_, counters_, blas_work_;
  std::shared_ptr<void> blas_;
};

void check_blas(int status);  // a cublasStatus_t; throws InternalError

// Addresses of a plan's tensors, and of its weights in the type that kernels read.
struct Places {
  std::function<std::byte*(graph::TensorId)> address;
  std::function<std::byte*(graph::TensorId, DType)> weights;
};

// One group of a plan as it is compiled. The plan outlives it.
class GroupView {
 public:
  GroupView(const plan::Plan& plan, plan::Group group, Places places)
      : plan_(plan), group_(std::move(group)), places_(std::move(places)) {}
  // A group of the ops of these kinds, or of a single op.
  GroupView part(const std::vector<OpKind>& kinds) const;
  GroupView part(const OpView& op) const;

  const plan::Plan& plan() const { return plan_; }
  const plan::Group& group() const { return group_; }
  OpView op() const { return view(group_.ops.front()); }  // of a group with a single op
  // Its op of this kind, perhaps a recomputed one. Throws InternalError when there is none.
  OpView op(OpKind kind) const;
  bool has(OpKind kind) const { return find(kind) >= 0; }
  std::vector<OpView> ops() const;
  // The matrix or filter of an op in the type of its activations.
  std::byte* weights(const OpView& op) const;
  std::byte* weights(graph::TensorId id, DType dtype) const { return places_.weights(id, dtype); }

 private:
  int find(OpKind kind) const;
  OpView view(int position) const;

  const plan::Plan& plan_;
  plan::Group group_;
  Places places_;
};

// One implementation of a group: a cuDNN plan, or a kernel of our own.
struct Candidate {
  std::string name;            // unique within the group; the tuning cache holds it
  std::function<Step()> make;  // and tells Shared what memory the step needs
};

// Between the names of the parts that a candidate runs one after the other.
inline constexpr const char* kWith = " with ";

// cuDNN's plans for a shape, each of which becomes a candidate.
struct CudnnPlans {
  std::string prefix;  // of the candidates' names; the plan's name follows, to the end or to kWith
  ConvShape shape;
};

// The candidates of a group. The first is taken unless timing finds a faster one.
struct Candidates {
  std::string key = {};  // groups with equal keys take the same candidate; unused for a single one
  std::vector<Candidate> list = {};
  std::vector<CudnnPlans> cudnn = {};  // plans to build; once built, they are in the list
};

// For a group with a single candidate: a step, or one launch with these arguments.
Candidates only(Step step);
template <typename... Parameters, typename... Arguments>
Candidates only(void (*launch)(Parameters...), const Arguments&... arguments) {
  return only([=](cudaStream_t stream) { launch(arguments..., stream); });
}

// The step of a kernel that reduces in the work space of the main stream.
Step reducing_step(const TileLaunch& launch, Shared& shared);

// Makes a group's candidates.
using Maker = Candidates(const GroupView& group, Shared& shared);
Maker make_candidates;  // step_table.cpp: looks up the maker. Throws InternalError if there is none

// conv.cpp: convolutions by cuDNN and by kernels of our own.
Maker make_conv, make_conv_grad_input;
Maker make_dense_grad_input;  // of a strided 1x1 convolution: only the pixels that it read, stored densely
// The step of a group with a weight gradient that a kernel of our own computes, on the side stream.
Step own_weight_gradient(const GroupView& group, const TileLaunch& own, Shared& shared);
// conv1x1_groups.cpp: our own kernels for a 1x1 convolution with sums; none for other convolutions.
std::vector<Candidate> pointwise_convs(const GroupView& group, Shared& shared);
// linear.cpp
Maker make_linear, make_linear_grad_input, make_linear_grad_weight;
// norm.cpp
Maker make_batch_norm, make_batch_norm_grad, make_norm_stats, make_norm_grad_stats, make_norm_grad_apply;
Maker make_affine_act;                                                    // with or without norm_stats
NormFinalize norm_finalize_of(const OpView& norm, const Shared& shared);  // from a convolution's sums
NormGradApply norm_grad_apply_of(const OpView& op);
GatedNorm gated_norm_of(const OpView& stats);  // of a norm_grad_stats
// pool.cpp
Maker make_max_pool, make_max_pool_grad;  // the first: affine_pool too
Maker make_avg_pool, make_local_avg_pool;
Maker make_avg_pool_grad;  // local_avg_pool_grad too
// elementwise.cpp
Maker make_normalize_image, make_flat, make_accumulate;
Step accumulate_step(const OpView& op);
// loss.cpp
Maker make_softmax_cross_entropy;
// update.cpp
Maker make_gradient_check, make_snapshot, make_restore;

// choose.cpp: chooses how each group of a plan is run, and makes the steps.
struct ChoosingRules {
  bool deterministic = false;  // take the first candidate, and only cuDNN plans that repeat bit for bit
  bool tf32 = false;
  std::function<bool()> stop = {};  // called from several threads; once it is true, nothing more is timed
  std::function<void(std::int64_t answered, std::int64_t all)> progress = {};
  int candidate = -1;    // see DeviceOptions
  bool in_step = false;  // looks for candidates to compare in the step
};

// Seconds that choosing may take. The plans that are compiled before a run's first step share them: with
// everything else that a start takes, that step begins within ten seconds.
struct ChoosingTime {
  double building = 2.5, timing = 5;  // building cuDNN's plans, timing candidates
};

struct Chosen {
  std::vector<Step> steps = {};  // by group
  // What is still to be compared in the step, as the rules ask for: groups are the questions.
  std::vector<Alternatives> alternatives = {};
  std::vector<Candidates> candidates = {};  // by group
  std::string compared = {};                // the key under which the choices remember that it was done
};

// Takes what it spends off `left`. If candidates are timed, `activations` and `gradients`, the memory of the
// plan's tensors, are filled with random numbers before and cleared afterwards; nothing that outlives a step
// is changed.
Chosen choose_steps(const plan::Plan& plan, const Places& places, const DeviceMemory& activations,
                    const DeviceMemory& gradients, Shared& shared, Choices& choices,
                    const ChoosingRules& rules, ChoosingTime& left);

// A norm's input as its kernels see it: rows (pixels of all images) by channels.
Matrix matrix_of(const graph::Tensor& tensor);

}  // namespace redline::backend::cuda
