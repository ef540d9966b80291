#include "comm/gloo_exchange.h"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>

#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "comm/gloo_sums.h"

namespace redline::comm {
namespace {

// Apart from the tags of the Communicator's channels.
constexpr std::uint32_t kTag = 100, kBarrierTag = 101;

const std::vector<std::string> kAllReduce = {"ring", "bcube"};
const std::vector<std::string> kReduceScatter = {"all-to-all"};
const std::vector<std::string> kAllGather = {"ring"};
const std::vector<std::string> kBroadcast = {"tree"};

class GlooExchange final : public Exchange {
 public:
  GlooExchange(std::shared_ptr<gloo::Context> context, ExchangeOptions options,
               std::chrono::milliseconds limit, GuardedCall call)
      : context_(std::move(context)),
        options_(std::move(options)),
        limit_(limit),
        call_(std::move(call)),
        ranks_(static_cast<std::size_t>(context_->size)),
        input_(options_.count * size_of(options_.type)),
        values_(input_.size()) {
    const Operation operation = options_.operation;
    if (operation == Operation::all_gather || operation == Operation::reduce_scatter_all_gather)
      gathered_.resize(input_.size());
    if (operation == Operation::reduce_scatter || operation == Operation::reduce_scatter_all_gather)
      parts_.resize(input_.size());
  }

  void fill(std::span<const std::byte> values) override {
    check(values.size() == input_.size(), "{} bytes for an exchange of {}", values.size(), input_.size());
    std::memcpy(input_.data(), values.data(), values.size());
  }

  std::vector<double> run(int repetitions) override {
    std::vector<double> seconds;
    for (int i = 0; i < repetitions; ++i) {
      values_ = input_;
      call_("a barrier", [&] {
        gloo::BarrierOptions options(context_);
        options.setTag(kBarrierTag);
        options.setTimeout(limit_);
        gloo::barrier(options);
      });
      const Stopwatch watch;
      call_("a measured exchange", [&] { exchange(); });
      seconds.push_back(watch.seconds());
    }
    return seconds;
  }

  void read(std::span<std::byte> values) const override {
    const std::vector<std::byte>& from = !gathered_.empty() ? gathered_ : !parts_.empty() ? parts_ : values_;
    check(values.size() <= from.size(), "{} bytes of an exchange of {}", values.size(), from.size());
    std::memcpy(values.data(), from.data(), values.size());
  }

 private:
  std::byte* own_part(std::vector<std::byte>& of) const {
    return of.data() + of.size() / ranks_ * static_cast<std::size_t>(context_->rank);
  }

  void exchange() {
    switch (options_.operation) {
      case Operation::all_reduce:
        return all_reduce();
      case Operation::reduce_scatter:
        return reduce_scatter();
      case Operation::all_gather:
        return all_gather(own_part(values_));
      case Operation::reduce_scatter_all_gather:
        reduce_scatter();
        return all_gather(parts_.data());
      case Operation::broadcast:
        return broadcast();
    }
  }

  void all_reduce() {
    gloo::AllreduceOptions options(context_);
    with_sum(options_.type, values_.data(), [&](auto* values, Sum sum) {
      options.setOutput(values, options_.count);
      options.setReduceFunction(sum);
    });
    options.setAlgorithm(options_.algorithm == "ring" ? gloo::AllreduceOptions::Algorithm::RING
                                                      : gloo::AllreduceOptions::Algorithm::BCUBE);
    options.setTag(kTag);
    options.setTimeout(limit_);
    gloo::allreduce(options);
  }

  // Every rank sends each other rank its part, and adds up what it received at the beginning of parts_.
  // Gloo's own reduce-scatter changes values that it is still sending, and limits the kernel's socket buffer
  // to its message size, so that it waits for delayed acknowledgements.
  void reduce_scatter() {
    gloo::AlltoallOptions options(context_);
    options.setInput(reinterpret_cast<char*>(values_.data()), values_.size());
    options.setOutput(reinterpret_cast<char*>(parts_.data()), parts_.size());
    options.setTag(kTag);
    options.setTimeout(limit_);
    gloo::alltoall(options);
    const std::size_t count = options_.count / ranks_, bytes = parts_.size() / ranks_;
    with_sum(options_.type, parts_.data(), [&](auto* sums, Sum sum) {
      for (std::size_t rank = 1; rank < ranks_; ++rank) sum(sums, sums, parts_.data() + rank * bytes, count);
    });
  }

  void all_gather(std::byte* part) {
    gloo::AllgatherOptions options(context_);
    options.setInput(reinterpret_cast<char*>(part), values_.size() / ranks_);
    options.setOutput(reinterpret_cast<char*>(gathered_.data()), gathered_.size());
    options.setTag(kTag);
    options.setTimeout(limit_);
    gloo::allgather(options);
  }

  void broadcast() {
    gloo::BroadcastOptions options(context_);
    options.setOutput(reinterpret_cast<char*>(values_.data()), values_.size());
    options.setRoot(0);
    options.setTag(kTag);
    options.setTimeout(limit_);
    gloo::broadcast(options);
  }

  std::shared_ptr<gloo::Context> context_;
  ExchangeOptions options_;
  std::chrono::milliseconds limit_;
  GuardedCall call_;
  std::size_t ranks_;
  std::vector<std::byte> input_, values_, parts_, gathered_;
};

class GlooFabric final : public Fabric {
 public:
  GlooFabric(std::shared_ptr<gloo::Context> context, std::string description, std::chrono::milliseconds limit,
             GuardedCall call)
      : context_(std::move(context)),
        description_(std::move(description)),
        limit_(limit),
        call_(std::move(call)) {}

  std::string description() const override { return description_; }
  std::vector<std::string> algorithms(Operation operation) const override {
    switch (operation) {
      case Operation::all_reduce:
        return kAllReduce;
      case Operation::reduce_scatter:
      case Operation::reduce_scatter_all_gather:
        return kReduceScatter;
      case Operation::all_gather:
        return kAllGather;
      case Operation::broadcast:
        return kBroadcast;
    }
    throw InternalError("unknown operation {}", static_cast<int>(operation));
  }
  std::unique_ptr<Exchange> make_exchange(const ExchangeOptions& options) override {
    return std::make_unique<GlooExchange>(context_, options, limit_, call_);
  }

 private:
  std::shared_ptr<gloo::Context> context_;
  std::string description_;
  std::chrono::milliseconds limit_;
  GuardedCall call_;
};

}  // namespace

std::unique_ptr<Fabric> make_gloo_fabric(std::shared_ptr<gloo::Context> context, std::string description,
                                         std::chrono::milliseconds limit, GuardedCall call) {
  return std::make_unique<GlooFabric>(std::move(context), std::move(description), limit, std::move(call));
}

}  // namespace redline::comm
