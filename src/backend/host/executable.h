// Shared by all backends on the host: the State, and the loop over a plan's ops. A backend adds the execution
// of one op.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/host/collectives.h"
#include "backend/host/memory.h"
#include "backend/placed_tensors.h"
#include "backend/stored_state.h"

namespace redline::backend {

class HostState final : public StoredState<StateEntry<HostMemory>> {
 public:
  void read(const std::string& name, std::span<float> values) const override;
  void write(const std::string& name, std::span<const float> values) override;
  void swap(std::span<const NamePair> pairs) override;
  std::unique_ptr<StateCopy> make_copy() override;

  WorkMemory<HostMemory> arena, gradients;  // of the executables
};

class HostExecutable : public Executable {
 public:
  // Uses `communicator`, `stop` and `stop_grace` of the options. Throws InternalError if the state was made
  // by another backend.
  HostExecutable(std::shared_ptr<const plan::Plan> plan, const std::shared_ptr<State>& state,
                 const DeviceOptions& options);

  const plan::Plan& plan() const final { return *plan_; }
  void write_input(graph::TensorId id, const void* data, std::size_t bytes, Lease lease) final;
  void run(Section section, std::vector<OpTime>* times) override;
  void refuse() final;
  void read(graph::TensorId id, std::span<float> values) const final;
  void write(graph::TensorId id, std::span<const float> values) final;
  void request_metrics() final;
  std::optional<Metrics> take_metrics(bool wait) final;
  ExecutableMemory memory() const override;

 protected:
  // A position in plan().graph().ops(), of any kind but all_reduce.
  virtual void execute(std::size_t op) = 0;
  Collectives* collectives() const { return collectives_.get(); }  // null: alone
  // The address of a tensor; null for kNone and for tensors that the plan does not keep.
  std::byte* address(graph::TensorId id) const { return tensors_.find(id); }

 private:
  void run_ops(Section section, std::vector<OpTime>* times);
  void execute_any(std::size_t op, bool whole_step);
  bool should_abandon(std::size_t op);
  [[noreturn]] void abandon();

  std::shared_ptr<const plan::Plan> plan_;
  std::shared_ptr<HostState> state_;
  PlacedTensors<HostMemory> tensors_;
  Metrics::Time begin_{}, end_{};       // of the last run
  std::chrono::nanoseconds exposed_{};  // waiting for other ranks, in it
  std::deque<Metrics> metrics_;         // requested and not taken
  const std::function<bool()> stop_;
  const std::chrono::milliseconds stop_grace_;
  std::optional<Metrics::Time> asked_to_stop_;
  bool refusing_ = false;
  std::unique_ptr<Collectives> collectives_;
};

}  // namespace redline::backend
