// The fully connected layer by cuBLAS. Matrices are row-major here and column-major there: each product is
// the transpose of ours.
#include <cublas_v2.h>

#include "backend/cuda/step.h"
#include "base/error.h"

namespace redline::backend::cuda {
namespace {

namespace operands = graph::operands;

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

}  // namespace

Candidates make_linear(const GroupView& group, Shared& shared) {
  using operands::Linear;
  return only([op = group.op(), weights = group.weights(group.op()), &shared]() -> Step {
    const graph::Tensor &x = op.in_tensor(Linear::x), &y = op.out_tensor(Linear::y);
    const int rows = static_cast<int>(x.shape[0]), in = static_cast<int>(x.shape[1]),
              out = static_cast<int>(y.shape[1]);
    std::byte* to = op.out(Linear::y);
    const Product product{
        CUBLAS_OP_T, CUBLAS_OP_N,        out,        rows, in, weights, in, op.in(Linear::x), in, to,
        out,         blas_type(x.dtype), CUDA_R_32F, 1.0F};
    return [=, bias = op.in<float>(Linear::b), &shared](cudaStream_t stream) {
      fill_rows(rows, out, bias, reinterpret_cast<float*>(to), stream);
      product.run(shared.blas(), stream);
    };
  });
}

Candidates make_linear_grad_input(const GroupView& group, Shared& shared) {
  using Grad = operands::LinearGradInput;
  return only([op = group.op(), weights = group.weights(group.op()), &shared]() -> Step {
    const graph::Tensor &dy = op.in_tensor(Grad::dy), &dx = op.out_tensor(Grad::dx);
    const int rows = static_cast<int>(dx.shape[0]), in = static_cast<int>(dx.shape[1]),
              out = static_cast<int>(dy.shape[1]);
    const Product product{CUBLAS_OP_N,
                          CUBLAS_OP_N,
                          in,
                          rows,
                          out,
                          weights,
                          in,
                          op.in(Grad::dy),
                          out,
                          op.out(Grad::dx),
                          in,
                          blas_type(dy.dtype),
                          blas_type(dx.dtype),
                          0.0F};
    return [product, &shared](cudaStream_t stream) { product.run(shared.blas(), stream); };
  });
}

Candidates make_linear_grad_weight(const GroupView& group, Shared& shared) {
  using Grad = operands::LinearGradWeight;
  return only([op = group.op(), &shared]() -> Step {
    const graph::Tensor &x = op.in_tensor(Grad::x), &dy = op.in_tensor(Grad::dy);
    const int rows = static_cast<int>(x.shape[0]), in = static_cast<int>(x.shape[1]),
              out = static_cast<int>(dy.shape[1]);
    const Product product{CUBLAS_OP_N,
                          CUBLAS_OP_T,
                          in,
                          out,
                          rows,
                          op.in(Grad::x),
                          in,
                          op.in(Grad::dy),
                          out,
                          op.out(Grad::dw),
                          in,
                          blas_type(x.dtype),
                          blas_type(op.out_tensor(Grad::dw).dtype),
                          0.0F};
    return [product, rows, out, type = type_of(dy.dtype), from = op.in(Grad::dy),
            db = op.out<float>(Grad::db), &shared](cudaStream_t stream) {
      product.run(shared.blas(), stream);
      column_sums(type, rows, out, from, db, stream);
    };
  });
}

}  // namespace redline::backend::cuda
