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
  conv,                   // x, w[O,I/groups,kh,kw] -> y, sums[2,O]?  (sums of y and y^2 per channel)
  batch_norm,             // x, gamma, beta, mean, var -> y, saved[2,C]?  (updates mean and var in training)
  relu,                   // x -> y
  add,                    // a, b -> y
  max_pool,               // x -> y, index u8?
  avg_pool,               // x -> y[N,C]
  local_avg_pool,         // x -> y: means of windows side by side, cut off at the image's edge
  linear,                 // x[N,C], w[K,C], b[K] -> y[N,K]
  softmax_cross_entropy,  // logits[N,K], labels i32[N], loss_scale[1]?, other_labels i32[N]?,
                          // label_weights[N]?
                          // -> metrics[kLossMetrics], grad_logits[N,K]? (of the mean loss times the loss
                          // scale). With other labels, a row's loss is weight * CE(label) + (1 - weight) *
                          // CE(other label), and the label of the larger weight counts for accuracy; an
                          // other label of -1 is none.

  // Forward, as the planner may rewrite it around the pending affine: y stays raw, and its (scale, bias)
  // waits in a separate tensor until a consumer applies it.
  norm_stats,   // y, gamma, beta, mean, var, sums? -> affine[2,C], saved[2,C]?  (updates mean and var in
                // training)
  affine_act,   // y, affine, shortcut?, shortcut_affine? -> z, mask?  z = act(affine(y) + affine(shortcut))
  affine_pool,  // y, affine -> z, index u8?, picked?                  z = max_pool(relu(affine(y))), picked:
                // the y of every window that index names

  // Backward.
  conv_grad_input,      // dy, w -> dx
  conv_grad_weight,     // x, dy -> dw
  batch_norm_grad,      // dy, x, gamma, saved -> dx, dgamma, dbeta
  relu_grad,            // dy, y -> dx
  max_pool_grad,        // dy, index -> dx
  avg_pool_grad,        // dy[N,C] -> dx
  local_avg_pool_grad,  // dy -> dx
  linear_grad_input,    // dy, w -> dx
  linear_grad_weight,   // x, dy -> dw, db
  norm_grad_stats,      // g, g2?, y, affine?, mask?, saved -> dgamma, dbeta, masked?   masked = act'(g + g2)
  norm_grad_apply,      // g, y, affine?, mask?, saved, gamma, dgamma, dbeta -> dy

  // Around the update. A step whose gradients are not finite is refused: `check` says so, and everything that
  // outlives the step stays as it was.
  snapshot,        // scalars, values… -> copies…   made where accumulate_keep is 0, kept where it is not
  accumulate,      // total, dw, scalars -> total   total = keep * total + dw (keep 0 also clears NaN)
  all_reduce,      // gradients of one bucket -> the same, added up over all ranks
  gradient_check,  // scalars, loss_scale[1], good_steps[1], skipped_steps[1], gradients… ->
                   // check[kStepChecks],
                   // squares[gradients], loss_scale, good_steps, skipped_steps
  restore,         // check, copies…, values… -> values…   values = copies when the step is refused

  // Update: in place.
  sgd,    // w, dw, v, scalars, check -> w, v
  lars,   // w, dw, v, scalars, check -> w, v
  adamw,  // w, dw, m, v, scalars, check -> w, m, v
  lamb,   // w, dw, m, v, scalars, check -> w, m, v
  ema,    // average, value, scalars, check -> average
};

std::string_view name_of(OpKind kind);

// With groups, the channels of x and y are divided into as many parts, and each part of y sees only its part
// of x.
struct ConvAttr {
  int stride = 1, pad = 0, groups = 1;
};
struct PoolAttr {
  int kernel = 3, stride = 2, pad = 1;
};
struct LocalPoolAttr {
  int kernel = 2;  // and stride
};

// In training, norms use the batch and move the running statistics by `momentum`; otherwise they use the
// running statistics. Synchronised norms use the batches of all ranks: norm_stats, norm_grad_stats and their
// unfused forms average their sums over the ranks.
struct NormAttr {
  float epsilon = 1e-5F;
  float momentum = 0.1F;
  bool training = true;
  bool synchronised = false;
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

// Hyperparameters that stay the same over a run; the learning rate is a step scalar, which a parameter's
// `rate` multiplies.
struct SgdAttr {
  float momentum = 0.9F;
  float weight_decay = 0.0F;
  bool nesterov = false;
  float rate = 1.0F;
};
struct LarsAttr {
  float momentum = 0.9F;
  float weight_decay = 0.0F;
  float trust = 0.001F;
  float epsilon = 0.0F;  // zero norms have a ratio of one without it
  float rate = 1.0F;
};
// For adamw, with weight decay separate from the gradient, and for lamb, which scales its step to the norm of
// the weights.
struct AdamAttr {
  float beta1 = 0.9F, beta2 = 0.999F;
  float epsilon = 1e-8F;
  float weight_decay = 0.0F;
  float rate = 1.0F;
};

// The type in which ranks exchange sums.
struct ReduceAttr {
  DType wire = DType::f32;
};

// How the loss scale adapts: it shrinks with every refused step and grows after `interval` good ones in a
// row. Also the maximum norm of the gradient.
struct ScaleAttr {
  bool dynamic = false;  // false: the scale stays as it is
  float growth = 2.0F, shrink = 0.5F;
  int interval = 2000;
  float clip_norm = 0.0F;  // 0: any
};

using Attributes = std::variant<std::monostate, ConvAttr, PoolAttr, LocalPoolAttr, NormAttr, ActAttr,
                                LossAttr, NormalizeAttr, SgdAttr, LarsAttr, AdamAttr, ScaleAttr, ReduceAttr>;

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

// The inputs of a step from the host: one f32 tensor "scalars" of this layout, so that it can be on a device.
enum StepScalar : int { kLearningRate, kGradientScale, kEmaDecay, kAccumulateKeep, kUpdate, kStepScalars };
// gradient_scale makes a mean of the gradients' sum (1 / (accumulated batches x ranks)); accumulate_keep is 0
// for the first of several accumulated batches and 1 after it; update is the number of this update, from 1.

// The results of a step for the host, one f32 tensor "metrics": sums over the batch's valid samples.
enum LossMetric : int { kLossSum, kCorrect1, kCorrect5, kSamples, kLossMetrics };

// What gradient_check finds, one f32 tensor "check" that the update's ops read, and the host after them.
// finite is 1, or 0 for a step that is refused; unscale multiplies every gradient as the optimizer reads it
// (gradient_scale / loss scale, and less where the gradient is clipped); gradient_norm is the norm of all
// gradients before they are clipped; loss_scale is the one this step was made with; taken_updates counts the
// updates that were not refused, this one included.
enum StepCheck : int { kFinite, kUnscale, kGradientNorm, kLossScale, kTakenUpdates, kStepChecks };

// The factor that clips a gradient of this norm, as in PyTorch's clip_grad_norm_.
constexpr float clip_factor(const ScaleAttr& attr, float gradient_norm) {
  const float factor = attr.clip_norm / (gradient_norm + 1e-6F);
  return attr.clip_norm > 0.0F && factor < 1.0F ? factor : 1.0F;
}

// The loss scale after a step: the only definition, used by every backend.
struct ScaleState {
  float loss_scale, good_steps, skipped_steps;
};
constexpr ScaleState next_scale(const ScaleAttr& attr, ScaleState now, bool finite) {
  // Beyond these limits the scale itself would overflow or vanish.
  constexpr float kLeast = 0x1p-16F, kMost = 0x1p64F;
  if (!finite) {
    const float shrunk = now.loss_scale * attr.shrink;
    return {attr.dynamic && shrunk >= kLeast ? shrunk : now.loss_scale, 0.0F, now.skipped_steps + 1.0F};
  }
  if (!attr.dynamic) return now;
  if (now.good_steps + 1.0F < static_cast<float>(attr.interval)) {
    return {now.loss_scale, now.good_steps + 1.0F, now.skipped_steps};
  }
  const float grown = now.loss_scale * attr.growth;
  return {grown <= kMost ? grown : now.loss_scale, 0.0F, now.skipped_steps};
}

}  // namespace redline::graph
