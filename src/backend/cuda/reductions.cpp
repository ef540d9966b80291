#include "backend/cuda/reductions.h"

#include <utility>

#include "base/error.h"

namespace redline::backend::cuda {

using graph::DType;
using graph::OpKind;

Reductions::Reductions(const plan::Plan& plan, std::shared_ptr<const Nccl> nccl, const Address& address,
                       DType activations)
    : plan_(plan), nccl_(std::move(nccl)) {
  if (nccl_ == nullptr) return;
  const auto& ops = plan.graph().ops();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].kind != OpKind::all_reduce) continue;
    const DType wire = ops[i].attr<graph::ReduceAttr>().wire;
    if (wire != DType::f32 && wire != activations) {
      throw UnavailableError(
          "--grad-dtype {}: gradients on a GPU travel as they are kept, in {}; leave it out", name_of(wire),
          name_of(activations));
    }
    const plan::Bucket& bucket = plan.buckets.at(reductions_.size());
    Reduction reduction{i, static_cast<std::size_t>(bucket.ready_after_op), {}};
    for (const graph::TensorId id : bucket.gradients) {
      const DType type = plan.graph().tensor(id).dtype;
      const std::size_t count = plan.placement(id).bytes / graph::size_of(type);
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
  if (reductions_.empty()) return;
  stream_ = make_stream(/*urgent=*/true);
  computed_ = make_event(true);
  reduced_ = make_event(true);
}

Step Reductions::make(const graph::Op& op) const {
  for (const Reduction& reduction : reductions_) {
    if (&plan_.graph().ops()[reduction.op] != &op) continue;
    return
        [nccl = nccl_.get(), &reduction](cudaStream_t stream) { nccl->all_reduce(reduction.ranges, stream); };
  }
  return [](cudaStream_t) {};  // alone, the sum over ranks is the tensor itself
}

void Reductions::follow(cudaStream_t later, cudaStream_t earlier) {
  marks_.push_back(make_event(false));
  check_cuda(cudaEventRecord(marks_.back().get(), earlier), "marking a step");
  check_cuda(cudaStreamWaitEvent(later, marks_.back().get()), "ordering steps");
}

bool Reductions::before(std::size_t op, cudaStream_t stream, cudaStream_t beside, const Launched& launched) {
  if (reductions_.empty()) return false;
  for (const Reduction& reduction : reductions_) {
    if (reduction.ready_after + 1 != op) continue;
    follow(stream_.get(), stream);
    if (beside != nullptr) follow(stream_.get(), beside);
    nccl_->all_reduce(reduction.ranges, stream_.get());
    launched(reduction.op, stream_.get());
    marks_.push_back(make_event(false));
    check_cuda(cudaEventRecord(marks_.back().get(), stream_.get()), "marking a step");
    begun_[reduction.op] = marks_.back().get();
  }
  // Times for the host to read after every launch, from inside the graph.
  const auto note_time = [&](const Event& event) {
    check_cuda(cudaEventRecordWithFlags(event.get(), stream, cudaEventRecordExternal), "marking a step");
  };
  if (op == reductions_.front().op) note_time(computed_);
  const auto found = begun_.find(op);
  if (found == begun_.end()) return false;
  check_cuda(cudaStreamWaitEvent(stream, found->second), "ordering steps");
  if (op == reductions_.back().op) note_time(reduced_);
  return true;
}

CommunicationTime Reductions::time() const {
  if (nccl_ != nullptr) nccl_->check_health();
  if (std::exchange(launched_, false)) {
    check_cuda(cudaEventSynchronize(reduced_.get()), "waiting for the device");
    float milliseconds = 0.0F;
    check_cuda(cudaEventElapsedTime(&milliseconds, computed_.get(), reduced_.get()), "timing");
    time_.exposed += milliseconds / 1000.0;
    time_.total = time_.exposed;
  }
  return time_;
}

}  // namespace redline::backend::cuda
