#include "backend/cuda/step.h"

#include <cublas_v2.h>

#include <utility>

#include "base/error.h"

namespace redline::backend::cuda {
namespace {

constexpr std::size_t kBlasWork = std::size_t{32} << 20;

// Frees the old memory first: there may not be enough for both.
void grow(DeviceMemory& memory, std::size_t bytes) {
  if (memory.size() >= bytes) return;
  memory = DeviceMemory();
  memory = DeviceMemory(bytes);
}

}  // namespace

void check_blas(int status) {
  check(status == CUBLAS_STATUS_SUCCESS, "cuBLAS failed: {}",
        cublasGetStatusString(static_cast<cublasStatus_t>(status)));
}

void WorkSpace::allocate() { grow(memory_, bytes_); }

Shared::Shared(ConvLibrary& convs, const cudaDeviceProp& device, bool tf32, std::shared_ptr<const Nccl> nccl)
    : convs_(convs),
      device_(device),
      nccl_(std::move(nccl)),
      counters_(kReduceCounters * sizeof(unsigned)),
      blas_work_(kBlasWork) {
  cublasHandle_t handle = nullptr;
  check_blas(cublasCreate(&handle));
  blas_.reset(handle, cublasDestroy);
  if (tf32) check_blas(cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH));
  // With a work space of its own, cuBLAS can be captured and is deterministic.
  check_blas(cublasSetWorkspace(handle, blas_work_.data(), blas_work_.size()));
}

std::optional<std::size_t> Shared::need_own(std::size_t bytes) {
  constexpr std::size_t kMost = std::size_t{4} << 20, kMostOfAll = std::size_t{64} << 20;
  const std::size_t offset = own_bytes_, rounded = (bytes + 255) / 256 * 256;
  if (bytes > kMost || offset + rounded > kMostOfAll) return std::nullopt;
  own_bytes_ += rounded;
  return offset;
}

void Shared::allocate() {
  work_.allocate();
  side_work_.allocate();
  grow(own_, own_bytes_);
}

void Shared::clear() {
  work_ = WorkSpace();
  side_work_ = WorkSpace();
  forget_own();
  own_ = DeviceMemory();
}

ReduceSpace Shared::reduce_space() const {
  return {reinterpret_cast<float*>(work_.data()), reinterpret_cast<unsigned*>(counters_.data())};
}

GroupView GroupView::part(const std::vector<OpKind>& kinds) const {
  plan::Group part;
  for (const OpKind kind : kinds) {
    if (has(kind)) part.ops.push_back(find(kind));
  }
  return {plan_, std::move(part), places_};
}

GroupView GroupView::part(const OpView& op) const {
  return {plan_, {.ops = {static_cast<int>(&op.op() - plan_.graph().ops().data())}}, places_};
}

OpView GroupView::op(OpKind kind) const {
  const int position = find(kind);
  check(position >= 0, "group '{}' has no {}", group_.name, name_of(kind));
  return view(position);
}

std::vector<OpView> GroupView::ops() const {
  std::vector<OpView> views;
  for (const int position : group_.ops) views.push_back(view(position));
  return views;
}

std::byte* GroupView::weights(const OpView& op) const {
  using graph::operands::Conv;  // the same positions in its gradients and in linear layers
  return places_.weights(op.op().inputs[Conv::w], op.in_tensor(Conv::x).dtype);
}

int GroupView::find(OpKind kind) const {
  for (const auto* positions : {&group_.ops, &group_.recomputes}) {
    for (const int position : *positions) {
      if (plan_.graph().ops()[static_cast<std::size_t>(position)].kind == kind) return position;
    }
  }
  return -1;
}

OpView GroupView::view(int position) const {
  return {plan_, plan_.graph().ops()[static_cast<std::size_t>(position)], places_.address};
}

Candidates only(Step step) {
  return {"", {{"", [step = std::move(step)] { return step; }}}};
}

Step reducing_step(const TileLaunch& launch, Shared& shared) {
  shared.need(launch.partials * sizeof(float));
  return [run = launch.run, &shared](cudaStream_t stream) { run(shared.reduce_space(), stream); };
}

Matrix matrix_of(const graph::Tensor& tensor) {
  const graph::Shape& shape = tensor.shape;
  return {type_of(tensor.dtype), shape.n() * shape.h() * shape.w(), static_cast<int>(shape.c())};
}

}  // namespace redline::backend::cuda
