#include "backend/reference/kernels.h"
#include "base/error.h"

namespace redline::backend::reference {

// A switch without a default: the compiler names an op that has no kernel.
Kernel kernel_of(graph::OpKind kind) {
  using graph::OpKind;
  switch (kind) {
    case OpKind::normalize_image:
      return normalize_image;
    case OpKind::conv:
      return conv;
    case OpKind::batch_norm:
      return batch_norm;
    case OpKind::relu:
      return relu;
    case OpKind::add:
      return add;
    case OpKind::max_pool:
      return max_pool;
    case OpKind::avg_pool:
      return avg_pool;
    case OpKind::local_avg_pool:
      return local_avg_pool;
    case OpKind::linear:
      return linear;
    case OpKind::softmax_cross_entropy:
      return softmax_cross_entropy;
    case OpKind::norm_stats:
      return norm_stats;
    case OpKind::affine_act:
      return affine_act;
    case OpKind::affine_pool:
      return affine_pool;
    case OpKind::conv_grad_input:
      return conv_grad_input;
    case OpKind::conv_grad_weight:
      return conv_grad_weight;
    case OpKind::batch_norm_grad:
      return batch_norm_grad;
    case OpKind::relu_grad:
      return relu_grad;
    case OpKind::max_pool_grad:
      return max_pool_grad;
    case OpKind::avg_pool_grad:
      return avg_pool_grad;
    case OpKind::local_avg_pool_grad:
      return local_avg_pool_grad;
    case OpKind::linear_grad_input:
      return linear_grad_input;
    case OpKind::linear_grad_weight:
      return linear_grad_weight;
    case OpKind::norm_grad_stats:
      return norm_grad_stats;
    case OpKind::norm_grad_apply:
      return norm_grad_apply;
    case OpKind::snapshot:
      return snapshot;
    case OpKind::accumulate:
      return accumulate;
    case OpKind::all_reduce:
      return all_reduce;
    case OpKind::gradient_check:
      return gradient_check;
    case OpKind::restore:
      return restore;
    case OpKind::sgd:
      return sgd;
    case OpKind::lars:
      return lars;
    case OpKind::adamw:
      return adamw;
    case OpKind::lamb:
      return lamb;
    case OpKind::ema:
      return ema;
  }
  throw InternalError("op kind {} is not in the list", static_cast<int>(kind));
}

}  // namespace redline::backend::reference
