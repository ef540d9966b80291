// A Plan is a graph made ready for a backend: fused, grouped, every tensor placed, gradients in buckets. It
// is made once and holds every decision about a step; what is left to compiling is the choice of kernels for
// each group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/models/resnet.h"
#include "plan/groups.h"
#include "plan/layout.h"
#include "plan/recompute.h"

namespace redline::plan {

enum class OptimizerKind : std::uint8_t { none, sgd, lars, adamw, lamb };

struct Options {
  graph::ModelOptions model;
  OptimizerKind optimizer = OptimizerKind::sgd;  // none: gradients only (or inference when !model.training)
  float momentum = 0.9F;
  bool nesterov = false;
  float weight_decay = 0.0F;
  bool decay_norm_and_bias = false;  // by default norms and biases are spared
  float lars_trust = 0.001F;
  float beta1 = 0.9F, beta2 = 0.999F, epsilon = 1e-8F;  // adamw and lamb
  float clip_norm = 0.0F;                               // limit of the gradient's norm; 0: none
  float head_rate = 1.0F;                 // the last layer's rate, in proportion to the learning rate
  float layer_decay = 1.0F;               // from each layer's rate to that of the layer before it
  int accumulate = 1;                     // batches whose gradients are summed before an update
  bool ema = false;                       // keep a moving average of parameters and statistics
  bool fuse = true;                       // rewrite around the pending affine where the backend can
  Recompute recompute = Recompute::none;  // what the backward pass recomputes; needs `fuse`
  float loss_scale = 0.0F;                // initial; 0: chosen by the type of activations
  std::size_t bucket_bytes = std::size_t{25} << 20;  // gradient bucket size for all-reduce
  bool all_reduce = false;                           // put all-reduce ops between backward and update
  graph::DType gradient_wire = graph::DType::f32;    // of gradients between ranks
  bool synchronised_norms = false;                   // over the batches of all ranks
};

// What the planner asks a backend. Never called while a plan runs.
class Capabilities {
 public:
  virtual ~Capabilities() = default;
  virtual bool supports(graph::OpKind kind, graph::DType dtype) const = 0;
  // The layout that this backend stores a tensor in.
  virtual Layout layout(const graph::Graph& graph, graph::TensorId id) const = 0;
  // Whether convolutions also sum up their output for the norm that follows.
  virtual bool conv_gives_sums(graph::DType) const { return false; }
  // The type of the gradients of matrices and filters, by the type of activations.
  virtual graph::DType weight_gradient(graph::DType) const { return graph::DType::f32; }
  // Whether norms can be computed over the batches of all ranks.
  virtual bool synchronises_norms() const { return false; }
  // The type in which kernels read matrices and filters, by the type of activations. Unless it is fp32, every
  // update also writes a copy in this type.
  virtual graph::DType weight_copy(graph::DType) const { return graph::DType::f32; }
  // The groups that it can run, the best first. Those that the planner takes are compiled as they are.
  virtual std::vector<GroupRow> group_rows() const { return {}; }
  // How many groups may run on the side stream at a time. Each keeps its inputs alive for longer.
  virtual int side_stream_groups() const { return 0; }
};

enum class Region : std::uint8_t {
  none,     // not used by any op (its producer may skip it), or not stored by its group
  arena,    // shares the step's arena with others, by lifetime
  bucket,   // a slice of a gradient bucket
  state,    // persistent, shared between executables by name
  host_io,  // inputs and metrics
};

struct Placement {
  Region region = Region::none;
  std::size_t offset = 0;  // in the arena, or in the gradient memory
  std::size_t bytes = 0;   // as stored: padded by the layout
  Layout layout = Layout::plain;
  int first = -1, last = -1;  // lifetime, as positions in Plan::groups
};

// Gradients that are reduced together, in the order in which backward gives them; contiguous in memory.
struct Bucket {
  std::vector<graph::TensorId> gradients;
  std::size_t offset = 0, bytes = 0;
  int ready_after = -1;  // position of the group after which it is complete, and may be reduced
};

struct Plan {
  graph::Model model;                    // graph after fusion, autodiff and update ops
  graph::TensorId check = graph::kNone;  // f32 [kStepChecks]; none without an optimizer
  std::vector<Placement> placements;     // by TensorId
  std::vector<Bucket> buckets;
  std::vector<Group> groups;  // what runs, in order
  std::size_t arena_bytes = 0;
  std::size_t gradient_bytes = 0;
  graph::DType weights = graph::DType::f32;  // the type in which kernels read matrices and filters
  int update_begin = 0;                      // groups from here on are the update
  int fused_ops = 0;                         // model ops that went into fused ones
  std::vector<std::string> fusions;          // what was fused, one line per form: "affine_act: 49"

  const graph::Graph& graph() const { return model.graph; }
  const Placement& placement(graph::TensorId id) const { return placements.at(static_cast<std::size_t>(id)); }
};

// Builds the model, fuses, differentiates, adds the update, and places every tensor.
// Throws UsageError for options that contradict each other.
Plan make_plan(const Options& options, const Capabilities& backend);
// The same for a given graph (op cases): no autodiff, no update, and every tensor stays readable after the
// run.
Plan make_plan(graph::Graph graph, const Capabilities& backend);

// Bytes by kind, as --dry-run shows them.
struct MemoryUse {
  std::size_t parameters = 0, statistics = 0, optimizer = 0, average = 0, gradients = 0, activations = 0,
              inputs = 0;
  std::size_t total() const {
    return parameters + statistics + optimizer + average + gradients + activations + inputs;
  }
};
MemoryUse memory_use(const Plan& plan);

// The sums that a convolution computes for the norm after it; kNone if it computes none. Nothing else uses
// their memory from the beginning of the step.
graph::TensorId sums_of(const graph::Op& op);

}  // namespace redline::plan
