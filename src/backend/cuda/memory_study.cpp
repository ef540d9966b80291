#include "backend/cuda/memory_study.h"

#include <algorithm>
#include <variant>

#include "backend/cuda/device.h"
#include "backend/cuda/kernels/memory_study.h"
#include "backend/memory_pattern.h"
#include "base/machine.h"

namespace redline::backend::cuda {
namespace {

struct EngineCopy {};  // cudaMemcpyAsync within the device

using Recipe = std::variant<HostWay, EngineCopy, Access>;

// Within the device's memory, by the device's clock.
class DeviceMove final : public MemoryMove {
 public:
  DeviceMove(const Recipe& recipe, std::size_t bytes)
      : recipe_(recipe), bytes_(bytes), stream_(make_stream()), from_(bytes), to_(bytes), sum_(sizeof(Sum)) {
    check_cuda(cudaDeviceSynchronize(), "waiting for cleared memory");  // which no stream of ours waits for
    fill_words(from_.data(), bytes_, stream_.get());
    check_cuda(cudaMemsetAsync(to_.data(), 0xFF, bytes_, stream_.get()), "spoiling a target");
    check_cuda(cudaStreamSynchronize(stream_.get()), "filling memory");
  }

  double run(int rounds) override {
    check_cuda(cudaEventRecord(begin_.get(), stream_.get()), "timing");
    for (int round = 0; round < rounds; ++round) launch();
    check_cuda(cudaEventRecord(end_.get(), stream_.get()), "timing");
    check_cuda(cudaEventSynchronize(end_.get()), "timing");
    check_cuda(cudaGetLastError(), "moving memory");
    rounds_ += static_cast<Sum>(rounds);
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()), "timing");
    return milliseconds * 1e-3;
  }

  std::size_t wrong_words() override {
    if (access().kind == AccessKind::read) {
      Sum expected = 0;
      for (std::size_t i = 0; i < bytes_ / sizeof(std::uint32_t); ++i) expected += memory_word(i);
      return taken_sum() == expected * rounds_ ? 0 : bytes_ / sizeof(std::uint32_t);
    }
    check_cuda(cudaMemsetAsync(sum_.data(), 0, sizeof(Sum), stream_.get()), "checking memory");
    count_wrong(access(), to_.data(), bytes_, sum(), stream_.get());
    return taken_sum();
  }

 private:
  using Sum = unsigned long long;

  Access access() const {
    const auto* access = std::get_if<Access>(&recipe_);
    return access != nullptr ? *access : Access{};
  }
  void launch() {
    if (std::holds_alternative<EngineCopy>(recipe_))
      check_cuda(cudaMemcpyAsync(to_.data(), from_.data(), bytes_, cudaMemcpyDeviceToDevice, stream_.get()),
                 "copying on the device");
    else
      launch_access(access(), to_.data(), from_.data(), bytes_, sum(), stream_.get());
  }
  Sum* sum() const { return reinterpret_cast<Sum*>(sum_.data()); }
  Sum taken_sum() {
    Sum value = 0;
    check_cuda(cudaMemcpyAsync(&value, sum_.data(), sizeof value, cudaMemcpyDeviceToHost, stream_.get()),
               "checking memory");
    check_cuda(cudaStreamSynchronize(stream_.get()), "checking memory");
    return value;
  }

  Recipe recipe_;
  std::size_t bytes_;
  Stream stream_;
  Event begin_ = make_event(true), end_ = make_event(true);
  DeviceMemory from_, to_, sum_;
  Sum rounds_ = 0;
};

class CudaStudy final : public MemoryStudy {
 public:
  CudaStudy() {
    add_host(/*to_device=*/true);
    add_host(/*to_device=*/false);
    add_access();
  }

  const std::vector<MemoryMethod>& methods() const override { return methods_; }

  std::unique_ptr<MemoryMove> prepare(std::size_t method, std::size_t bytes) override {
    check(bytes > 0 && bytes % kMemoryStep == 0, "{} bytes are no size to study", bytes);
    const Recipe& recipe = recipes_.at(method);
    if (const auto* way = std::get_if<HostWay>(&recipe)) return make_host_move(*way, bytes);
    const auto* access = std::get_if<Access>(&recipe);
    if (access != nullptr && access->kind == AccessKind::bulk && !is_hopper())
      throw UnavailableError("this build uses the bulk copy engine on Hopper alone");
    return std::make_unique<DeviceMove>(recipe, bytes);
  }

 private:
  static bool is_hopper() {
    int device = 0, major = 0;
    check_cuda(cudaGetDevice(&device), "asking for the device");
    check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "asking");
    return major == 9;
  }

  void add_host(bool to_device) {
    const MemoryGroup group = to_device ? MemoryGroup::to_device : MemoryGroup::from_device;
    const auto way = [&](const std::string& name, HostWay recipe) {
      recipe.to_device = to_device;
      const bool plain = recipe.memory == InputCopy::pinned && recipe.threads == 1;
      add({group, name, recipe.threads, 1, plain}, recipe);
    };
    way("pinned", {InputCopy::pinned});
    way("pageable", {InputCopy::pageable});
    if (to_device) way("write-combined", {InputCopy::write_combined});  // a host that reads it takes for ever
    way("mapped", {InputCopy::mapped});
    HostWay faults{InputCopy::managed};
    faults.prefetch = false;
    way("managed", faults);
    way("managed, prefetched", {InputCopy::managed});
    way("chunked", {InputCopy::chunked});
    constexpr int kMostThreads = 4;
    const int threads = std::min(kMostThreads, inspect_machine().cores_allowed);
    if (threads < 2) return;
    for (const InputCopy memory : {InputCopy::pinned, InputCopy::pageable, InputCopy::chunked}) {
      HostWay several{memory};
      several.threads = threads;
      way(std::string(name_of(memory)), several);
    }
  }

  void add_access() {
    const auto own = [&](const std::string& name, double traffic, AccessKind kind, int stride = 1) {
      add({MemoryGroup::access, name, 1, traffic, kind == AccessKind::copy16}, Access{kind, stride});
    };
    add({MemoryGroup::access, "driver's copy", 1, 2, true}, EngineCopy{});
    own("coalesced, 4 bytes", 2, AccessKind::copy4);
    own("coalesced, 8 bytes", 2, AccessKind::copy8);
    own("coalesced, 16 bytes", 2, AccessKind::copy16);
    own("staged in shared memory", 2, AccessKind::staged);
    own("cp.async", 2, AccessKind::async_copy);
    own("cp.async.bulk", 2, AccessKind::bulk);
    for (const int stride : kMemoryStrides)
      own(fmt::format("strided {}", stride), 2, AccessKind::strided, stride);
    own("strided 32, staged", 2, AccessKind::strided_staged, 32);
    own("random", 2, AccessKind::random);
    own("read", 1, AccessKind::read);
    own("write", 1, AccessKind::write);
  }

  void add(MemoryMethod method, Recipe recipe) {
    methods_.push_back(std::move(method));
    recipes_.push_back(recipe);
  }

  std::vector<MemoryMethod> methods_;
  std::vector<Recipe> recipes_;  // of each
};

}  // namespace

std::shared_ptr<MemoryStudy> make_memory_study() { return std::make_shared<CudaStudy>(); }

}  // namespace redline::backend::cuda
