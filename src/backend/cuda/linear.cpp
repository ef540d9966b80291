// The fully connected layer by cuBLAS.
#include <cublas_v2.h>

#include "backend/cuda/step.h"

namespace redline::backend::cuda {
namespace {

namespace operands = graph::operands;

cudaDataType_t blas_type(graph::DType dtype) {
  return name_in_library(dtype, CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF);
}

// A row-major matrix as it lies in memory, which may be multiplied transposed.
struct Factor {
  const void* data;
  int columns;
  bool transposed = false;
  cublasOperation_t operation() const { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; }
};

// c[rows, columns] = beta * c + a * b, over `depth`.
struct Product {
  int rows, columns, depth;
  Factor a, b;
  void* c;
  graph::DType from, to;  // of a and b, and of c
  float beta = 0.0F;

  // cuBLAS is column-major: to it, the product is that of the transposed matrices the other way round.
  void run(void* handle, cudaStream_t stream) const {
    auto* blas = static_cast<cublasHandle_t>(handle);
    const float alpha = 1.0F;
    const cudaDataType_t type = blas_type(from);
    check_blas(cublasSetStream(blas, stream));
    check_blas(cublasGemmEx(blas, b.operation(), a.operation(), columns, rows, depth, &alpha, b.data, type,
                            b.columns, a.data, type, a.columns, &beta, c, blas_type(to), columns,
                            CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  }
};

// Of a fully connected layer: samples, and features that it reads and gives.
struct LinearShape {
  int rows, in, out;
  LinearShape(const graph::Tensor& x, const graph::Tensor& y)
      : rows(static_cast<int>(x.shape[0])),
        in(static_cast<int>(x.shape[1])),
        out(static_cast<int>(y.shape[1])) {}
};

}  // namespace

Candidates make_linear(const GroupView& group, Shared& shared) {
  using operands::Linear;
  return only([op = group.op(), weights = group.weights(group.op()), &shared]() -> Step {
    const graph::Tensor& x = op.in_tensor(Linear::x);
    const LinearShape s(x, op.out_tensor(Linear::y));
    const Product product{s.rows,
                          s.out,
                          s.in,
                          {op.in(Linear::x), s.in},
                          {weights, s.in, /*transposed=*/true},
                          op.out(Linear::y),
                          x.dtype,
                          graph::DType::f32,
                          /*beta=*/1.0F};
    return [=, bias = op.in<float>(Linear::b), y = op.out<float>(Linear::y), &shared](cudaStream_t stream) {
      fill_rows(s.rows, s.out, bias, y, stream);
      product.run(shared.blas(), stream);
    };
  });
}

Candidates make_linear_grad_input(const GroupView& group, Shared& shared) {
  using Grad = operands::LinearGradInput;
  return only([op = group.op(), weights = group.weights(group.op()), &shared]() -> Step {
    const graph::Tensor &dy = op.in_tensor(Grad::dy), &dx = op.out_tensor(Grad::dx);
    const LinearShape s(dx, dy);
    const Product product{s.rows,           s.in,     s.out,   {op.in(Grad::dy), s.out}, {weights, s.in},
                          op.out(Grad::dx), dy.dtype, dx.dtype};
    return [product, &shared](cudaStream_t stream) { product.run(shared.blas(), stream); };
  });
}

Candidates make_linear_grad_weight(const GroupView& group, Shared& shared) {
  using Grad = operands::LinearGradWeight;
  return only([op = group.op(), &shared]() -> Step {
    const graph::Tensor &x = op.in_tensor(Grad::x), &dy = op.in_tensor(Grad::dy);
    const LinearShape s(x, dy);
    const Product product{s.out,
                          s.in,
                          s.rows,
                          {op.in(Grad::dy), s.out, /*transposed=*/true},
                          {op.in(Grad::x), s.in},
                          op.out(Grad::dw),
                          x.dtype,
                          op.out_tensor(Grad::dw).dtype};
    return [=, type = type_of(dy.dtype), from = op.in(Grad::dy), db = op.out<float>(Grad::db),
            &shared](cudaStream_t stream) {
      product.run(shared.blas(), stream);
      column_sums(type, s.rows, s.out, from, db, stream);
    };
  });
}

}  // namespace redline::backend::cuda
