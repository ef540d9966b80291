#include "backend/cuda/nccl.h"

#include <array>
#include <string_view>
#include <utility>

#include "backend/cuda/device.h"
#include "base/shared_library.h"

namespace redline::backend::cuda {
namespace {

constexpr int kSuccess = 0, kInProgress = 7;
constexpr int kSum = 0, kAverage = 4;
constexpr int kFloat16 = 6, kFloat32 = 7, kBfloat16 = 9;

// The key that rank 0 makes and all others join with.
struct UniqueId {
  std::array<char, 128> bytes{};
};

int nccl_type(graph::DType dtype) { return name_in_library(dtype, kFloat32, kFloat16, kBfloat16); }

}  // namespace

struct Nccl::Functions {
  SharedLibrary library{"libnccl.so.2"};
  int (*version)(int* version) = function("ncclGetVersion");
  int (*unique_id)(UniqueId* id) = function("ncclGetUniqueId");
  int (*init_rank)(void** comm, int ranks, UniqueId id, int rank) = function("ncclCommInitRank");
  int (*abort)(void* comm) = function("ncclCommAbort");
  int (*async_error)(void* comm, int* error) = function("ncclCommGetAsyncError");
  int (*group_start)() = function("ncclGroupStart");
  int (*group_end)() = function("ncclGroupEnd");
  int (*all_reduce)(const void* from, void* to, std::size_t count, int type, int op, void* comm,
                    cudaStream_t stream) = function("ncclAllReduce");
  int (*reduce_scatter)(const void* from, void* to, std::size_t part, int type, int op, void* comm,
                        cudaStream_t stream) = function("ncclReduceScatter");
  int (*all_gather)(const void* from, void* to, std::size_t part, int type, void* comm,
                    cudaStream_t stream) = function("ncclAllGather");
  int (*broadcast)(const void* from, void* to, std::size_t count, int type, int root, void* comm,
                   cudaStream_t stream) = function("ncclBroadcast");
  const char* (*error_text)(int result) = function("ncclGetErrorString");
  const char* (*last_error)(void* comm) = function("ncclGetLastError");

 private:
  SharedLibrary::Symbol function(const char* name) const {
    return library.need(name,
                        "several ranks on GPUs need NCCL 2.18 or newer; install it, or the Python "
                        "package nvidia-nccl-cu13");
  }
};

Nccl::Nccl(std::shared_ptr<comm::Communicator> control)
    : control_(std::move(control)), functions_(std::make_unique<Functions>()) {
  int number = 0;
  check(functions_->version(&number), "querying its version");
  version_ = fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
  UniqueId id;
  if (control_->rank() == 0) check(functions_->unique_id(&id), "making a key");
  control_->broadcast(std::as_writable_bytes(std::span(id.bytes)), 0);
  check(functions_->init_rank(&comm_, ranks(), id, control_->rank()), "connecting the ranks");
}

Nccl::~Nccl() {
  // A job that ends well has nothing in flight; one that fails must not wait for a peer that is gone.
  if (comm_ != nullptr) functions_->abort(comm_);
  if (aborting_.joinable()) aborting_.join();
}

void Nccl::abort() {
  // NCCL ends its kernels at once, but does not return before the last graph that holds one is destroyed: by
  // whoever unwinds after this.
  if (void* comm = std::exchange(comm_, nullptr); comm != nullptr)
    aborting_ = std::thread([this, comm] { functions_->abort(comm); });
}

void Nccl::await(const std::function<bool()>& done) {
  try {
    control_->wait("a step", [&] {
      if (done()) return true;
      if (comm_ == nullptr) throw UnavailableError("NCCL's work was aborted");
      int error = kSuccess;
      check(functions_->async_error(comm_, &error), "querying its state");
      check(error, "an all-reduce");
      return false;
    });
  } catch (...) {
    abort();
    throw;
  }
}

void Nccl::check(int result, const char* what) const {
  if (result == kSuccess || result == kInProgress) return;
  const char* last = functions_->last_error(comm_);
  const std::string_view detail = last == nullptr ? "" : last;
  throw UnavailableError("NCCL failed in {}: {}{}{}; {}", what, functions_->error_text(result),
                         detail.empty() ? "" : ": ", detail,
                         detail.find("Duplicate GPU") == detail.npos
                             ? "NCCL_DEBUG=INFO tells more"
                             : "two ranks chose the same GPU: start no more ranks than there are GPUs");
}

void Nccl::all_reduce(std::span<const ReduceRange> ranges, Reduce how, cudaStream_t stream) const {
  const int op = how == Reduce::sum ? kSum : kAverage;
  check(functions_->group_start(), "beginning an all-reduce");
  for (const ReduceRange& range : ranges) {
    check(functions_->all_reduce(range.values, range.values, range.count, nccl_type(range.dtype), op, comm_,
                                 stream),
          "an all-reduce");
  }
  check(functions_->group_end(), "an all-reduce");
}

void Nccl::exchange(comm::Operation operation, const ReduceRange& range, cudaStream_t stream) const {
  const std::size_t part = range.count / static_cast<std::size_t>(ranks());
  std::byte* const own =
      range.values + static_cast<std::size_t>(control_->rank()) * part * size_of(range.dtype);
  const int type = nccl_type(range.dtype);
  const auto scatter = [&] {
    check(functions_->reduce_scatter(range.values, own, part, type, kSum, comm_, stream), "a reduce-scatter");
  };
  const auto gather = [&] {
    check(functions_->all_gather(own, range.values, part, type, comm_, stream), "an all-gather");
  };
  switch (operation) {
    case comm::Operation::all_reduce:
      return check(functions_->all_reduce(range.values, range.values, range.count, type, kSum, comm_, stream),
                   "an all-reduce");
    case comm::Operation::reduce_scatter:
      return scatter();
    case comm::Operation::all_gather:
      return gather();
    case comm::Operation::reduce_scatter_all_gather:
      scatter();
      return gather();
    case comm::Operation::broadcast:
      return check(functions_->broadcast(range.values, range.values, range.count, type, 0, comm_, stream),
                   "a broadcast");
  }
}

}  // namespace redline::backend::cuda
