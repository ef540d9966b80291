#include "plan/traffic.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "graph/operands.h"

namespace redline::plan {
namespace {

using graph::DType;
using graph::Op;
using graph::OpKind;
using graph::TensorId;

namespace operands = graph::operands;

// Of all ops that read weights: where those are, and what they are multiplied by.
constexpr std::size_t kWeights = operands::Conv::w, kMultiplied = operands::Conv::x;

bool reads_weights(OpKind kind) {
  return kind == OpKind::conv || kind == OpKind::conv_grad_input || kind == OpKind::linear ||
         kind == OpKind::linear_grad_input;
}

bool is_optimizer(OpKind kind) {
  return kind == OpKind::sgd || kind == OpKind::lars || kind == OpKind::adamw || kind == OpKind::lamb;
}

// A step that is not refused restores nothing.
bool moves_nothing(const Op& op) { return op.kind == OpKind::restore; }

bool reads(const Op& op, std::size_t input) {
  if (op.inputs[input] == graph::kNone) return false;
  if (moves_nothing(op)) return input == 0;
  if (op.kind != OpKind::norm_stats || input > 0) return true;
  const bool has_sums = operands::in(op, operands::NormStats::sums) != graph::kNone;
  return op.attr<graph::NormAttr>().training && !has_sums;
}

// The fraction of a convolution's input that its windows see: strides may skip pixels between them.
double seen(const graph::Graph& graph, const Op& op) {
  if (op.kind != OpKind::conv && op.kind != OpKind::conv_grad_weight) return 1;
  const graph::Shape& filter = graph.tensor(operands::conv_tensors(op).w).shape;
  const double side = static_cast<double>(filter[2]) / op.attr<graph::ConvAttr>().stride;
  return std::min(1.0, side * side);
}

// The share of a filter's taps along one side that ever fall on the image.
double taps_read(std::int64_t image, std::int64_t outputs, std::int64_t taps, const graph::ConvAttr& attr) {
  std::int64_t read = 0;
  for (std::int64_t tap = 0; tap < taps; ++tap) {
    const auto on_image = [&](std::int64_t output) {
      const std::int64_t at = output * attr.stride - attr.pad + tap;
      return at >= 0 && at < image;
    };
    std::int64_t output = 0;
    while (output < outputs && !on_image(output)) ++output;
    if (output < outputs) ++read;
  }
  return static_cast<double>(read) / static_cast<double>(taps);
}

// The fraction of a convolution's filter that it needs: on small images some taps meet padding alone.
double filter_read(const graph::Graph& graph, const Op& op) {
  if (op.kind != OpKind::conv && op.kind != OpKind::conv_grad_input) return 1;
  const operands::ConvTensors t = operands::conv_tensors(op);
  const graph::Shape &x = graph.tensor(t.x).shape, &y = graph.tensor(t.y).shape;
  const std::int64_t taps = graph.tensor(t.w).shape[2];
  const auto& attr = op.attr<graph::ConvAttr>();
  return taps_read(x.h(), y.h(), taps, attr) * taps_read(x.w(), y.w(), taps, attr);
}

bool is_convolution(OpKind kind) {
  return kind == OpKind::conv || kind == OpKind::conv_grad_input || kind == OpKind::conv_grad_weight;
}

// The part of a filter's taps along one side that fall on the image, over all `outputs`. The others multiply
// padding zeros, which is unnecessary work.
double taps_on_image(std::int64_t image, std::int64_t outputs, std::int64_t taps,
                     const graph::ConvAttr& attr) {
  std::int64_t on_image = 0;
  for (std::int64_t i = 0; i < outputs; ++i) {
    const std::int64_t begin = i * attr.stride - attr.pad;
    on_image += std::max<std::int64_t>(0, std::min(begin + taps, image) - std::max<std::int64_t>(begin, 0));
  }
  return static_cast<double>(on_image) / static_cast<double>(outputs * taps);
}

double needed_flops(const graph::Graph& graph, const Op& op) {
  const double all = graph::flops(graph, op);
  if (!is_convolution(op.kind)) return all;
  const operands::ConvTensors tensors = operands::conv_tensors(op);
  const graph::Shape &image = graph.tensor(tensors.x).shape, &filter = graph.tensor(tensors.w).shape,
                     &result = graph.tensor(tensors.y).shape;
  const auto& attr = op.attr<graph::ConvAttr>();
  return all * taps_on_image(image[2], result[2], filter[2], attr) *
         taps_on_image(image[3], result[3], filter[3], attr);
}

class Counter {
 public:
  Counter(const Plan& plan, const std::vector<Group>& groups) : plan_(plan), wanted_(plan.placements.size()) {
    std::vector<bool> is_read(wanted_.size());
    for (const Group& group : groups) {
      std::set<TensorId> made;
      for (const int position : all_of(group)) {
        const Op& op = op_at(position);
        for (std::size_t i = 0; i < op.inputs.size(); ++i) {
          if (!reads(op, i)) continue;
          is_read[index(op.inputs[i])] = true;
          if (!made.contains(op.inputs[i])) wanted_[index(op.inputs[i])] = true;
        }
        made.insert(op.outputs.begin(), op.outputs.end());
      }
    }
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      const Region region = plan.placements[i].region;
      const bool outlives = region == Region::state || region == Region::host_io;
      wanted_[i] = region != Region::none && (wanted_[i] || outlives || !is_read[i]);
    }
  }

  Work work_of(const Group& group) const {
    Work work;
    std::set<TensorId> known, written;  // read or made so far
    for (const int position : all_of(group)) {
      const bool again = std::ranges::count(group.recomputes, position) > 0;  // and is not stored again
      const Op& op = op_at(position);
      work.flops += needed_flops(plan_.graph(), op);
      for (std::size_t i = 0; i < op.inputs.size(); ++i) {
        if (reads(op, i) && known.insert(op.inputs[i]).second) work.bytes += read_bytes(op, i);
      }
      if (moves_nothing(op)) continue;
      for (const TensorId id : op.outputs) {
        if (id == graph::kNone) continue;
        known.insert(id);
        if (!again && wanted_[index(id)] && written.insert(id).second) work.bytes += stored(id);
      }
      if (is_optimizer(op.kind)) work.bytes += copy_bytes(op.inputs[operands::Optimizer::w], plan_.weights);
    }
    return work;
  }

 private:
  static std::vector<int> all_of(const Group& group) {
    std::vector<int> ops = group.recomputes;
    ops.insert(ops.end(), group.ops.begin(), group.ops.end());
    return ops;
  }
  static std::size_t index(TensorId id) { return static_cast<std::size_t>(id); }
  const Op& op_at(int position) const { return plan_.graph().ops().at(static_cast<std::size_t>(position)); }
  double stored(TensorId id) const { return static_cast<double>(plan_.placement(id).bytes); }

  bool is_weights(TensorId id) const {
    const graph::Tensor& tensor = plan_.graph().tensor(id);
    return tensor.kind == graph::TensorKind::parameter && tensor.shape.rank() > 1;
  }
  // Of a matrix or filter in another type; nothing if there is no such copy.
  double copy_bytes(TensorId id, DType type) const {
    if (type == DType::f32 || !is_weights(id)) return 0;
    return stored(id) * static_cast<double>(graph::size_of(type)) /
           static_cast<double>(graph::size_of(plan_.graph().tensor(id).dtype));
  }
  double read_bytes(const Op& op, std::size_t input) const {
    const TensorId id = op.inputs[input];
    if (reads_weights(op.kind) && input == kWeights) {
      const bool copied = plan_.graph().tensor(op.inputs[kMultiplied]).dtype == plan_.weights;
      const double copy = copied ? copy_bytes(id, plan_.weights) : 0;
      return (copy > 0 ? copy : stored(id)) * filter_read(plan_.graph(), op);
    }
    return input == 0 ? stored(id) * seen(plan_.graph(), op) : stored(id);
  }

  const Plan& plan_;
  std::vector<bool> wanted_;  // by TensorId: what makes it has to store it
};

}  // namespace

std::vector<Work> work_of(const Plan& plan, const std::vector<Group>& groups) {
  const Counter counter(plan, groups);
  std::vector<Work> work;
  for (const Group& group : groups) work.push_back(counter.work_of(group));
  return work;
}

bool updates_one(OpKind kind) { return is_optimizer(kind) || kind == OpKind::ema; }

bool updates_many(const graph::Graph& graph, const Group& group) {
  const auto kind_of = [&](int position) { return graph.ops().at(static_cast<std::size_t>(position)).kind; };
  return group.ops.size() > 1 && std::ranges::all_of(group.ops, [&](int position) {
           return kind_of(position) == kind_of(group.ops.front()) && updates_one(kind_of(position));
         });
}

std::string others_text(const graph::Graph& graph, const Group& group) {
  if (updates_many(graph, group)) return {};
  std::string text;
  for (const int position : group.ops) {
    if (position == lead_of(graph, group)) continue;
    text += fmt::format("{}{}", text.empty() ? " with " : ", ",
                        name_of(graph.ops().at(static_cast<std::size_t>(position)).kind));
  }
  return text;
}

}  // namespace redline::plan
