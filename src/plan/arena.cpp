#include "plan/arena.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "graph/operands.h"
#include "plan/groups.h"

namespace redline::plan {
namespace {

namespace operands = graph::operands;
using graph::kNone;
using graph::Op;
using graph::OpKind;
using graph::Tensor;
using graph::TensorId;
using graph::TensorKind;

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Memory that one tensor, or a chain of in-place ones, holds for a while.
struct Buffer {
  std::size_t bytes = 0, offset = 0;
  int first = 0, last = 0;
};

class Placer {
 public:
  Placer(Plan& plan, const Capabilities& backend, bool keep_all) : plan_(plan), keep_all_(keep_all) {
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
    check_stored();
    find_regions();
    fill_buckets(bucket_bytes);
    fill_arena();
  }

 private:
  const std::vector<Group>& groups() const { return plan_.groups; }

  void find_lifetimes() {
    for (int i = 0; i < static_cast<int>(groups().size()); ++i) {
      const Group& group = groups()[at(i)];
      const int until = group.side_stream ? group.join - 1 : i;
      const auto touch = [&](TensorId id) {
        Placement& placement = plan_.placements[at(id)];
        if (placement.first < 0) placement.first = i;
        placement.last = std::max(placement.last, until);
      };
      std::ranges::for_each(reads_of(plan_.graph(), group), touch);
      std::ranges::for_each(writes_of(plan_.graph(), group), touch);
      if (keep_all_) std::ranges::for_each(group.unstored, touch);
    }
    // Kernels add to a convolution's sums, and a backend may clear all of them when the step begins.
    for (const Op& op : plan_.graph().ops()) {
      if (const TensorId sums = sums_of(op); sums != kNone) plan_.placements[at(sums)].first = 0;
    }
    // The host reads logits after the step.
    if (plan_.model.logits != kNone) plan_.placements[at(plan_.model.logits)].last = last_position();
    if (!keep_all_) return;
    for (Placement& placement : plan_.placements) {
      if (placement.first < 0) continue;
      placement.first = 0;
      placement.last = last_position();
    }
  }

  // Checks that groups only read stored tensors: a tensor that is not stored is read by no other group.
  void check_stored() const {
    for (const Group& group : groups()) {
      for (const TensorId id : group.unstored)
        check(keep_all_ || plan_.placement(id).first < 0, "'{}' is read but not stored by '{}'",
              plan_.graph().tensor(id).name, group.name);
    }
  }

  int last_position() const { return static_cast<int>(groups().size()) - 1; }

  void find_regions() {
    // A gradient that is added to a total lives as briefly as an activation.
    std::vector<bool> accumulated(plan_.placements.size());
    for (const Op& op : plan_.graph().ops()) {
      if (op.kind == OpKind::accumulate) accumulated[at(op.inputs[operands::Accumulate::dw])] = true;
    }
    for (std::size_t i = 0; i < plan_.placements.size(); ++i) {
      const Tensor& tensor = plan_.graph().tensors()[i];
      Placement& placement = plan_.placements[i];
      if (placement.first < 0) continue;
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
    plan_.buckets.clear();
    std::size_t offset = 0;
    for (int i = 0; i < plan_.update_begin; ++i) {
      const Group& group = groups()[at(i)];
      for (const TensorId id : writes_of(plan_.graph(), group)) {
        if (plan_.placement(id).region != Region::bucket) continue;
        if (plan_.buckets.empty() || plan_.buckets.back().bytes >= bucket_bytes) {
          plan_.buckets.push_back({{}, offset, 0, -1});
        }
        Bucket& bucket = plan_.buckets.back();
        bucket.gradients.push_back(id);
        bucket.ready_after = std::max(bucket.ready_after, group.side_stream ? group.join - 1 : i);
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
      if (placement.region != Region::arena || buffer_of[at(id)] >= 0) return;
      buffers.push_back({aligned(placement.bytes), 0, placement.first, placement.last});
      buffer_of[at(id)] = static_cast<int>(buffers.size()) - 1;
    };
    for (int i = 0; i < static_cast<int>(groups().size()); ++i) {
      const Group& group = groups()[at(i)];
      const std::vector<TensorId> writes = writes_of(plan_.graph(), group);
      for (const TensorId id : reads_of(plan_.graph(), group)) {
        if (std::ranges::count(writes, id) == 0) own_buffer(id);
      }
      if (!keep_all_) {
        for (const InPlace& choice : group.in_place) reuse_in_place(i, choice, buffers, buffer_of);
      }
      std::ranges::for_each(writes, own_buffer);
      if (keep_all_) std::ranges::for_each(group.unstored, own_buffer);
    }
    plan_.arena_bytes = pack(buffers);
    for (std::size_t i = 0; i < buffer_of.size(); ++i) {
      if (buffer_of[i] >= 0)
        plan_.placements[i].offset = buffers[static_cast<std::size_t>(buffer_of[i])].offset;
    }
  }

  bool in_arena(TensorId id) const { return id != kNone && plan_.placement(id).region == Region::arena; }

  // Lets a group write an output over an input that nothing reads after it.
  void reuse_in_place(int i, const InPlace& choice, std::vector<Buffer>& buffers,
                      std::vector<int>& buffer_of) const {
    if (!in_arena(choice.input) || !in_arena(choice.output)) return;
    const int over = buffer_of[at(choice.input)];
    if (over < 0 || buffer_of[at(choice.output)] >= 0) return;
    const Placement &from = plan_.placement(choice.input), &to = plan_.placement(choice.output);
    Buffer& buffer = buffers[at(over)];
    if (buffer.last != i || from.bytes != to.bytes || from.layout != to.layout) return;
    buffer.last = to.last;
    buffer_of[at(choice.output)] = over;
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
  bool keep_all_;
};

}  // namespace

void place_tensors(Plan& plan, const Capabilities& backend, std::size_t bucket_bytes, bool keep_all) {
  Placer(plan, backend, keep_all).run(bucket_bytes);
}

}  // namespace redline::plan
