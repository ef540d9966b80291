// Gradients on the reference backend, by finite differences: for a random direction d and a random projection
// p of the output, (p.f(x + hd) - p.f(x - hd)) / 2h must be the product of d with what the backward ops give.
// The fused backward ops are compared with the plain ones, which have no kinks to step over.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "base/random.h"
#include "op_cases.h"
#include "run_op.h"

namespace redline {
namespace {

using cases::OpRun;
using cases::run_op;
using cases::Value;
using graph::DType;
using graph::OpKind;
using graph::Shape;

using Values = std::vector<float>;

constexpr double kStep = 0x1p-8;

Values random_values(std::size_t count, std::uint64_t stream) {
  Random random(11, stream);
  Values values(count);
  for (float& value : values) value = static_cast<float>(random.uniform(-1.0, 1.0));
  return values;
}

double dot(const Values& a, const Values& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

Value value_of(const bench::OpCase& op_case, graph::TensorId id, Values values = {}) {
  const graph::Tensor& tensor = op_case.graph.tensor(id);
  return {tensor.shape, std::move(values), tensor.dtype};
}

OpRun forward_of(const bench::OpCase& op_case) {
  const graph::Op& op = op_case.op();
  OpRun run{op.kind, {}, {}, op.attributes};
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    run.inputs.push_back(std::nullopt);
    if (op.inputs[i] == graph::kNone) continue;
    run.inputs.back() = value_of(op_case, op.inputs[i], bench::input_values(op_case, i, 3));
  }
  for (graph::TensorId id : op.outputs) {
    run.outputs.push_back(id == graph::kNone ? std::nullopt : std::optional(value_of(op_case, id)));
  }
  return run;
}

// Checks the gradient of output 0 with respect to one input. Errors: h^2 from the third derivative, and the
// fp32 rounding of the outputs divided by h; both below 1e-3 of the gradient's norm here.
void expect_gradient(const OpRun& forward, std::size_t input, const Values& projection,
                     const Values& gradient) {
  const Values direction = random_values(gradient.size(), 100 + input);
  const auto along = [&](double sign) {
    OpRun moved = forward;
    Values& x = moved.inputs[input]->values;
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] += static_cast<float>(sign * kStep * static_cast<double>(direction[i]));
    return dot(run_op(moved).outputs[0], projection);
  };
  const double difference = (along(1.0) - along(-1.0)) / (2.0 * kStep);
  const double norm = std::sqrt(dot(gradient, gradient));
  EXPECT_GT(norm, 0.0) << "a gradient of zeros proves nothing";
  EXPECT_NEAR(difference, dot(gradient, direction), 3e-3 * norm + 1e-5) << "input " << input;
}

template <typename Check>
void for_cases(OpKind kind, Check&& check) {
  int checked = 0;
  for (const bench::OpCase& op_case : cases::op_cases(DType::f32)) {
    if (op_case.op().kind != kind) continue;
    SCOPED_TRACE(op_case.name);
    const OpRun forward = forward_of(op_case);
    check(forward, random_values(static_cast<std::size_t>(forward.outputs[0]->shape.elements()), 1));
    ++checked;
  }
  EXPECT_GT(checked, 0);
}

Value with(const Value& like, Values values) { return {like.shape, std::move(values), like.dtype}; }

TEST(Gradient, Conv) {
  for_cases(OpKind::conv, [](const OpRun& run, const Values& p) {
    const Value dy = with(*run.outputs[0], p);
    const auto dx = run_op({OpKind::conv_grad_input, {dy, run.inputs[1]}, {run.inputs[0]}, run.attributes});
    expect_gradient(run, 0, p, dx.outputs[0]);
    const auto dw = run_op({OpKind::conv_grad_weight, {run.inputs[0], dy}, {run.inputs[1]}, run.attributes});
    expect_gradient(run, 1, p, dw.outputs[0]);
  });
}

TEST(Gradient, BatchNorm) {
  for_cases(OpKind::batch_norm, [](const OpRun& run, const Values& p) {
    if (!run.outputs[1]) return;  // inference has no gradient
    const auto forward = run_op(run);
    const Value saved = with(*run.outputs[1], forward.outputs[1]);
    const auto back = run_op({OpKind::batch_norm_grad,
                              {with(*run.outputs[0], p), run.inputs[0], run.inputs[1], saved},
                              {run.inputs[0], run.inputs[1], run.inputs[2]},
                              run.attributes});
    for (std::size_t i = 0; i < 3; ++i) expect_gradient(run, i, p, back.outputs[i]);
  });
}

TEST(Gradient, Relu) {
  for_cases(OpKind::relu, [](OpRun run, const Values& p) {
    for (float& x : run.inputs[0]->values) x += std::copysign(0.1F, x);  // away from the kink
    const Value y = with(*run.outputs[0], run_op(run).outputs[0]);
    const auto dx = run_op({OpKind::relu_grad, {with(y, p), y}, {run.inputs[0]}});
    expect_gradient(run, 0, p, dx.outputs[0]);
  });
}

TEST(Gradient, MaxPool) {
  for_cases(OpKind::max_pool, [](OpRun run, const Values& p) {
    if (!run.outputs[1]) return;
    // All values apart by more than two steps, so that no maximum changes place.
    Values& x = run.inputs[0]->values;
    std::iota(x.begin(), x.end(), 0.0F);
    Random(5).shuffle(x);
    for (float& value : x) value *= 0.03125F;
    const Value index = with(*run.outputs[1], run_op(run).outputs[1]);
    const auto dx =
        run_op({OpKind::max_pool_grad, {with(*run.outputs[0], p), index}, {run.inputs[0]}, run.attributes});
    expect_gradient(run, 0, p, dx.outputs[0]);
  });
}

TEST(Gradient, AvgPool) {
  for_cases(OpKind::avg_pool, [](const OpRun& run, const Values& p) {
    const auto dx = run_op({OpKind::avg_pool_grad, {with(*run.outputs[0], p)}, {run.inputs[0]}});
    expect_gradient(run, 0, p, dx.outputs[0]);
  });
}

TEST(Gradient, LocalAvgPool) {
  for_cases(OpKind::local_avg_pool, [](const OpRun& run, const Values& p) {
    const auto dx =
        run_op({OpKind::local_avg_pool_grad, {with(*run.outputs[0], p)}, {run.inputs[0]}, run.attributes});
    expect_gradient(run, 0, p, dx.outputs[0]);
  });
}

TEST(Gradient, Linear) {
  for_cases(OpKind::linear, [](const OpRun& run, const Values& p) {
    const Value dy = with(*run.outputs[0], p);
    const auto dx = run_op({OpKind::linear_grad_input, {dy, run.inputs[1]}, {run.inputs[0]}});
    expect_gradient(run, 0, p, dx.outputs[0]);
    const auto dw = run_op({OpKind::linear_grad_weight, {run.inputs[0], dy}, {run.inputs[1], run.inputs[2]}});
    expect_gradient(run, 1, p, dw.outputs[0]);
    expect_gradient(run, 2, p, dw.outputs[1]);
  });
}

TEST(Gradient, SoftmaxCrossEntropy) {
  for_cases(OpKind::softmax_cross_entropy, [](const OpRun& run, const Values&) {
    if (!run.outputs[1]) return;
    // The stored gradient is that of loss_scale x the mean loss; the metric is the sum.
    const auto forward = run_op(run);
    const float samples = forward.outputs[0][graph::kSamples];
    ASSERT_GT(samples, 0.0F);
    Values only_loss(graph::kLossMetrics, 0.0F);
    only_loss[graph::kLossSum] = run.inputs[2]->values[0] / samples;
    expect_gradient(run, 0, only_loss, forward.outputs[1]);
  });
}

void expect_same(const Values& actual, const Values& expected, const char* what) {
  ASSERT_EQ(actual.size(), expected.size());
  const double scale = std::sqrt(dot(expected, expected) / static_cast<double>(expected.size()));
  for (std::size_t i = 0; i < actual.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], 1e-5 * scale) << what << i;
}

// What a norm, its shortcut and ReLU give when written out as plain ops, and their gradients.
struct Plain {
  cases::OpResult norm;
  Values z, dz_gated;
  cases::OpResult back;
};

Plain plain_block(const OpRun& norm, const std::optional<Value>& shortcut, const Values& dz) {
  Plain plain;
  plain.norm = run_op(norm);
  const Value y = *norm.inputs[0];
  Value sum = with(y, plain.norm.outputs[0]);
  if (shortcut) sum = with(y, run_op({OpKind::add, {sum, shortcut}, {y}}).outputs[0]);
  plain.z = run_op({OpKind::relu, {sum}, {y}}).outputs[0];
  plain.dz_gated = run_op({OpKind::relu_grad, {with(y, dz), with(y, plain.z)}, {y}}).outputs[0];
  plain.back =
      run_op({OpKind::batch_norm_grad,
              {with(y, plain.dz_gated), y, norm.inputs[1], with(*norm.outputs[1], plain.norm.outputs[1])},
              {y, norm.inputs[1], norm.inputs[2]},
              norm.attributes});
  return plain;
}

// norm_stats + affine_act is batch_norm (+ add) + relu, forward and backward; the gate comes from the mask
// where there is a shortcut, else from the affine.
void check_fused_block(const OpRun& norm, bool with_shortcut) {
  const Value y = *norm.inputs[0], pair = *norm.outputs[1];
  const auto count = static_cast<std::size_t>(y.shape.elements());
  std::optional<Value> shortcut, mask;
  if (with_shortcut) {
    shortcut = with(y, random_values(count, 9));
    mask = Value{{static_cast<std::int64_t>(count / 8 + 1)}, {}, DType::u8};
  }
  const Values g = random_values(count, 4), g2 = random_values(count, 5);
  Values whole(count);
  std::transform(g.begin(), g.end(), g2.begin(), whole.begin(), std::plus<>());
  const Plain plain = plain_block(norm, shortcut, whole);

  const auto stats = run_op({OpKind::norm_stats, norm.inputs, {pair, pair}, norm.attributes});
  expect_same(stats.outputs[1], plain.norm.outputs[1], "saved ");
  expect_same(stats.inputs[3], plain.norm.inputs[3], "running mean ");
  expect_same(stats.inputs[4], plain.norm.inputs[4], "running variance ");
  const Value affine = with(pair, stats.outputs[0]), saved = with(pair, stats.outputs[1]);
  const auto act =
      run_op({OpKind::affine_act, {y, affine, shortcut, std::nullopt}, {y, mask}, graph::ActAttr{}});
  expect_same(act.outputs[0], plain.z, "z ");
  if (mask) mask->values = act.outputs[1];

  const auto gate_affine = with_shortcut ? std::nullopt : std::optional(affine);
  const auto sums = run_op({OpKind::norm_grad_stats,
                            {with(y, g), with(y, g2), y, gate_affine, mask, saved},
                            {norm.inputs[1], norm.inputs[2], y},
                            norm.attributes});
  expect_same(sums.outputs[0], plain.back.outputs[1], "dgamma ");
  expect_same(sums.outputs[1], plain.back.outputs[2], "dbeta ");
  expect_same(sums.outputs[2], plain.dz_gated, "masked ");
  // The gradient before gating, gated again: once by its mask or affine, once not at all.
  const Value dgamma = with(*norm.inputs[1], sums.outputs[0]), dbeta = with(*norm.inputs[2], sums.outputs[1]);
  const auto apply = [&](const Values& gradient, const std::optional<Value>& by_affine,
                         const std::optional<Value>& by_mask) {
    return run_op({OpKind::norm_grad_apply,
                   {with(y, gradient), y, by_affine, by_mask, saved, norm.inputs[1], dgamma, dbeta},
                   {y},
                   norm.attributes})
        .outputs[0];
  };
  expect_same(apply(whole, gate_affine, mask), plain.back.outputs[0], "dy gated ");
  expect_same(apply(sums.outputs[2], std::nullopt, std::nullopt), plain.back.outputs[0], "dy ");
}

TEST(Fused, BlockIsPlainOps) {
  for_cases(OpKind::batch_norm, [](const OpRun& norm, const Values&) {
    if (!norm.outputs[1]) return;
    check_fused_block(norm, false);
    check_fused_block(norm, true);
  });
}

TEST(Fused, ShortcutAffineIsAppliedFirst) {
  for_cases(OpKind::affine_act, [](const OpRun& run, const Values&) {
    if (!run.inputs[3]) return;
    const auto affine_only = run_op({OpKind::affine_act,
                                     {run.inputs[2], run.inputs[3], std::nullopt, std::nullopt},
                                     {run.inputs[0]},
                                     graph::ActAttr{false}});
    OpRun separate = run;
    separate.inputs[2] = with(*run.inputs[2], affine_only.outputs[0]);
    separate.inputs[3] = std::nullopt;
    expect_same(run_op(run).outputs[0], run_op(separate).outputs[0], "z ");
  });
}

TEST(Fused, PoolIsPlainOps) {
  for_cases(OpKind::affine_pool, [](const OpRun& run, const Values&) {
    const auto act = run_op({OpKind::affine_act,
                             {run.inputs[0], run.inputs[1], std::nullopt, std::nullopt},
                             {run.inputs[0]},
                             graph::ActAttr{}});
    const auto pooled =
        run_op({OpKind::max_pool, {with(*run.inputs[0], act.outputs[0])}, run.outputs, run.attributes});
    const auto fused = run_op(run);
    EXPECT_EQ(fused.outputs[0], pooled.outputs[0]);
    EXPECT_EQ(fused.outputs[1], pooled.outputs[1]);
  });
}

// The sums of a norm before a pool need only what the pool picked.
TEST(Fused, PickedGiveTheNormsSums) {
  for_cases(OpKind::affine_pool, [](const OpRun& run, const Values& p) {
    const Value &y = *run.inputs[0], &affine = *run.inputs[1], dz = with(*run.outputs[0], p);
    const auto forward = run_op(run);
    const Value index = with(*run.outputs[1], forward.outputs[1]);
    const Value g = with(y, run_op({OpKind::max_pool_grad, {dz, index}, {y}, run.attributes}).outputs[0]);
    const Value channel{{y.shape.c()}, Values(static_cast<std::size_t>(y.shape.c()))};
    const auto sums = [&](const Value& gradient, const Value& values) {
      return run_op({OpKind::norm_grad_stats,
                     {gradient, std::nullopt, values, affine, std::nullopt, affine},
                     {channel, channel, std::nullopt},
                     graph::NormAttr{}});
    };
    const auto all = sums(g, y), picked = sums(dz, with(*run.outputs[2], forward.outputs[2]));
    expect_same(picked.outputs[0], all.outputs[0], "dgamma ");
    expect_same(picked.outputs[1], all.outputs[1], "dbeta ");
  });
}

// Convolutions may hand their norm the sums of what they wrote.
TEST(Fused, SumsOfConvGiveTheSameNorm) {
  for_cases(OpKind::conv, [](const OpRun& run, const Values&) {
    if (run.outputs.size() < 2 || !run.outputs[1]) return;
    const auto conv = run_op(run);
    const Value y = with(*run.outputs[0], conv.outputs[0]), sums = with(*run.outputs[1], conv.outputs[1]);
    if (y.shape.n() * y.shape.h() * y.shape.w() < 4) return;  // no variance to speak of
    const auto channels = static_cast<std::size_t>(y.shape.c());
    const Value one{{y.shape.c()}, Values(channels, 1.0F)}, zero{{y.shape.c()}, Values(channels, 0.0F)};
    const auto plain =
        run_op({OpKind::norm_stats, {y, one, zero, zero, one}, {sums, sums}, graph::NormAttr{}});
    const auto given =
        run_op({OpKind::norm_stats, {y, one, zero, zero, one, sums}, {sums, sums}, graph::NormAttr{}});
    expect_same(given.outputs[0], plain.outputs[0], "affine ");
    expect_same(given.outputs[1], plain.outputs[1], "saved ");
    expect_same(given.inputs[4], plain.inputs[4], "running variance ");
  });
}

}  // namespace
}  // namespace redline
