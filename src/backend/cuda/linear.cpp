// The fully connected layer by cuBLAS.
#include <cublas_v2.h>

#include "backend/cuda/step.h"

namespace redline::backend::cuda {
namespace {

cudaDataType_t blas_type(DType dtype) { return name_in_library(dtype, CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF); }

// A row-major matrix in memory, which may be multiplied transposed.
struct Factor {
  const void* data;
  bool transposed = false;
};

// c[rows, columns] = beta * c + a * b, over `depth`.
struct Product {
  int rows, columns, depth;
  Factor a, b;
  void* c;
  DType from, to;  // of a and b, and of c
  float beta = 0.0F;

  // cuBLAS is column-major: to it, the product is that of the transposed matrices the other way round.
  void run(const Shared& shared, cudaStream_t stream) const {
    auto* blas = static_cast<cublasHandle_t>(shared.blas());
    const auto operation = [](const Factor& factor) { return factor.transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
    const float alpha = 1.0F;
    const cudaDataType_t type = blas_type(from);
    check_blas(cublasSetStream(blas, stream));
    check_blas(cublasGemmEx(blas, operation(b), operation(a), columns, rows, depth, &alpha, b.data, type,
                            b.transposed ? depth : columns, a.data, type, a.transposed ? rows : depth, &beta,
                            c, blas_type(to), columns, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  }
};

// Of a matrix: samples by features, or features given by features read.
int rows(const graph::Tensor& matrix) { return static_cast<int>(matrix.shape[0]); }
int columns(const graph::Tensor& matrix) { return static_cast<int>(matrix.shape[1]); }

}  // namespace

Candidates make_linear(const GroupView& group, Shared& shared) {
  using operands::Linear;
  const OpView op = group.op();
  const graph::Tensor &x = op.in_tensor(Linear::x), &w = op.in_tensor(Linear::w);
  auto* y = op.out<float>(Linear::y);
  const Factor weights{group.weights(op), /*transposed=*/true};
  const Product product{rows(x), rows(w), columns(x), {op.in(Linear::x)}, weights,
                        y,       x.dtype, DType::f32, /*beta=*/1.0F};
  return only([=, bias = op.in<float>(Linear::b), &shared](cudaStream_t stream) {
    fill_rows(product.rows, product.columns, bias, y, stream);
    product.run(shared, stream);
  });
}

Candidates make_linear_grad_input(const GroupView& group, Shared& shared) {
  using Grad = operands::LinearGradInput;
  const OpView op = group.op();
  const graph::Tensor &dy = op.in_tensor(Grad::dy), &dx = op.out_tensor(Grad::dx);
  const Factor gradient{op.in(Grad::dy)}, weights{group.weights(op)};
  const Product product{rows(dy), columns(dx),      columns(dy), gradient,
                        weights,  op.out(Grad::dx), dy.dtype,    dx.dtype};
  return only([product, &shared](cudaStream_t stream) { product.run(shared, stream); });
}

Candidates make_linear_grad_weight(const GroupView& group, Shared& shared) {
  using Grad = operands::LinearGradWeight;
  const OpView op = group.op();
  const graph::Tensor &x = op.in_tensor(Grad::x), &dy = op.in_tensor(Grad::dy), &dw = op.out_tensor(Grad::dw);
  const Factor gradient{op.in(Grad::dy), /*transposed=*/true}, input{op.in(Grad::x)};
  const Product product{columns(dy), columns(x),       rows(x), gradient,
                        input,       op.out(Grad::dw), x.dtype, dw.dtype};
  return only([=, type = type_of(dy.dtype), db = op.out<float>(Grad::db), &shared](cudaStream_t stream) {
    product.run(shared, stream);
    column_sums(type, product.depth, product.rows, gradient.data, db, stream);
  });
}

}  // namespace redline::backend::cuda
