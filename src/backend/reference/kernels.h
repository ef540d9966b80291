// The reference kernels, one per op, grouped by file. graph/op.h says what each computes.
#pragma once

#include "backend/reference/arguments.h"

namespace redline::backend::reference {

using Kernel = void (*)(Arguments& args);

Kernel kernel_of(graph::OpKind kind);

// conv.cpp
void conv(Arguments& args);
void conv_grad_input(Arguments& args);
void conv_grad_weight(Arguments& args);

// elementwise.cpp
void normalize_image(Arguments& args);
void relu(Arguments& args);
void relu_grad(Arguments& args);
void add(Arguments& args);

// norm.cpp
void batch_norm(Arguments& args);
void batch_norm_grad(Arguments& args);
void norm_stats(Arguments& args);

// fused.cpp
void affine_act(Arguments& args);
void norm_grad_stats(Arguments& args);
void norm_grad_apply(Arguments& args);

// pool.cpp
void max_pool(Arguments& args);
void max_pool_grad(Arguments& args);
void affine_pool(Arguments& args);
void avg_pool(Arguments& args);
void avg_pool_grad(Arguments& args);
void local_avg_pool(Arguments& args);
void local_avg_pool_grad(Arguments& args);

// linear.cpp
void linear(Arguments& args);
void linear_grad_input(Arguments& args);
void linear_grad_weight(Arguments& args);

// loss.cpp
void softmax_cross_entropy(Arguments& args);

// update.cpp
void snapshot(Arguments& args);
void accumulate(Arguments& args);
void all_reduce(Arguments& args);
void gradient_check(Arguments& args);
void restore(Arguments& args);
void sgd(Arguments& args);
void lars(Arguments& args);
void adamw(Arguments& args);
void lamb(Arguments& args);
void ema(Arguments& args);

}  // namespace redline::backend::reference
