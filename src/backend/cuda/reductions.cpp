#include "backend/cuda/reductions.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "graph/operands.h"

namespace redline::backend::cuda {

Reductions::Reductions(const plan::Plan& plan, std::shared_ptr<Nccl> nccl, const Address& address)
    : plan_(plan), nccl_(std::move(nccl)) {
  if (nccl_ == nullptr) return;
  for (std::size_t i = 0; i < plan.groups.size(); ++i) {
    for (const int position : plan.groups[i].ops) {
      const graph::Op& op = plan.graph().ops()[static_cast<std::size_t>(position)];
      if (op.kind == OpKind::all_reduce) add_bucket(i, op, address);
      if (op.kind == OpKind::conv || op.kind == OpKind::norm_grad_stats) add_norm(i, op, address);
    }
  }
  if (reductions_.empty()) return;
  stream_ = make_stream(/*urgent=*/true);
  times_ = DeviceMemory(sizeof(Times));  // cleared
}

void Reductions::add_bucket(std::size_t group, const graph::Op& op, const Address& address) {
  const DType wire = op.attr<graph::ReduceAttr>().wire;
  if (wire != DType::f32 && wire != plan_.weights) {
    throw UnavailableError("--grad-dtype {}: gradients on a GPU travel as they are kept, in {}; leave it out",
                           name_of(wire), name_of(plan_.weights));
  }
  const plan::Bucket& bucket = plan_.buckets.at(reductions_.size());
  Reduction reduction{group, static_cast<std::size_t>(bucket.ready_after), {}};
  for (const graph::TensorId id : bucket.gradients) {
    const DType type = plan_.graph().tensor(id).dtype;
    const std::size_t count = plan_.placement(id).bytes / graph::size_of(type);
    // Neighbours of one type travel as one range.
    ReduceRange* last = reduction.ranges.empty() ? nullptr : &reduction.ranges.back();
    if (last != nullptr && last->dtype == type &&
        last->values + last->count * graph::size_of(type) == address(id))
      last->count += count;
    else
      reduction.ranges.push_back({address(id), count, type});
  }
  reductions_.push_back(std::move(reduction));
}

// A convolution makes the sums that norm_stats reads, and norm_grad_stats its own; a norm without such sums
// averages inside its own step.
void Reductions::add_norm(std::size_t group, const graph::Op& op, const Address& address) {
  const auto is_synchronised = [](const graph::Op& norm) {
    const auto& attr = norm.attr<graph::NormAttr>();
    return attr.synchronised && attr.training;
  };
  const auto add = [&](graph::TensorId id) {
    averages_[group].push_back({address(id), plan_.placement(id).bytes / sizeof(float), DType::f32});
  };
  if (op.kind == OpKind::norm_grad_stats) {
    if (!is_synchronised(op)) return;
    add(op.outputs[operands::NormGradStats::dgamma]);
    add(op.outputs[operands::NormGradStats::dbeta]);
    return;
  }
  const graph::TensorId sums = plan::sums_of(op);
  if (sums == graph::kNone) return;
  const bool wanted = std::ranges::any_of(plan_.graph().ops(), [&](const graph::Op& norm) {
    return norm.kind == OpKind::norm_stats && operands::in(norm, operands::NormStats::sums) == sums &&
           is_synchronised(norm);
  });
  if (wanted) add(sums);
}

Step Reductions::make(std::size_t group) const {
  for (const Reduction& reduction : reductions_) {
    if (reduction.group != group) continue;
    return [nccl = nccl_.get(), &reduction](cudaStream_t stream) {
      nccl->all_reduce(reduction.ranges, Reduce::sum, stream);
    };
  }
  return {};
}

bool Reductions::before(std::size_t group, cudaStream_t stream, cudaStream_t side, const Launched& launched) {
  if (reductions_.empty()) return false;
  for (const Reduction& reduction : reductions_) {
    if (reduction.ready_after + 1 != group) continue;
    follow(stream_.get(), stream);
    if (side != nullptr) follow(stream_.get(), side);
    nccl_->all_reduce(reduction.ranges, Reduce::sum, stream_.get());
    launched(reduction.group, stream_.get());
    begun_[reduction.group] = recorded(stream_.get());
  }
  if (group == reductions_.front().group) {
    stamp(&times()->computed, stream);
    launched(group, stream);
  }
  const auto found = begun_.find(group);
  if (found == begun_.end()) return false;
  follow(stream, found->second);
  if (group == reductions_.back().group) {
    add_time(&times()->computed, &times()->exposed, stream);
    launched(group, stream);
  }
  return true;
}

void Reductions::after(std::size_t group, cudaStream_t stream) const {
  const auto found = averages_.find(group);
  if (found != averages_.end()) nccl_->all_reduce(found->second, Reduce::average, stream);
}

void Reductions::await(const std::function<bool()>& done) {
  if (!reductions_.empty()) nccl_->await(done);
}

const std::uint64_t* Reductions::exposed() const { return reductions_.empty() ? nullptr : &times()->exposed; }

}  // namespace redline::backend::cuda
