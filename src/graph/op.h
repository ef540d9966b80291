// The closed list of operations. Everything a step does is one of these, so a backend is complete when it
// has them, and every one of them has an op case in tests/.
//
// Inputs and outputs are positional; `?` marks an optional one (kNone when absent). Shapes are logical:
// x, y, z are activations [N,C,H,W]; a parameter of a norm is [C].
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "graph/tensor.h"

namespace redline::graph {

enum class OpKind : std::uint8_t {
  // Input.
  normalize_image,  // images u8 [N,3,H,W] stored NHWC -> x: (value/255 - mean) / std; f32 images are only
                    // cast

  // Forward, as a model is written.
  conv,                   // x, w[O,I,kh,kw] -> y, sums[2,O]?  (sums of y and y^2 per channel)
  batch_norm,             // x, gamma, beta, mean, var -> y, saved[2,C]?  (updates mean and var in training)
  relu,                   // x -> y
  add,                    // a, b -> y
  max_pool,               // x -> y, index u8?
  avg_pool,               // x -> y[N,C]
  linear,                 // x[N,C], w[K,C], b[K] -> y[N,K]
  softmax_cross_entropy,  // logits[N,K], labels i32[N], scalars -> metrics[kLossMetrics], grad_logits[N,K]?

  // Forward, as a planner may rewrite it around the pending affine: y stays raw, and (scale, bias) is kept
  // beside it until a consumer applies it.
  norm_stats,   // y, gamma, beta, mean, var, sums? -> affine[2,C], saved[2,C]?  (updates mean and var in
                // training)
  affine_act,   // y, affine, shortcut?, shortcut_affine? -> z, mask?  z = act(affine(y) + affine(shortcut))
  affine_pool,  // y, affine -> z, index u8?                           z = max_pool(relu(affine(y)))

  // Backward.
  conv_grad_input,     // dy, w -> dx
  conv_grad_weight,    // x, dy -> dw
  batch_norm_grad,     // dy, x, gamma, saved -> dx, dgamma, dbeta
  relu_grad,           // dy, y -> dx
  max_pool_grad,       // dy, index -> dx
  avg_pool_grad,       // dy[N,C] -> dx
  linear_grad_input,   // dy, w -> dx
  linear_grad_weight,  // x, dy -> dw, db
  norm_grad_stats,     // g, g2?, y, affine?, mask?, saved -> dgamma, dbeta, masked?   masked = act'(g + g2)
  norm_grad_apply,     // g, y, affine?, mask?, saved, gamma, dgamma, dbeta -> dy

  // Update: in place, after backward.
  accumulate,  // total, dw, scalars -> total   total = keep * total + dw (keep 0 also clears NaN)
  all_reduce,  // gradients of one bucket -> the same
  sgd,         // w, dw, v, scalars -> w, v
  lars,        // w, dw, v, scalars -> w, v
  ema,         // average, value, scalars -> average
};

std::string_view name_of(OpKind kind);

struct ConvAttr {
  int stride = 1, pad = 0;
};
struct PoolAttr {
  int kernel = 3, stride = 2, pad = 1;
};

// Training norms use the batch and move the running statistics by `momentum`; the others use the running
// ones.
struct NormAttr {
  float epsilon = 1e-5F;
  float momentum = 0.1F;
  bool training = true;
};

struct ActAttr {
  bool relu = true;
};
struct LossAttr {
  float smoothing = 0.0F;
};
struct NormalizeAttr {
  float mean[3] = {0.485F, 0.456F, 0.406F};
  float std[3] = {0.229F, 0.224F, 0.225F};
};

// Hyperparameters that stay the same over a run; the learning rate is a step scalar.
struct SgdAttr {
  float momentum = 0.9F;
  float weight_decay = 0.0F;
  bool nesterov = false;
};
struct LarsAttr {
  float momentum = 0.9F;
  float weight_decay = 0.0F;
  float trust = 0.001F;
  float epsilon = 1e-8F;
};

using Attributes = std::variant<std::monostate, ConvAttr, PoolAttr, NormAttr, ActAttr, LossAttr,
                                NormalizeAttr, SgdAttr, LarsAttr>;

// The forward pass, the backward pass, or the part after it that may run once for several batches.
enum class Phase : std::uint8_t { forward, backward, update };

struct Op {
  OpKind kind;
  std::string name;  // the layer it belongs to, as torchvision names it: "layer1.0.conv1"
  Phase phase = Phase::forward;
  std::vector<TensorId> inputs;
  std::vector<TensorId> outputs;  // an id that is also an input is updated in place
  Attributes attributes;

  template <typename Attr>
  const Attr& attr() const {
    return std::get<Attr>(attributes);
  }
};

// What the host tells a step, one f32 tensor "scalars" of this layout, so that it can live on a device.
enum StepScalar : int { kLearningRate, kLossScale, kGradientScale, kEmaDecay, kAccumulateKeep, kStepScalars };
// loss_scale multiplies the gradient of the mean loss; gradient_scale multiplies every gradient as the
// optimizer reads it (1 / (loss scale x accumulated batches x ranks)); accumulate_keep is 0 for the first of
// several accumulated batches and 1 after it.

// What a step tells the host, one f32 tensor "metrics": sums over the batch's valid samples.
enum LossMetric : int { kLossSum, kCorrect1, kCorrect5, kSamples, kLossMetrics };

}  // namespace redline::graph
