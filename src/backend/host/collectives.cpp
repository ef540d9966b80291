#include "backend/host/collectives.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "graph/half_arrays.h"

namespace redline::backend {

using Clock = std::chrono::steady_clock;
using graph::DType;

Collectives::Collectives(std::shared_ptr<comm::Communicator> communicator, const plan::Plan& plan,
                         std::byte* gradients)
    : communicator_(std::move(communicator)) {
  for (const plan::Bucket& bucket : plan.buckets) {
    works_.push_back({reinterpret_cast<float*>(gradients + bucket.offset), bucket.bytes / sizeof(float),
                      bucket.ready_after, -1, State::idle});
  }
  std::size_t next = 0, longest = 0;
  const auto& ops = plan.graph().ops();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const auto* norm = std::get_if<graph::NormAttr>(&ops[i].attributes);
    averages_ = averages_ || (norm != nullptr && norm->synchronised);
    if (ops[i].kind != graph::OpKind::all_reduce) continue;
    check(next < works_.size(), "more all-reduces than buckets");
    wire_ = ops[i].attr<graph::ReduceAttr>().wire;
    works_[next].op = static_cast<int>(i);
    longest = std::max(longest, works_[next++].count);
  }
  if (next == 0) works_.clear();  // an evaluation: nothing to reduce
  check(next == works_.size(), "{} all-reduces for {} buckets", next, works_.size());
  if (wire_ != DType::f32) halves_.resize(longest);
  if (!works_.empty()) thread_ = std::thread([this] { run(); });
}

Collectives::~Collectives() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Collectives::average(std::span<double> values) {
  const Clock::time_point begun = Clock::now();
  sums_.assign(values.begin(), values.end());
  sums_.push_back(wanted_ ? 1 : 0);
  communicator_->all_reduce(sums_, comm::Channel::norms);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = sums_[i] / communicator_->size();
  agreed_ = agreed_ || sums_.back() > 0;
  exposed_ += Clock::now() - begun;
}

void Collectives::begin_after(std::size_t op) {
  for (std::size_t i = 0; i < works_.size(); ++i) {
    if (works_[i].ready_after != static_cast<int>(op)) continue;
    const std::lock_guard lock(mutex_);
    begin(i);
  }
}

void Collectives::begin(std::size_t index) {
  check(works_[index].state == State::idle, "bucket {} is reduced twice", index);
  works_[index].state = State::begun;
  queue_.push_back(index);
  changed_.notify_all();
}

void Collectives::finish(std::size_t op) {
  const auto found = std::ranges::find(works_, static_cast<int>(op), &Work::op);
  check(found != works_.end(), "op {} reduces no bucket", op);
  const auto index = static_cast<std::size_t>(found - works_.begin());
  const Clock::time_point begun = Clock::now();
  std::unique_lock lock(mutex_);
  if (found->state == State::idle) begin(index);
  changed_.wait(lock, [&] { return found->state == State::done || failure_ != nullptr; });
  exposed_ += Clock::now() - begun;
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  found->state = State::idle;
}

bool Collectives::may_leave(bool wanted) {
  wanted_ = wanted;
  if (averages_ ? !agreed_ : !wanted) return false;
  const std::lock_guard lock(mutex_);
  const bool all_begun =
      !works_.empty() && std::ranges::none_of(works_, [](const Work& w) { return w.state == State::idle; });
  return !all_begun;
}

void Collectives::spoil() {
  agreed_ = false;
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < works_.size(); ++i) {
    if (works_[i].state != State::idle) continue;
    std::fill_n(works_[i].values, works_[i].count, std::numeric_limits<float>::quiet_NaN());
    begin(i);
  }
}

std::chrono::nanoseconds Collectives::take_exposed() {
  return std::exchange(exposed_, std::chrono::nanoseconds::zero());
}

void Collectives::run() {
  for (std::unique_lock lock(mutex_);;) {
    changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
    if (stop_) return;
    const std::size_t index = queue_.front();
    queue_.pop_front();
    const Work work = works_[index];
    lock.unlock();
    std::exception_ptr failure;
    try {
      reduce(work);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    works_[index].state = State::done;
    if (failure_ == nullptr) failure_ = failure;
    changed_.notify_all();
  }
}

void Collectives::reduce(const Work& work) {
  if (wire_ == DType::f32) {
    communicator_->all_reduce(work.values, work.count, comm::Type::f32, comm::Channel::gradients);
    return;
  }
  graph::to_halves(wire_, work.values, halves_.data(), work.count);
  communicator_->all_reduce(halves_.data(), work.count,
                            wire_ == DType::bf16 ? comm::Type::bf16 : comm::Type::f16,
                            comm::Channel::gradients);
  graph::from_halves(wire_, halves_.data(), work.values, work.count);
}

}  // namespace redline::backend
