// A run's persistent tensors on the device, what its executables share, and the order in which they use it.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/stored_state.h"
#include "backend/work_memory.h"

namespace redline::backend::cuda {

// Matrices and filters also have copies in the type that kernels read; the optimizer keeps them up to date.
struct CudaEntry : StateEntry<DeviceMemory> {
  std::map<graph::DType, DeviceMemory> copies;
};

class CudaState final : public StoredState<CudaEntry> {
 public:
  void read(const std::string& name, std::span<float> values) const override;
  void write(const std::string& name, std::span<const float> values) override;
  void swap(std::span<const NamePair> pairs) override;
  std::unique_ptr<StateCopy> make_copy() override;

  // The tensor in the type that kernels read; the master itself for fp32.
  std::byte* copy(const std::string& name, graph::DType dtype);
  std::size_t copy_bytes() const;

  // Called before and after an executable queues a run: the run waits for the last run of another executable,
  // and for a copy in progress.
  void before_run(cudaStream_t stream);
  void after_run(cudaStream_t stream);

  WorkMemory<DeviceMemory> arena, gradients;  // of the executables

 private:
  friend class CudaStateCopy;
  friend class StateBackup;

  static void refresh(const CudaEntry& entry);  // its copies, on the default stream

  Event ran_ = make_event(false);     // after the last run
  cudaStream_t last_ = nullptr;       // the stream of the last run
  Event copied_ = make_event(false);  // after the last copy
  bool copying_ = false;              // no run waits for that copy yet
};

// All of a state as it is now, on the device, to undo runs with.
class StateBackup {
 public:
  explicit StateBackup(CudaState& state);   // waits for the device
  void restore(cudaStream_t stream) const;  // queues it

 private:
  std::vector<std::pair<std::byte*, DeviceMemory>> parts_;  // original and copy
};

}  // namespace redline::backend::cuda
