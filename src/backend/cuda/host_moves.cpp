// Between host and device, by the host's clock: from the call until the bytes are there.
#include <algorithm>
#include <barrier>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cuda/host_copy.h"
#include "backend/cuda/kernels/memory_study.h"
#include "backend/cuda/memory_study.h"
#include "backend/memory_pattern.h"
#include "base/clock.h"

namespace redline::backend::cuda {
namespace {

// Threads that wait for work, so that starting them is not measured. The work must not throw on more than one
// of them; what it throws comes out of run().
class Crew {
 public:
  explicit Crew(int count) : gate_(count + 1) {
    for (int i = 0; i < count; ++i) {
      threads_.emplace_back([this, i, device = current_device()] {
        cudaSetDevice(device);
        for (;;) {
          gate_.arrive_and_wait();
          if (!work_) return;
          try {
            work_(static_cast<std::size_t>(i));
          } catch (...) {
            const std::scoped_lock lock(mutex_);
            failure_ = std::current_exception();
          }
          gate_.arrive_and_wait();
        }
      });
    }
  }
  ~Crew() {
    work_ = nullptr;
    gate_.arrive_and_wait();
  }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  void run(std::function<void(std::size_t)> work) {
    work_ = std::move(work);
    gate_.arrive_and_wait();
    gate_.arrive_and_wait();
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

 private:
  std::barrier<> gate_;
  std::function<void(std::size_t)> work_;  // empty: the end
  std::mutex mutex_;
  std::exception_ptr failure_;
  std::vector<std::jthread> threads_;
};

// Device memory to ordinary memory: while one chunk arrives, the one before is copied on.
class ChunksBack {
 public:
  explicit ChunksBack(std::size_t bytes) {
    for (Chunk& chunk : chunks_) chunk = {PinnedMemory(std::min(kCopyChunk, bytes)), make_event(false)};
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes, cudaStream_t stream) {
    std::size_t asked = 0;
    const auto ask = [&] {
      if (asked >= bytes) return;
      Chunk& chunk = chunks_[asked / kCopyChunk % 2];
      check_cuda(cudaMemcpyAsync(chunk.memory.data(), from + asked, std::min(kCopyChunk, bytes - asked),
                                 cudaMemcpyDeviceToHost, stream),
                 "copying to the host");
      check_cuda(cudaEventRecord(chunk.copied.get(), stream), "marking a copy");
      asked += kCopyChunk;
    };
    ask();
    for (std::size_t done = 0; done < bytes; done += kCopyChunk) {
      ask();  // into the other chunk
      const Chunk& chunk = chunks_[done / kCopyChunk % 2];
      check_cuda(cudaEventSynchronize(chunk.copied.get()), "waiting for a copy");
      std::memcpy(to + done, chunk.memory.data(), std::min(kCopyChunk, bytes - done));
    }
  }

 private:
  struct Chunk {
    PinnedMemory memory;
    Event copied;
  };
  Chunk chunks_[2];
};

// Moves every page to the host, as reading all of it would.
void touch(const std::byte* memory, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += kHostPage) {
    [[maybe_unused]] const volatile std::byte seen = *static_cast<const volatile std::byte*>(memory + i);
  }
}
void dirty(std::byte* memory, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += kHostPage) {
    volatile std::byte& first = *(memory + i);
    first = first;
  }
}

class HostMove final : public MemoryMove {
 public:
  HostMove(const HostTransfer& transfer, std::size_t bytes)
      : transfer_(transfer), bytes_(bytes), host_(allocate_host(transfer.memory, bytes)), device_(bytes) {
    const std::size_t part = bytes / static_cast<std::size_t>(transfer.threads) / kHostPage * kHostPage;
    for (int i = 0; i < transfer.threads; ++i) {
      const std::size_t first = static_cast<std::size_t>(i) * part;
      const std::size_t size = i + 1 == transfer.threads ? bytes - first : part;
      parts_.push_back({first, size, make_stream(), HostCopy(transfer.memory, size), nullptr});
      if (!transfer.to_device && transfer.memory == InputCopy::chunked)
        parts_.back().back = std::make_unique<ChunksBack>(size);
    }
    if (transfer.threads > 1) crew_ = std::make_unique<Crew>(transfer.threads);
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
      if (crew_)
        crew_->run([this](std::size_t i) { move(parts_[i]); });
      else
        move(parts_[0]);
      seconds += watch.seconds();
    }
    return seconds;
  }

  std::size_t wrong_words() override {
    const std::size_t words = bytes_ / sizeof(std::uint32_t);
    std::vector<std::uint32_t> got(words);
    if (transfer_.to_device)
      check_cuda(cudaMemcpy(got.data(), device_.data(), bytes_, cudaMemcpyDeviceToHost), "checking memory");
    else
      std::memcpy(got.data(), host_.get(), bytes_);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < words; ++i) wrong += got[i] == memory_word(i) ? 0U : 1U;
    return wrong;
  }

 private:
  struct Part {
    std::size_t first, bytes;
    Stream stream;
    HostCopy copy;
    std::unique_ptr<ChunksBack> back;
  };

  static void wait(const Part& part) {
    check_cuda(cudaStreamSynchronize(part.stream.get()), "waiting for a copy");
  }

  // Managed pages to the side that they are moved from.
  void put_back() {
    if (transfer_.memory != InputCopy::managed) return;
    const cudaStream_t stream = parts_[0].stream.get();
    if (transfer_.to_device) {
      prefetch(host_.get(), bytes_, /*to_device=*/false, stream);
      wait(parts_[0]);
      dirty(host_.get(), bytes_);
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
        return touch(host, part.bytes);
      case InputCopy::chunked:
        return part.back->copy(host, device, part.bytes, stream);
      default:
        check_cuda(cudaMemcpyAsync(host, device, part.bytes, cudaMemcpyDeviceToHost, stream),
                   "copying to the host");
        return wait(part);
    }
  }

  static constexpr int kManyBlocks = 1 << 16;

  HostTransfer transfer_;
  std::size_t bytes_;
  HostMemory host_;
  DeviceMemory device_;
  std::vector<Part> parts_;
  std::unique_ptr<Crew> crew_;  // none for a thread alone
};

}  // namespace

std::unique_ptr<MemoryMove> make_host_move(const HostTransfer& transfer, std::size_t bytes) {
  check_input_copy(transfer.memory);
  return std::make_unique<HostMove>(transfer, bytes);
}

}  // namespace redline::backend::cuda
