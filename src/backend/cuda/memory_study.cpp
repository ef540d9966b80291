// The memory study of a GPU: methods of copying to and from the current device, and the orders in which its
// kernels access its memory.
#include <algorithm>
#include <barrier>
#include <future>
#include <variant>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/host_copy.h"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/memory_study.h"
#include "backend/cuda_plugin.h"
#include "backend/input_copy.h"
#include "backend/memory_pattern.h"
#include "backend/memory_study.h"
#include "base/clock.h"
#include "base/machine.h"

namespace redline::backend::cuda {
namespace {

// A copy between host and device: a method that training uses, or a variant that only the study has.
struct HostTransfer {
  InputCopy memory = InputCopy::pinned;
  bool to_device = true;
  bool prefetch = true;  // managed memory: moved at once, or page by page as it is touched
  int threads = 1;       // each with a part of the bytes and a stream of its own
};

// Moves every page to the host, as reading or writing all of it would.
void touch(volatile std::byte* memory, std::size_t bytes, bool write) {
  for (std::size_t i = 0; i < bytes; i += kHostPage) {
    const std::byte seen = memory[i];
    if (write) memory[i] = seen;
  }
}

// A copy between host and device, timed by the host's clock from the call until the bytes have arrived.
class HostMove final : public MemoryMove {
 public:
  HostMove(const HostTransfer& transfer, std::size_t bytes)
      : transfer_(transfer), bytes_(bytes), host_(allocate_host(transfer.memory, bytes)), device_(bytes) {
    const std::size_t part = bytes / static_cast<std::size_t>(transfer.threads) / kHostPage * kHostPage;
    for (int i = 0; i < transfer.threads; ++i) {
      const std::size_t first = static_cast<std::size_t>(i) * part;
      const std::size_t size = i + 1 == transfer.threads ? bytes - first : part;
      parts_.push_back({first, size, make_stream(), HostCopy(transfer.memory, size)});
    }
    auto* words = reinterpret_cast<std::uint32_t*>(host_.get());
    for (std::size_t i = 0; i < bytes / sizeof(std::uint32_t); ++i)
      words[i] = transfer.to_device ? memory_word(i) : 0xFFFFFFFF;
    check_cuda(cudaDeviceSynchronize(), "waiting for cleared memory");  // which no stream of ours waits for
    const cudaStream_t stream = parts_[0].stream.get();
    if (transfer.to_device)
      check_cuda(cudaMemsetAsync(device_.data(), 0xFF, bytes, stream), "spoiling a target");
    else
      fill_words(device_.data(), bytes, stream);
    wait(parts_[0]);
  }

  double run(int rounds) override {
    double seconds = 0;
    for (int round = 0; round < rounds; ++round) {
      put_back();
      const Stopwatch watch;
      if (transfer_.threads == 1) move(parts_[0]);
      seconds += transfer_.threads == 1 ? watch.seconds() : move_by_threads();
    }
    return seconds;
  }

  std::size_t wrong_words() override {
    const std::size_t words = bytes_ / sizeof(std::uint32_t);
    std::vector<std::uint32_t> got(words);
    download(got.data(), transfer_.to_device ? device_.data() : host_.get(), bytes_);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < words; ++i) wrong += got[i] == memory_word(i) ? 0U : 1U;
    return wrong;
  }

 private:
  struct Part {
    std::size_t first, bytes;
    Stream stream;
    HostCopy copy;
  };

  static void wait(const Part& part) { wait_for(part.stream.get()); }

  // Managed pages to the side that they are moved from.
  void put_back() {
    if (transfer_.memory != InputCopy::managed) return;
    const cudaStream_t stream = parts_[0].stream.get();
    if (transfer_.to_device) {
      prefetch(host_.get(), bytes_, /*to_device=*/false, stream);
      wait(parts_[0]);
      touch(host_.get(), bytes_, /*write=*/true);
    } else {
      prefetch(host_.get(), bytes_, /*to_device=*/true, stream);
      copy_bytes(host_.get(), device_.data(), bytes_, kManyBlocks, stream);
      wait(parts_[0]);
    }
  }

  void move(Part& part) {
    std::byte* const host = host_.get() + part.first;
    std::byte* const device = device_.data() + part.first;
    const cudaStream_t stream = part.stream.get();
    const bool faults = transfer_.memory == InputCopy::managed && !transfer_.prefetch;
    if (transfer_.to_device) {
      if (faults)
        copy_bytes(device, host, part.bytes, kManyBlocks, stream);
      else
        part.copy.start(device, host, part.bytes, stream);
      return wait(part);
    }
    switch (transfer_.memory) {
      case InputCopy::mapped:
        copy_bytes(host, device, part.bytes, kBusBlocks, stream);
        return wait(part);
      case InputCopy::managed:
        if (transfer_.prefetch) prefetch(host, part.bytes, /*to_device=*/false, stream);
        wait(part);
        return touch(host, part.bytes, /*write=*/false);
      case InputCopy::chunked:
        return part.copy.copy_back(host, device, part.bytes, stream);
      default:
        copy_async(host, device, part.bytes, stream);
        return wait(part);
    }
  }

  // The seconds that it took. The threads wait at a gate, so that starting them is not measured.
  double move_by_threads() {
    std::barrier gate(transfer_.threads + 1);
    std::vector<std::future<void>> moves;
    for (Part& part : parts_) {
      moves.push_back(std::async(std::launch::async, [&, own = &part, device = current_device()] {
        cudaSetDevice(device);
        gate.arrive_and_wait();
        move(*own);
      }));
    }
    gate.arrive_and_wait();
    const Stopwatch watch;
    for (const std::future<void>& one : moves) one.wait();
    const double seconds = watch.seconds();
    for (std::future<void>& one : moves) one.get();
    return seconds;
  }

  static constexpr int kManyBlocks = 1 << 16;

  HostTransfer transfer_;
  std::size_t bytes_;
  HostMemory host_;
  DeviceMemory device_;
  std::vector<Part> parts_;
};

using Recipe = std::variant<HostTransfer, Access>;

// Arrays of a chain: when one is written again, the cache has seen several times what it holds.
std::size_t arrays_of_chain(std::size_t bytes) {
  constexpr std::size_t kTimes = 4;
  const auto cache = static_cast<std::size_t>(device_attribute(cudaDevAttrL2CacheSize));
  return 2 + kTimes * cache / bytes;
}

// Within the device's memory, by the device's clock: from the first array to the second, or in a chain from
// each to the next and from the last to the first.
class DeviceMove final : public MemoryMove {
 public:
  DeviceMove(const Access& access, std::size_t bytes, bool chain)
      : access_(access),
        bytes_(bytes),
        arrays_(chain ? arrays_of_chain(bytes) : 2),
        chain_(chain),
        memory_(bytes * arrays_) {
    check_cuda(cudaDeviceSynchronize(), "waiting for cleared memory");  // which no stream of ours waits for
    fill_words(memory_.data(), bytes_, stream_.get());
    check_cuda(cudaMemsetAsync(array(1), 0xFF, memory_.size() - bytes_, stream_.get()), "spoiling targets");
    wait_for(stream_.get());
  }

  double run(int rounds) override {
    return timer_.seconds(stream_.get(), [&] {
      for (int round = 0; round < rounds; ++round) launch();
    });
  }

  // As ops of a step: all are queued before the first runs, another copy is before it, and a mark is between
  // any two.
  std::vector<double> run_each(int rounds) override {
    constexpr int kQueued = 32;  // far from what a stream holds
    std::vector<double> seconds;
    while (static_cast<int>(seconds.size()) < rounds) {
      const int count = std::min(rounds - static_cast<int>(seconds.size()), kQueued);
      std::vector<double> times = run_queued(count);
      // If the host was too slow, there are gaps: repeat with more time for it.
      for (; times.empty(); times = run_queued(count)) held_ *= 2;
      seconds.insert(seconds.end(), times.begin(), times.end());
    }
    return seconds;
  }

  std::size_t wrong_words() override {
    if (access_.kind == AccessKind::read) {
      Sum expected = 0;
      for (std::size_t i = 0; i < bytes_ / sizeof(std::uint32_t); ++i) expected += memory_word(i);
      return taken_sum() == expected * rounds_ ? 0 : bytes_ / sizeof(std::uint32_t);
    }
    check_cuda(cudaMemsetAsync(sum_.data(), 0, sizeof(Sum), stream_.get()), "checking memory");
    count_wrong(access_, array(chain_ ? at_ : 1), bytes_, sum(), stream_.get());
    return taken_sum();
  }

 private:
  using Sum = unsigned long long;

  std::byte* array(std::size_t i) const { return memory_.data() + i * bytes_; }
  void launch() {
    const std::size_t next = (at_ + 1) % arrays_;
    launch_access(access_, array(next), array(at_), bytes_, sum(), stream_.get());
    if (chain_) at_ = next;
    ++rounds_;
  }
  // Empty when the device was done with the hold before all was queued, unless it was held very long.
  std::vector<double> run_queued(int count) {
    constexpr std::uint64_t kLongest = 1'000'000'000;  // nanoseconds
    std::vector<Event> marks;
    for (int i = 0; i <= count; ++i) marks.push_back(make_event(true));
    hold(held_, stream_.get());
    for (const Event& mark : marks) {
      launch();
      record(mark, stream_.get());
    }
    check_cuda(cudaGetLastError(), "moving memory");
    const bool ahead = !has_come(marks.front());
    wait_for(stream_.get());
    std::vector<double> seconds;
    if (!ahead && held_ < kLongest) return seconds;
    for (std::size_t i = 1; i < marks.size(); ++i) seconds.push_back(seconds_between(marks[i - 1], marks[i]));
    return seconds;
  }
  Sum* sum() const { return reinterpret_cast<Sum*>(sum_.data()); }
  Sum taken_sum() {
    Sum value = 0;
    copy_async(&value, sum_.data(), sizeof value, stream_.get());
    wait_for(stream_.get());
    return value;
  }

  Access access_;
  std::size_t bytes_, arrays_;
  bool chain_;
  Stream stream_ = make_stream();
  DeviceTimer timer_;
  DeviceMemory memory_;  // the arrays side by side
  DeviceMemory sum_{sizeof(Sum)};
  std::size_t at_ = 0;  // the array that is read next
  Sum rounds_ = 0;
  std::uint64_t held_ = 500'000;  // nanoseconds that the device waits while rounds are queued
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
    check(bytes > 0 && bytes % kMemoryStep == 0, "{} bytes cannot be studied", bytes);
    const Recipe& recipe = recipes_.at(method);
    if (const auto* transfer = std::get_if<HostTransfer>(&recipe)) {
      check_input_copy(transfer->memory);
      return std::make_unique<HostMove>(*transfer, bytes);
    }
    const Access& access = std::get<Access>(recipe);
    if (access.kind == AccessKind::bulk && !has_hopper_kernels())
      throw UnavailableError("TMA needs a Hopper GPU, and a build with code for 90a");
    if (access.kind == AccessKind::async_copy && !has_ampere_code())
      throw UnavailableError("cp.async needs compute capability 8.0, and a build with code for it");
    return std::make_unique<DeviceMove>(access, bytes, /*chain=*/false);
  }

  std::unique_ptr<MemoryMove> prepare_chain(std::size_t method, std::size_t bytes) override {
    check(bytes > 0 && bytes % kMemoryStep == 0, "{} bytes cannot be studied", bytes);
    const MemoryMethod& copy = methods_.at(method);
    check(copy.plain && copy.group == MemoryGroup::access, "'{}' is not a plain copy", copy.name);
    return std::make_unique<DeviceMove>(std::get<Access>(recipes_[method]), bytes, /*chain=*/true);
  }

 private:
  void add_host(bool to_device) {
    const MemoryGroup group = to_device ? MemoryGroup::to_device : MemoryGroup::from_device;
    const auto transfer = [&](const std::string& name, HostTransfer recipe) {
      recipe.to_device = to_device;
      const bool plain = recipe.memory == InputCopy::pinned && recipe.threads == 1;
      add({group, name, recipe.threads, 1, plain}, recipe);
    };
    transfer("pinned", {InputCopy::pinned});
    transfer("pageable", {InputCopy::pageable});
    if (to_device)
      transfer("write-combined", {InputCopy::write_combined});  // a host that reads it takes for ever
    transfer("mapped", {InputCopy::mapped});
    transfer("managed", {.memory = InputCopy::managed, .prefetch = false});
    transfer("managed, prefetched", {InputCopy::managed});
    transfer("chunked", {InputCopy::chunked});
    constexpr int kMostThreads = 4;
    const int threads = std::min(kMostThreads, inspect_machine().cores_allowed);
    if (threads < 2) return;
    for (const InputCopy memory : {InputCopy::pinned, InputCopy::pageable, InputCopy::chunked})
      transfer(std::string(name_of(memory)), {.memory = memory, .threads = threads});
  }

  void add_access() {
    const auto own = [&](const std::string& name, double traffic, AccessKind kind, int stride = 1) {
      const bool plain = kind == AccessKind::driver || kind == AccessKind::copy16;
      add({MemoryGroup::access, name, 1, traffic, plain}, Access{kind, stride});
    };
    own("driver's copy", 2, AccessKind::driver);
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

}  // namespace redline::backend::cuda

extern "C" __attribute__((visibility("default"))) redline::backend::MemoryStudy*
redline_make_cuda_memory_study(const redline::backend::DeviceOptions* options) {
  redline::backend::cuda::take_device(nullptr, redline::backend::gpu_number(options->device));
  return new redline::backend::cuda::CudaStudy();
}
