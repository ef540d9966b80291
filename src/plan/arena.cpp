#include "plan/arena.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"

namespace redline::plan {
namespace {

using graph::kNone;
using graph::Op;
using graph::OpKind;
using graph::Phase;
using graph::Tensor;
using graph::TensorId;
using graph::TensorKind;

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
std::size_t at(TensorId id) { return static_cast<std::size_t>(id); }

// Inputs whose memory an elementwise op may write its output over, with the output's position.
struct InPlace {
  std::vector<std::size_t> inputs;
  std::size_t output = 0;
};

InPlace in_place_choices(const Op& op) {
  switch (op.kind) {
    case OpKind::relu:
      return {{0}, 0};
    case OpKind::add:
      return {{0, 1}, 0};
    case OpKind::affine_act:
      return {{0, 2}, 0};
    case OpKind::relu_grad:
      return {{0}, 0};
    case OpKind::norm_grad_stats:
      return {{0, 1}, 2};
    case OpKind::norm_grad_apply:
      return {{0}, 0};
    default:
      return {};
  }
}

// Memory that one tensor, or a chain of in-place ones, holds for a while.
struct Buffer {
  std::size_t bytes = 0, offset = 0;
  int first = 0, last = 0;
};

class Placer {
 public:
  Placer(Plan& plan, const Capabilities& backend, bool keep_all)
      : plan_(plan), backend_(backend), keep_all_(keep_all) {
    const auto& tensors = plan.graph().tensors();
    plan.placements.assign(tensors.size(), {});
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      Placement& placement = plan.placements[i];
      placement.layout = backend.layout(plan.graph(), static_cast<TensorId>(i));
      placement.bytes = stored_bytes(tensors[i], placement.layout);
    }
  }

  void run(std::size_t bucket_bytes) {
    find_lifetimes();
    if (!keep_all_) drop_remade();
    find_regions();
    fill_buckets(bucket_bytes);
    fill_arena();
  }

 private:
  const std::vector<Op>& ops() const { return plan_.graph().ops(); }

  void find_lifetimes() {
    for (std::size_t i = 0; i < ops().size(); ++i) {
      const auto touch = [&](TensorId id) {
        if (id == kNone) return;
        Placement& placement = plan_.placements[at(id)];
        if (placement.first_op < 0) placement.first_op = static_cast<int>(i);
        placement.last_op = static_cast<int>(i);
      };
      std::ranges::for_each(ops()[i].inputs, touch);
      std::ranges::for_each(ops()[i].outputs, touch);
    }
    for (const Beside& beside : plan_.beside) {
      const Op& op = ops()[static_cast<std::size_t>(beside.op)];
      for (const auto* ids : {&op.inputs, &op.outputs}) {
        for (TensorId id : *ids) {
          if (id == kNone) continue;
          int& last = plan_.placements[at(id)].last_op;
          last = std::max(last, beside.join - 1);
        }
      }
    }
    for (std::size_t i = 0; i < ops().size(); ++i) {
      if (ops()[i].kind != OpKind::norm_grad_apply) continue;
      int& last = plan_.placements[at(ops()[i].inputs[1])].last_op;
      last = std::max(last, static_cast<int>(i) + backend_.input_stays(plan_.graph(), static_cast<int>(i)));
    }
    // What a norm knows per channel is small: it stays for two ops more, so that a backend may do its last
    // reader together with those that follow.
    for (std::size_t i = 0; i < plan_.placements.size(); ++i) {
      int& last = plan_.placements[i].last_op;
      if (last >= 0 && plan_.graph().tensors()[i].shape.rank() <= 2)
        last = std::min(last + 2, last_position());
    }
    // Kernels add to a convolution's sums, and a backend may clear all of them when the step begins.
    for (const Op& op : ops()) {
      if (const TensorId sums = sums_of(op); sums != kNone) plan_.placements[at(sums)].first_op = 0;
    }
    // The host reads logits after the step.
    if (plan_.model.logits != kNone) plan_.placements[at(plan_.model.logits)].last_op = last_position();
    if (!keep_all_) return;
    for (Placement& placement : plan_.placements) {
      if (placement.first_op < 0) continue;
      placement.first_op = 0;
      placement.last_op = last_position();
    }
  }

  void drop_remade() {
    for (std::size_t i = 0; i < plan_.placements.size(); ++i) {
      Placement& placement = plan_.placements[i];
      if (backend_.remakes(plan_.graph(), static_cast<TensorId>(i)))
        placement.first_op = placement.last_op = -1;
    }
  }

  int last_position() const { return static_cast<int>(ops().size()) - 1; }

  void find_regions() {
    // A gradient that is added to a total lives as briefly as an activation.
    std::vector<bool> accumulated(plan_.placements.size());
    for (const Op& op : ops()) {
      if (op.kind == OpKind::accumulate) accumulated[at(op.inputs[1])] = true;
    }
    for (std::size_t i = 0; i < plan_.placements.size(); ++i) {
      const Tensor& tensor = plan_.graph().tensors()[i];
      Placement& placement = plan_.placements[i];
      if (placement.first_op < 0) continue;
      if (is_persistent(tensor.kind)) {
        placement.region = Region::state;
      } else if (tensor.kind == TensorKind::input || tensor.kind == TensorKind::metric) {
        placement.region = Region::host_io;
      } else if (tensor.kind == TensorKind::gradient && !accumulated[i] && !keep_all_) {
        placement.region = Region::bucket;
      } else {
        placement.region = Region::arena;
      }
    }
  }

  void fill_buckets(std::size_t bucket_bytes) {
    std::size_t offset = 0;
    std::map<int, int> done_after;
    for (const Beside& beside : plan_.beside) done_after[beside.op] = beside.join - 1;
    for (std::size_t i = 0; i < ops().size(); ++i) {
      if (ops()[i].phase == Phase::update) break;
      const auto late = done_after.find(static_cast<int>(i));
      const int done = late == done_after.end() ? static_cast<int>(i) : late->second;
      for (TensorId id : ops()[i].outputs) {
        if (id == kNone || plan_.placement(id).region != Region::bucket) continue;
        if (plan_.buckets.empty() || plan_.buckets.back().bytes >= bucket_bytes) {
          plan_.buckets.push_back({{}, offset, 0, -1});
        }
        Bucket& bucket = plan_.buckets.back();
        bucket.gradients.push_back(id);
        bucket.ready_after_op = std::max(bucket.ready_after_op, done);
        plan_.placements[at(id)].offset = offset;
        offset += aligned(plan_.placement(id).bytes);
        bucket.bytes = offset - bucket.offset;
      }
    }
    plan_.gradient_bytes = offset;
  }

  void fill_arena() {
    std::vector<Buffer> buffers;
    std::vector<int> buffer_of(plan_.placements.size(), -1);
    const auto own_buffer = [&](TensorId id) {
      const Placement& placement = plan_.placement(id);
      buffers.push_back({aligned(placement.bytes), 0, placement.first_op, placement.last_op});
      buffer_of[at(id)] = static_cast<int>(buffers.size()) - 1;
    };
    for (std::size_t i = 0; i < ops().size(); ++i) {
      for (TensorId id : ops()[i].inputs) {
        if (in_arena(id) && buffer_of[at(id)] < 0) own_buffer(id);
      }
      if (!keep_all_) reuse_in_place(i, buffers, buffer_of);
      for (TensorId id : ops()[i].outputs) {
        if (in_arena(id) && buffer_of[at(id)] < 0) own_buffer(id);
      }
    }
    plan_.arena_bytes = pack(buffers);
    for (std::size_t i = 0; i < buffer_of.size(); ++i) {
      if (buffer_of[i] >= 0)
        plan_.placements[i].offset = buffers[static_cast<std::size_t>(buffer_of[i])].offset;
    }
  }

  bool in_arena(TensorId id) const { return id != kNone && plan_.placement(id).region == Region::arena; }

  // Lets an elementwise op write over an input that nobody reads after it.
  void reuse_in_place(std::size_t i, std::vector<Buffer>& buffers, std::vector<int>& buffer_of) const {
    const InPlace choices = in_place_choices(ops()[i]);
    if (choices.inputs.empty()) return;
    const TensorId output = ops()[i].outputs[choices.output];
    if (!in_arena(output) || buffer_of[at(output)] >= 0) return;
    for (std::size_t position : choices.inputs) {
      const TensorId input = ops()[i].inputs[position];
      if (!in_arena(input)) continue;
      const Placement &from = plan_.placement(input), &to = plan_.placement(output);
      if (from.last_op != static_cast<int>(i) || from.bytes != to.bytes || from.layout != to.layout) continue;
      Buffer& buffer = buffers[static_cast<std::size_t>(buffer_of[at(input)])];
      buffer.last = to.last_op;
      buffer_of[at(output)] = buffer_of[at(input)];
      return;
    }
  }

  // Largest first, each at the lowest offset that no buffer alive at the same time holds.
  static std::size_t pack(std::vector<Buffer>& buffers) {
    std::vector<std::size_t> order(buffers.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(
        order, [&](std::size_t a, std::size_t b) { return buffers[a].bytes > buffers[b].bytes; });
    std::vector<const Buffer*> placed;  // by offset
    std::size_t total = 0;
    for (std::size_t index : order) {
      Buffer& buffer = buffers[index];
      std::size_t offset = 0;
      for (const Buffer* other : placed) {
        if (other->last < buffer.first || buffer.last < other->first) continue;
        if (other->offset >= offset + buffer.bytes) break;
        offset = std::max(offset, other->offset + other->bytes);
      }
      buffer.offset = offset;
      total = std::max(total, offset + buffer.bytes);
      placed.insert(std::ranges::upper_bound(placed, offset, {}, &Buffer::offset), &buffer);
    }
    return total;
  }

  Plan& plan_;
  const Capabilities& backend_;
  bool keep_all_;
};

}  // namespace

void place_tensors(Plan& plan, const Capabilities& backend, std::size_t bucket_bytes, bool keep_all) {
  Placer(plan, backend, keep_all).run(bucket_bytes);
}

}  // namespace redline::plan
