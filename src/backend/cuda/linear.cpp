// The fully connected layer by cuBLAS. Matrices are row-major here and column-major there: each product is
// the transpose of ours.
#include <cublas_v2.h>

#include "backend/cuda/step.h"
#include "base/error.h"

namespace redline::backend::cuda {
namespace {

void check_blas(cublasStatus_t status) {
  check(status == CUBLAS_STATUS_SUCCESS, "cuBLAS fails: {}", cublasGetStatusString(status));
}

cudaDataType_t blas_type(graph::DType dtype) {
  switch (dtype) {
    case graph::DType::f16:
      return CUDA_R_16F;
    case graph::DType::bf16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

struct Product {
  cublasOperation_t op_a, op_b;
  int m, n, k;
  const void* a;
  int lda;
  const void* b;
  int ldb;
  void* c;
  int ldc;
  cudaDataType_t in, out;
  float beta;

  void run(void* handle, cudaStream_t stream) const {
    auto* blas = static_cast<cublasHandle_t>(handle);
    const float alpha = 1.0F;
    check_blas(cublasSetStream(blas, stream));
    check_blas(cublasGemmEx(blas, op_a, op_b, m, n, k, &alpha, a, in, lda, b, in, ldb, &beta, c, out, ldc,
                            CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  }
};

constexpr std::size_t kBlasWork = std::size_t{32} << 20;

}  // namespace

Shared::Shared(ConvLibrary& convs, const cudaDeviceProp& device, bool tf32, std::shared_ptr<const Nccl> nccl)
    : convs_(convs),
      device_(device),
      nccl_(std::move(nccl)),
      counters_(kReduceCounters * sizeof(unsigned)),
      blas_work_(kBlasWork) {
  cublasHandle_t handle = nullptr;
  check_blas(cublasCreate(&handle));
  blas_ = handle;
  if (tf32) check_blas(cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH));
  // A work space of its own makes cuBLAS safe to capture and the same every time.
  check_blas(cublasSetWorkspace(handle, blas_work_.data(), blas_work_.size()));
}

Shared::~Shared() { cublasDestroy(static_cast<cublasHandle_t>(blas_)); }

std::optional<std::size_t> Shared::need_own(std::size_t bytes) {
  constexpr std::size_t kMost = std::size_t{4} << 20, kMostOfAll = std::size_t{64} << 20;
  const std::size_t offset = own_bytes_, rounded = (bytes + 255) / 256 * 256;
  if (bytes > kMost || offset + rounded > kMostOfAll) return std::nullopt;
  own_bytes_ += rounded;
  return offset;
}

void Shared::allocate() {
  work_.allocate();
  beside_.allocate();
  own_ = DeviceMemory(own_bytes_);
}

ReduceSpace Shared::reduce_space() const {
  return {reinterpret_cast<float*>(work_.data()), reinterpret_cast<unsigned*>(counters_.data())};
}

Step make_linear(const OpView& op, std::byte* weights, Shared& shared) {
  const graph::Tensor &x = op.in_tensor(0), &y = op.out_tensor(0);
  const int rows = static_cast<int>(x.shape[0]), in = static_cast<int>(x.shape[1]),
            out = static_cast<int>(y.shape[1]);
  const Product product{CUBLAS_OP_T, CUBLAS_OP_N, out, rows,      in,  weights,
                        in,          op.in(0),    in,  op.out(0), out, blas_type(x.dtype),
                        CUDA_R_32F,  1.0F};
  return [product, rows, out, bias = op.in<float>(2), y_to = op.out<float>(0), &shared](cudaStream_t stream) {
    fill_rows(rows, out, bias, y_to, stream);
    product.run(shared.blas(), stream);
  };
}

Step make_linear_grad_input(const OpView& op, std::byte* weights, Shared& shared) {
  const graph::Tensor &dy = op.in_tensor(0), &dx = op.out_tensor(0);
  const int rows = static_cast<int>(dx.shape[0]), in = static_cast<int>(dx.shape[1]),
            out = static_cast<int>(dy.shape[1]);
  const Product product{
      CUBLAS_OP_N,         CUBLAS_OP_N,         in,  rows, out, weights, in, op.in(0), out, op.out(0), in,
      blas_type(dy.dtype), blas_type(dx.dtype), 0.0F};
  return [product, &shared](cudaStream_t stream) { product.run(shared.blas(), stream); };
}

Step make_linear_grad_weight(const OpView& op, Shared& shared) {
  const graph::Tensor &x = op.in_tensor(0), &dy = op.in_tensor(1), &dw = op.out_tensor(0);
  const int rows = static_cast<int>(x.shape[0]), in = static_cast<int>(x.shape[1]),
            out = static_cast<int>(dy.shape[1]);
  const Product product{
      CUBLAS_OP_N,        CUBLAS_OP_T,         in,  out, rows, op.in(0), in, op.in(1), out, op.out(0), in,
      blas_type(x.dtype), blas_type(dw.dtype), 0.0F};
  return [product, rows, out, type = type_of(dy.dtype), from = op.in(1), db = op.out<float>(1),
          &shared](cudaStream_t stream) {
    product.run(shared.blas(), stream);
    column_sums(type, rows, out, from, db, stream);
  };
}

}  // namespace redline::backend::cuda
