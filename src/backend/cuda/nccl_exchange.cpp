// NCCL's collectives as exchanges for benchmarks, and the entry point that the program looks up for them.
#include <utility>

#include "backend/cuda/device.h"
#include "backend/cuda/nccl.h"
#include "backend/cuda_plugin.h"
#include "base/process.h"
#include "comm/exchange.h"

namespace redline::backend {
namespace {

using namespace cuda;

graph::DType dtype_of(comm::Type type) {
  if (type == comm::Type::f32) return graph::DType::f32;
  if (type == comm::Type::f16) return graph::DType::f16;
  if (type == comm::Type::bf16) return graph::DType::bf16;
  throw UnavailableError("GPUs exchange fp32, fp16 or bf16");
}

class NcclExchange final : public comm::Exchange {
 public:
  NcclExchange(Nccl& nccl, const comm::Communicator& control, comm::ExchangeOptions options)
      : nccl_(nccl),
        options_(std::move(options)),
        rank_(control.rank()),
        dtype_(dtype_of(options_.type)),
        input_(options_.count * size_of(dtype_)),
        values_(input_.size()) {}

  void fill(std::span<const std::byte> values) override {
    check(values.size() == input_.size(), "{} bytes for an exchange of {}", values.size(), input_.size());
    // On the stream that reads them: a plain copy of few bytes returns before they are there, and that stream
    // does not wait for it.
    copy_async(input_.data(), values.data(), values.size(), stream_.get());
    wait_for(stream_.get());
  }

  std::vector<double> run(int repetitions) override {
    const ReduceRange range{values_.data(), options_.count, dtype_};
    std::vector<std::pair<Event, Event>> marks;
    for (int i = 0; i < repetitions; ++i) {
      copy_async(values_.data(), input_.data(), input_.size(), stream_.get());
      auto& [begin, end] = marks.emplace_back(make_event(true), make_event(true));
      record(begin, stream_.get());
      nccl_.exchange(options_.operation, range, stream_.get());
      record(end, stream_.get());
    }
    // With a time limit: NCCL's kernels wait for their peers for ever.
    const Event done = recorded(stream_.get());
    nccl_.await([&] { return has_come(done); });
    std::vector<double> seconds;
    for (const auto& [begin, end] : marks) seconds.push_back(seconds_between(begin, end));
    return seconds;
  }

  void read(std::span<std::byte> values) const override {
    const bool part = options_.operation == comm::Operation::reduce_scatter;
    const std::size_t offset = part ? values.size() * static_cast<std::size_t>(rank_) : 0;
    check(offset + values.size() <= values_.size(), "{} bytes of an exchange of {}", values.size(),
          values_.size());
    download(values.data(), values_.data() + offset, values.size());
  }

 private:
  Nccl& nccl_;
  comm::ExchangeOptions options_;
  int rank_;
  graph::DType dtype_;
  DeviceMemory input_, values_;
  Stream stream_ = make_stream();
};

class NcclFabric final : public comm::Fabric {
 public:
  explicit NcclFabric(const FabricOptions& options)
      : control_(options.communicator), topology_(options.topology) {
    cudaDeviceProp properties{};
    check_cuda(cudaGetDeviceProperties(&properties, take_device(control_.get())), "querying the device");
    connect("auto");
    description_ = fmt::format("NCCL {}, {}", nccl_->version(), properties.name);
  }

  std::string description() const override { return description_; }

  // By operation, as in NCCL's documentation; NCCL itself says which of them it supports on a machine.
  std::vector<std::string> algorithms(comm::Operation operation) const override {
    std::vector<std::string> names = {"auto", "ring/ll", "ring/ll128", "ring/simple"};
    const auto add = [&](std::initializer_list<const char*> more) {
      names.insert(names.end(), more.begin(), more.end());
    };
    if (operation == comm::Operation::all_reduce)
      add({"tree/ll", "tree/ll128", "tree/simple", "nvls/simple", "nvlstree/simple"});
    else if (operation != comm::Operation::broadcast)
      add({"pat/simple", "nvls/simple"});
    return names;
  }

  std::unique_ptr<comm::Exchange> make_exchange(const comm::ExchangeOptions& options) override {
    connect(options.algorithm);
    return std::make_unique<NcclExchange>(*nccl_, *control_, options);
  }

 private:
  // NCCL reads its variables when a communicator is made, so each algorithm gets a communicator of its own.
  void connect(const std::string& algorithm) {
    if (nccl_ != nullptr && algorithm == algorithm_) return;
    nccl_.reset();
    algorithm_ = algorithm;
    const std::size_t slash = algorithm.find('/');
    const bool automatic = slash == std::string::npos;
    const std::string topology = std::exchange(topology_, {});  // saved once, by the first
    const ScopedEnvironment environment(
        {{"NCCL_ALGO", automatic ? "" : algorithm.substr(0, slash)},
         {"NCCL_PROTO", automatic ? "" : algorithm.substr(slash + 1)},
         {"NCCL_TOPO_DUMP_FILE", topology},
         {"NCCL_GRAPH_DUMP_FILE", topology.empty() ? "" : topology + ".graphs"}});
    nccl_ = std::make_unique<Nccl>(control_);
  }

  std::shared_ptr<comm::Communicator> control_;
  std::string topology_, description_, algorithm_;
  std::unique_ptr<Nccl> nccl_;
};

}  // namespace
}  // namespace redline::backend

extern "C" __attribute__((visibility("default"))) redline::comm::Fabric* redline_make_cuda_fabric(
    const redline::backend::FabricOptions* options) {
  return new redline::backend::NcclFabric(*options);
}
