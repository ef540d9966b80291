#include "plan/traffic.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace redline::plan {
namespace {

using graph::DType;
using graph::Op;
using graph::OpKind;
using graph::TensorId;

constexpr std::size_t kWeights = 1, kSums = 5;  // inputs of ops that read them

bool reads_weights(OpKind kind) {
  return kind == OpKind::conv || kind == OpKind::conv_grad_input || kind == OpKind::linear ||
         kind == OpKind::linear_grad_input;
}

bool is_optimizer(OpKind kind) { return kind == OpKind::sgd || kind == OpKind::lars; }

// A step that is not refused puts nothing back.
bool moves_nothing(const Op& op) { return op.kind == OpKind::restore; }

bool reads(const Op& op, std::size_t input) {
  if (op.inputs[input] == graph::kNone) return false;
  if (moves_nothing(op)) return input == 0;
  if (op.kind != OpKind::norm_stats || input > 0) return true;
  const bool has_sums = op.inputs.size() > kSums && op.inputs[kSums] != graph::kNone;
  return op.attr<graph::NormAttr>().training && !has_sums;
}

// The part of a convolution's input that its windows see: strides may leave out pixels between them.
double seen(const graph::Graph& graph, const Op& op) {
  if (op.kind != OpKind::conv && op.kind != OpKind::conv_grad_weight) return 1;
  const graph::Tensor& weights = graph.tensor(op.kind == OpKind::conv ? op.inputs[kWeights] : op.outputs[0]);
  const double side = static_cast<double>(weights.shape[2]) / op.attr<graph::ConvAttr>().stride;
  return std::min(1.0, side * side);
}

bool is_convolution(OpKind kind) {
  return kind == OpKind::conv || kind == OpKind::conv_grad_input || kind == OpKind::conv_grad_weight;
}

// The part of a filter's taps along one side that fall on the image, over all `outputs`. The others meet
// padding zeros, which is work that nobody has to do.
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
  // Images and results of the forward pass, N C H W, and its filter: each of the three passes has two of them
  // as inputs and makes the third.
  const bool forward = op.kind == OpKind::conv, to_input = op.kind == OpKind::conv_grad_input;
  const graph::Shape& image = graph.tensor(to_input ? op.outputs[0] : op.inputs[0]).shape;
  const graph::Shape& result = graph.tensor(forward ? op.outputs[0] : op.inputs[to_input ? 0 : 1]).shape;
  const graph::Shape& filter =
      graph.tensor(op.kind == OpKind::conv_grad_weight ? op.outputs[0] : op.inputs[kWeights]).shape;
  const auto& attr = op.attr<graph::ConvAttr>();
  return all * taps_on_image(image[2], result[2], filter[2], attr) *
         taps_on_image(image[3], result[3], filter[3], attr);
}

// By op, the position where it is done first; done again elsewhere, it stores nothing.
std::vector<int> first_places(const Groups& groups) {
  std::vector<int> places(groups.ops.size(), -1);
  for (std::size_t at = 0; at < groups.ops.size(); ++at) {
    for (const int position : groups.ops[at]) {
      int& place = places[static_cast<std::size_t>(position)];
      if (place < 0) place = static_cast<int>(at);
    }
  }
  return places;
}

class Counter {
 public:
  Counter(const Plan& plan, const Groups& groups)
      : plan_(plan), groups_(groups), wanted_(plan.placements.size()), home_(first_places(groups)) {
    std::vector<bool> is_read(wanted_.size());
    for (const std::vector<int>& ops : groups.ops) {
      std::set<TensorId> made;
      for (const int position : ops) {
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

  Work work_at(std::size_t at) const {
    Work work;
    std::set<TensorId> known, written;  // read or made so far
    for (const int position : groups_.ops[at]) {
      const bool again = home_[static_cast<std::size_t>(position)] != static_cast<int>(at);
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
      if (is_optimizer(op.kind)) work.bytes += copy_bytes(op.inputs[0], groups_.weights);
    }
    return work;
  }

 private:
  static std::size_t index(TensorId id) { return static_cast<std::size_t>(id); }
  const Op& op_at(int position) const { return plan_.graph().ops().at(static_cast<std::size_t>(position)); }
  double stored(TensorId id) const { return static_cast<double>(plan_.placement(id).bytes); }

  bool is_weights(TensorId id) const {
    const graph::Tensor& tensor = plan_.graph().tensor(id);
    return tensor.kind == graph::TensorKind::parameter && tensor.shape.rank() > 1;
  }
  // Of a matrix or filter in another type than its own; nothing where there is no such copy.
  double copy_bytes(TensorId id, DType type) const {
    if (type == DType::f32 || !is_weights(id)) return 0;
    return stored(id) * static_cast<double>(graph::size_of(type)) /
           static_cast<double>(graph::size_of(plan_.graph().tensor(id).dtype));
  }
  double read_bytes(const Op& op, std::size_t input) const {
    const TensorId id = op.inputs[input];
    if (reads_weights(op.kind) && input == kWeights &&
        plan_.graph().tensor(op.inputs[0]).dtype == groups_.weights) {
      if (const double bytes = copy_bytes(id, groups_.weights); bytes > 0) return bytes;
    }
    return input == 0 ? stored(id) * seen(plan_.graph(), op) : stored(id);
  }

  const Plan& plan_;
  const Groups& groups_;
  std::vector<bool> wanted_;  // by TensorId: what makes it has to store it
  std::vector<int> home_;     // by op: where it is done first
};

}  // namespace

Groups each_alone(const Plan& plan) {
  Groups groups;
  for (std::size_t i = 0; i < plan.graph().ops().size(); ++i) groups.ops.push_back({static_cast<int>(i)});
  return groups;
}

std::vector<Work> work_of(const Plan& plan, const Groups& groups) {
  const Counter counter(plan, groups);
  std::vector<Work> work;
  for (std::size_t at = 0; at < groups.ops.size(); ++at) work.push_back(counter.work_at(at));
  return work;
}

bool updates_one(OpKind kind) { return is_optimizer(kind) || kind == OpKind::ema; }

bool updates_many(const graph::Graph& graph, const std::vector<int>& ops) {
  const auto kind_of = [&](int position) { return graph.ops().at(static_cast<std::size_t>(position)).kind; };
  return ops.size() > 1 && std::ranges::all_of(ops, [&](int position) {
           return kind_of(position) == kind_of(ops.front()) && updates_one(kind_of(position));
         });
}

std::vector<std::vector<int>> named_ops(const graph::Graph& graph, const Groups& groups) {
  const std::vector<int> home = first_places(groups);
  std::vector<std::vector<int>> named = groups.ops;
  for (std::size_t at = 0; at < named.size(); ++at) {
    std::vector<int>& ops = named[at];
    std::erase_if(ops, [&](int op) { return home[static_cast<std::size_t>(op)] != static_cast<int>(at); });
    auto first = std::ranges::find_if(
        ops, [&](int op) { return is_convolution(graph.ops().at(static_cast<std::size_t>(op)).kind); });
    if (first == ops.end()) first = std::ranges::find(ops, static_cast<int>(at));
    if (first != ops.end()) std::rotate(ops.begin(), first, first + 1);
  }
  return named;
}

std::string others_text(const graph::Graph& graph, const std::vector<int>& named) {
  if (updates_many(graph, named)) return {};
  std::string text;
  for (std::size_t i = 1; i < named.size(); ++i) {
    text += fmt::format("{}{}", i == 1 ? " with " : ", ",
                        name_of(graph.ops().at(static_cast<std::size_t>(named[i])).kind));
  }
  return text;
}

}  // namespace redline::plan
