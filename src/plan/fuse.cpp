#include "plan/fuse.h"

#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "graph/operands.h"

namespace redline::plan {
namespace {

namespace operands = graph::operands;
using graph::DType;
using graph::Graph;
using graph::kNone;
using graph::Op;
using graph::OpKind;
using graph::Phase;
using graph::Tensor;
using graph::TensorId;
using graph::TensorKind;

// A value that has not been written: act(affine(y) + affine(shortcut)).
struct Pending {
  TensorId y = kNone, affine = kNone, shortcut = kNone, shortcut_affine = kNone;
  bool relu = false;
  std::string name;
};

class Fuser {
 public:
  Fuser(const Graph& graph, const Capabilities& backend, DType dtype)
      : in_(graph),
        fuse_pool_(backend.supports(OpKind::affine_pool, dtype)),
        fuse_sums_(backend.conv_gives_sums(dtype)),
        consumers_(graph.tensors().size()) {
    out_.graph = graph.without_ops();
    for (std::size_t i = 0; i < graph.ops().size(); ++i) {
      for (TensorId id : graph.ops()[i].inputs) {
        if (id != kNone) consumers_[static_cast<std::size_t>(id)].push_back(i);
      }
    }
  }

  Fused run() {
    for (const Op& op : in_.ops()) {
      if (op.kind == OpKind::batch_norm) {
        norm(op);
      } else if (!(op.kind == OpKind::add && defer_add(op)) && !(op.kind == OpKind::relu && fuse_relu(op)) &&
                 !(op.kind == OpKind::max_pool && fuse_pool(op))) {
        for (TensorId id : op.inputs) materialise(id);
        out_.graph.add_op(op.kind == OpKind::conv ? with_sums(op) : op);
      }
    }
    return std::move(out_);
  }

 private:
  // A convolution that a training norm reads gathers that norm's sums as it goes.
  Op with_sums(Op conv) {
    const TensorId y = conv.outputs[operands::Conv::y];
    if (!fuse_sums_ || !only_reader(y, OpKind::batch_norm)) return conv;
    if (!in_.ops()[readers(y)[0]].attr<graph::NormAttr>().training) return conv;
    const graph::Shape per_channel{2, in_.tensor(y).shape.c()};
    sums_[y] = out_.graph.add_tensor({conv.name + ".sums", per_channel, DType::f32, TensorKind::activation});
    conv.outputs.push_back(sums_[y]);
    return conv;
  }

  void norm(const Op& op) {
    const TensorId x = op.inputs[operands::BatchNorm::x], saved = op.outputs[operands::BatchNorm::saved];
    materialise(x);
    std::vector<TensorId> inputs = op.inputs;
    if (const auto sums = sums_.find(x); sums != sums_.end()) inputs.push_back(sums->second);
    const graph::Shape per_channel{2, in_.tensor(x).shape.c()};
    const TensorId affine =
        out_.graph.add_tensor({op.name + ".affine", per_channel, DType::f32, TensorKind::activation});
    out_.graph.add_op({OpKind::norm_stats, op.name, Phase::forward, inputs, {affine, saved}, op.attributes});
    pending_[op.outputs[operands::BatchNorm::y]] = {x, affine, kNone, kNone, false, op.name};
    ++out_.model_ops;
  }

  // A join whose only reader is a ReLU waits for it.
  bool defer_add(const Op& op) {
    TensorId main = op.inputs[operands::Add::a], other = op.inputs[operands::Add::b];
    if (!is_plain_norm(main)) std::swap(main, other);
    if (!is_plain_norm(main) || !only_reader(op.outputs[operands::Add::y], OpKind::relu)) return false;
    Pending join = pending_.at(main);
    if (is_plain_norm(other)) {
      join.shortcut = pending_.at(other).y;
      join.shortcut_affine = pending_.at(other).affine;
    } else {
      materialise(other);
      join.shortcut = other;
    }
    join.name = op.name;
    pending_[op.outputs[operands::Add::y]] = join;
    ++out_.model_ops;
    return true;
  }

  bool fuse_relu(const Op& op) {
    const TensorId x = op.inputs[operands::Relu::x], y = op.outputs[operands::Relu::y];
    const auto found = pending_.find(x);
    if (found == pending_.end() || readers(x).size() != 1) return false;
    Pending value = found->second;
    value.relu = true;
    value.name = op.name;
    pending_[y] = value;
    ++out_.model_ops;
    const bool pool_next = fuse_pool_ && value.shortcut == kNone && only_reader(y, OpKind::max_pool);
    if (!pool_next) materialise(y);
    return true;
  }

  bool fuse_pool(const Op& op) {
    const auto found = pending_.find(op.inputs[operands::MaxPool::x]);
    if (found == pending_.end() || !found->second.relu) return false;
    std::vector<TensorId> outputs = op.outputs;
    if (outputs[operands::MaxPool::index] != kNone)  // in training
      outputs.push_back(add_picked(outputs[operands::MaxPool::y]));
    out_.graph.add_op({OpKind::affine_pool,
                       op.name,
                       Phase::forward,
                       {found->second.y, found->second.affine},
                       std::move(outputs),
                       op.attributes});
    ++out_.model_ops;
    return true;
  }

  // Writes a pending value to its tensor, once.
  void materialise(TensorId id) {
    const auto found = pending_.find(id);
    if (found == pending_.end()) return;
    const Pending value = found->second;
    pending_.erase(found);
    const bool training = stats_of(value.affine).attr<graph::NormAttr>().training;
    TensorId mask = kNone;
    if (training && value.relu && value.shortcut != kNone) mask = add_mask(id);
    out_.graph.add_op({OpKind::affine_act,
                       value.name,
                       Phase::forward,
                       {value.y, value.affine, value.shortcut, value.shortcut_affine},
                       {id, mask},
                       graph::ActAttr{value.relu}});
  }

  // One bit per stored element; sized for whole blocks of channels, the widest layout there is.
  TensorId add_mask(TensorId z) {
    const Tensor& tensor = in_.tensor(z);
    const std::int64_t bits = stored_elements(tensor.shape, Layout::blocked16);
    return out_.graph.add_tensor(
        {tensor.name + ".mask", {(bits + 7) / 8}, DType::u8, TensorKind::activation});
  }

  TensorId add_picked(TensorId z) {
    Tensor tensor = in_.tensor(z);
    tensor.name += ".picked";
    return out_.graph.add_tensor(std::move(tensor));
  }

  const Op& stats_of(TensorId affine) const {
    for (const Op& op : out_.graph.ops()) {
      if (op.kind == OpKind::norm_stats && op.outputs[operands::NormStats::affine] == affine) return op;
    }
    throw InternalError("no norm_stats gives tensor {}", affine);
  }

  // A norm's output that is not written yet and that one op reads.
  bool is_plain_norm(TensorId id) const {
    const auto found = pending_.find(id);
    return found != pending_.end() && found->second.shortcut == kNone && !found->second.relu &&
           readers(id).size() == 1;
  }

  const std::vector<std::size_t>& readers(TensorId id) const {
    return consumers_[static_cast<std::size_t>(id)];
  }
  bool only_reader(TensorId id, OpKind kind) const {
    return readers(id).size() == 1 && in_.ops()[readers(id)[0]].kind == kind;
  }

  const Graph& in_;
  const bool fuse_pool_, fuse_sums_;
  std::vector<std::vector<std::size_t>> consumers_;  // by TensorId, positions in in_.ops()
  std::unordered_map<TensorId, Pending> pending_;
  std::unordered_map<TensorId, TensorId> sums_;  // of a convolution's output
  Fused out_;
};

}  // namespace

Fused fuse(const Graph& graph, const Capabilities& backend, DType dtype) {
  for (OpKind needed :
       {OpKind::norm_stats, OpKind::affine_act, OpKind::norm_grad_stats, OpKind::norm_grad_apply}) {
    if (!backend.supports(needed, dtype)) return {graph, 0};
  }
  return Fuser(graph, backend, dtype).run();
}

}  // namespace redline::plan
