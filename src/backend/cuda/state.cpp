#include "backend/cuda/state.h"

#include <algorithm>
#include <utility>

#include "backend/stored_copy.h"

namespace redline::backend::cuda {

// In page-locked memory. The next step waits for the copy: a few milliseconds for ResNet-50.
class CudaStateCopy final : public StoredCopy<PinnedMemory> {
 public:
  explicit CudaStateCopy(CudaState& state) : StoredCopy(state.entries()), state_(state) {}

  void take() override {
    follow(stream_.get(), state_.ran_);
    for (const auto& [name, item] : items()) {
      copy_async(target(item), item.source, item.bytes, stream_.get());
    }
    record(state_.copied_, stream_.get());
    record(done_, stream_.get());
    state_.copying_ = true;
  }

  void read(const std::string& name, std::span<float> values) const override {
    check_cuda(cudaSetDevice(device_), "choosing the device");  // of this thread
    wait_for(done_);
    StoredCopy::read(name, values);
  }

 private:
  CudaState& state_;
  int device_ = current_device();
  Stream stream_ = make_stream();
  Event done_ = make_event(false);
};

void CudaState::read(const std::string& name, std::span<float> values) const {
  const CudaEntry& from = entry(name);
  std::vector<std::byte> host(from.memory.size());
  check_cuda(cudaDeviceSynchronize(), "waiting for the device");
  download(host.data(), from.memory.data(), host.size());
  plan::load(from.tensor, from.layout, host.data(), values);
}

void CudaState::write(const std::string& name, std::span<const float> values) {
  const CudaEntry& to = entry(name);
  std::vector<std::byte> host(to.memory.size());
  plan::store(to.tensor, to.layout, values, host.data());
  check_cuda(cudaDeviceSynchronize(), "waiting for the device");
  upload(to.memory.data(), host);
  refresh(to);
  check_cuda(cudaDeviceSynchronize(), "copying weights");
}

void CudaState::swap(std::span<const NamePair> pairs) {
  if (pairs.empty()) return;
  std::size_t largest = 0;
  for (const auto& [first, second] : pairs) largest = std::max(largest, entry(first).memory.size());
  const DeviceMemory aside(largest);
  check_cuda(cudaDeviceSynchronize(), "waiting for the device");
  for (const auto& [first, second] : pairs) {
    const auto [a, b] = same_form(first, second);
    const std::size_t bytes = a->memory.size();
    copy_async(aside.data(), a->memory.data(), bytes, nullptr);
    copy_async(a->memory.data(), b->memory.data(), bytes, nullptr);
    copy_async(b->memory.data(), aside.data(), bytes, nullptr);
    refresh(*a);
    refresh(*b);
  }
  check_cuda(cudaDeviceSynchronize(), "swapping tensors");
}

std::unique_ptr<StateCopy> CudaState::make_copy() { return std::make_unique<CudaStateCopy>(*this); }

std::byte* CudaState::copy(const std::string& name, graph::DType dtype) {
  CudaEntry& found = entry(name);
  if (dtype == graph::DType::f32) return found.memory.data();
  DeviceMemory& copy = found.copies[dtype];
  if (copy.size() == 0) {
    copy = DeviceMemory(found.memory.size() / sizeof(float) * graph::size_of(dtype));
    refresh(found);
    check_cuda(cudaDeviceSynchronize(), "copying weights");
  }
  return copy.data();
}

std::size_t CudaState::copy_bytes() const {
  std::size_t sum = 0;
  for (const auto& [name, held] : entries()) {
    for (const auto& [dtype, copy] : held.copies) sum += copy.size();
  }
  return sum;
}

void CudaState::before_run(cudaStream_t stream) {
  if (last_ != nullptr && last_ != stream) follow(stream, ran_);
  // Once is enough: later runs on another stream wait for this one.
  if (std::exchange(copying_, false)) follow(stream, copied_);
}

void CudaState::after_run(cudaStream_t stream) {
  record(ran_, stream);
  last_ = stream;
}

void CudaState::refresh(const CudaEntry& entry) {
  for (const auto& [dtype, copy] : entry.copies) {
    cast(type_of(dtype), static_cast<std::int64_t>(entry.memory.size() / sizeof(float)),
         reinterpret_cast<const float*>(entry.memory.data()), copy.data(), nullptr);
  }
}

StateBackup::StateBackup(CudaState& state) {
  const auto add = [this](const DeviceMemory& memory) {
    auto& [original, copy] = parts_.emplace_back(memory.data(), DeviceMemory(memory.size()));
    copy_async(copy.data(), original, memory.size(), nullptr);
  };
  check_cuda(cudaDeviceSynchronize(), "waiting for the device");
  for (const auto& [name, held] : state.entries()) {
    add(held.memory);
    for (const auto& [dtype, copy] : held.copies) add(copy);
  }
  check_cuda(cudaDeviceSynchronize(), "copying the state");
}

void StateBackup::restore(cudaStream_t stream) const {
  for (const auto& [original, copy] : parts_) copy_async(original, copy.data(), copy.size(), stream);
}

}  // namespace redline::backend::cuda
