#include "backend/cuda/reductions.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace redline::backend::cuda {

using graph::DType;
using graph::OpKind;

namespace {

template <typename T, typename Memory>
T* at(const Memory& memory) {
  return reinterpret_cast<T*>(memory.data());
}

}  // namespace

Reductions::Reductions(const plan::Plan& plan, std::shared_ptr<Nccl> nccl, const Address& address,
                       DType activations)
    : plan_(plan), nccl_(std::move(nccl)) {
  if (nccl_ == nullptr) return;
  const auto& ops = plan.graph().ops();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].kind == OpKind::all_reduce) add_bucket(i, address, activations);
    if (ops[i].kind == OpKind::norm_stats || ops[i].kind == OpKind::norm_grad_stats) add_norm(i, address);
  }
  if (reductions_.empty()) return;
  stream_ = make_stream(/*urgent=*/true);
  computed_ = DeviceMemory(sizeof(std::uint64_t));
  exposed_ = DeviceMemory(sizeof(std::uint64_t));  // cleared
}

void Reductions::add_bucket(std::size_t op, const Address& address, DType activations) {
  const DType wire = plan_.graph().ops()[op].attr<graph::ReduceAttr>().wire;
  if (wire != DType::f32 && wire != activations) {
    throw UnavailableError("--grad-dtype {}: gradients on a GPU travel as they are kept, in {}; leave it out",
                           name_of(wire), name_of(activations));
  }
  const plan::Bucket& bucket = plan_.buckets.at(reductions_.size());
  Reduction reduction{op, static_cast<std::size_t>(bucket.ready_after_op), {}};
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

// A convolution made the sums that norm_stats reads, and norm_grad_stats makes its own; a norm without such
// sums averages inside its own step.
void Reductions::add_norm(std::size_t op, const Address& address) {
  const auto& ops = plan_.graph().ops();
  const auto& attr = ops[op].attr<graph::NormAttr>();
  if (!attr.synchronised || !attr.training) return;
  const auto range = [&](graph::TensorId id) {
    return ReduceRange{address(id), plan_.placement(id).bytes / sizeof(float), DType::f32};
  };
  if (ops[op].kind == OpKind::norm_grad_stats) {
    averages_[op] = {range(ops[op].outputs[0]), range(ops[op].outputs[1])};
    return;
  }
  const graph::TensorId sums = ops[op].inputs.size() > 5 ? ops[op].inputs[5] : graph::kNone;
  if (sums == graph::kNone) return;
  for (std::size_t i = 0; i < op; ++i) {
    if (std::ranges::count(ops[i].outputs, sums) > 0) averages_[i] = {range(sums)};
  }
}

Step Reductions::make(const graph::Op& op) const {
  for (const Reduction& reduction : reductions_) {
    if (&plan_.graph().ops()[reduction.op] != &op) continue;
    return [nccl = nccl_.get(), &reduction](cudaStream_t stream) {
      nccl->all_reduce(reduction.ranges, Reduce::sum, stream);
    };
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
    nccl_->all_reduce(reduction.ranges, Reduce::sum, stream_.get());
    launched(reduction.op, stream_.get());
    marks_.push_back(make_event(false));
    check_cuda(cudaEventRecord(marks_.back().get(), stream_.get()), "marking a step");
    begun_[reduction.op] = marks_.back().get();
  }
  if (op == reductions_.front().op) {
    start_stopwatch(at<std::uint64_t>(computed_), stream);
    launched(op, stream);
  }
  const auto found = begun_.find(op);
  if (found == begun_.end()) return false;
  check_cuda(cudaStreamWaitEvent(stream, found->second), "ordering steps");
  if (op == reductions_.back().op) {
    stop_stopwatch(at<std::uint64_t>(computed_), at<std::uint64_t>(exposed_), stream);
    launched(op, stream);
  }
  return true;
}

bool Reductions::after(std::size_t op, cudaStream_t stream) const {
  const auto found = averages_.find(op);
  if (found == averages_.end()) return false;
  nccl_->all_reduce(found->second, Reduce::average, stream);
  return true;
}

void Reductions::await(const std::function<bool()>& done) {
  if (!reductions_.empty()) nccl_->await(done);
}

const std::uint64_t* Reductions::exposed() const {
  return reductions_.empty() ? nullptr : at<std::uint64_t>(exposed_);
}

}  // namespace redline::backend::cuda
