// The reference backend on cases small enough to compute by hand.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "run_op.h"

namespace redline {
namespace {

using cases::OpRun;
using cases::run_op;
using cases::Value;
using graph::DType;
using graph::OpKind;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
using Values = std::vector<float>;

const Value kScalars{{graph::kStepScalars}, {0.5F, 0.25F, 0.75F, 1.0F, 9.0F}};
const Value kLossScale{{1}, {4.0F}};
const Value kCheck{{graph::kStepChecks}, {1.0F, 0.25F, 0.0F, 4.0F, 1.0F}};
const Value kMetrics{{graph::kLossMetrics}, {}};

Values loss_metrics(std::int64_t classes, Values logits, Values labels, float smoothing = 0.0F) {
  const auto rows = static_cast<std::int64_t>(labels.size());
  return run_op({OpKind::softmax_cross_entropy,
                 {Value{{rows, classes}, std::move(logits)}, Value{{rows}, std::move(labels), DType::i32},
                  kLossScale},
                 {kMetrics, std::nullopt},
                 graph::LossAttr{smoothing}})
      .outputs[0];
}

TEST(Loss, OfEqualLogitsIsLogOfClasses) {
  const auto metrics = loss_metrics(4, {1, 1, 1, 1, 2, 2, 2, 2}, {0, 3});
  EXPECT_NEAR(metrics[graph::kLossSum], 2.0 * std::log(4.0), 1e-6);
  EXPECT_EQ(metrics[graph::kSamples], 2.0F);
}

TEST(Loss, TiesGoToTheLowerClass) {
  const auto metrics = loss_metrics(4, {1, 1, 1, 1, 2, 2, 2, 2}, {0, 3});
  EXPECT_EQ(metrics[graph::kCorrect1], 1.0F);
  EXPECT_EQ(metrics[graph::kCorrect5], 2.0F) << "with four classes all are among the first five";
}

TEST(Loss, TopFiveCountsFive) {
  const Values falling = {7, 6, 5, 4, 3, 2, 1};
  for (float label = 0; label < 7; ++label) {
    const auto metrics = loss_metrics(7, falling, {label});
    EXPECT_EQ(metrics[graph::kCorrect1], label < 1 ? 1.0F : 0.0F) << label;
    EXPECT_EQ(metrics[graph::kCorrect5], label < 5 ? 1.0F : 0.0F) << label;
  }
}

TEST(Loss, NaNIsNeverRight) {
  EXPECT_EQ(loss_metrics(2, {kNaN, 1}, {0})[graph::kCorrect1], 0.0F);
  EXPECT_EQ(loss_metrics(2, {1, kNaN}, {0})[graph::kCorrect1], 0.0F);
  EXPECT_EQ(loss_metrics(2, {kNaN, kNaN}, {0})[graph::kCorrect1], 0.0F);
}

TEST(Loss, SmoothingMixesTheMeanOverClasses) {
  const double a = std::log(1.0 + std::exp(-2.0)), b = a + 2.0;  // nll of logits 2 and 0
  EXPECT_NEAR(loss_metrics(2, {2, 0}, {0}, 0.2F)[graph::kLossSum], 0.8 * a + 0.2 * (a + b) / 2.0, 1e-6);
}

TEST(Loss, RowsWithoutLabelDoNotCount) {
  const auto run =
      run_op({OpKind::softmax_cross_entropy,
              {Value{{3, 2}, {0, 0, 5, 1, 0, 0}}, Value{{3}, {0, -1, 1}, DType::i32}, kLossScale},
              {kMetrics, Value{{3, 2}, {}}},
              graph::LossAttr{}});
  EXPECT_NEAR(run.outputs[0][graph::kLossSum], 2.0 * std::log(2.0), 1e-6);
  EXPECT_EQ(run.outputs[0][graph::kSamples], 2.0F);
  // loss scale 4 over 2 samples, softmax - target = -+1/2
  EXPECT_EQ(run.outputs[1], (Values{-1, 1, 0, 0, 1, -1}));
}

// Logits 2 and 0, in two rows of the same labels: the one that is mostly the first, the other not.
TEST(Loss, OfMixedLabelsIsWeighted) {
  const double a = std::log(1.0 + std::exp(-2.0)), b = a + 2.0;
  const auto mixed = [&](Values others, float smoothing) {
    return run_op({OpKind::softmax_cross_entropy,
                   {Value{{2, 2}, {2, 0, 2, 0}}, Value{{2}, {0, 0}, DType::i32}, kLossScale,
                    Value{{2}, std::move(others), DType::i32}, Value{{2}, {0.75F, 0.25F}}},
                   {kMetrics, Value{{2, 2}, {}}},
                   graph::LossAttr{smoothing}});
  };
  const auto plain = mixed({1, 1}, 0.0F);
  EXPECT_NEAR(plain.outputs[0][graph::kLossSum], a + b, 1e-6);
  EXPECT_EQ(plain.outputs[0][graph::kCorrect1], 1.0F) << "the label of the larger weight counts";
  const double p = std::exp(-a);
  const double expected[] = {2 * (p - 0.75), 2 * (1 - p - 0.25), 2 * (p - 0.25), 2 * (1 - p - 0.75)};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(plain.outputs[1][i], expected[i], 1e-6) << i;
  EXPECT_NEAR(mixed({1, -1}, 0.2F).outputs[0][graph::kLossSum], 0.8 * (1.75 * a + 0.25 * b) + 0.2 * (a + b),
              1e-6)
      << "nothing is mixed into the second row";
}

TEST(Conv, ByHand) {
  // A 2x2 image under a 3x3 filter with padding 1: every output sees the whole image.
  const Value x{{1, 1, 2, 2}, {1, 2, 3, 4}}, w{{1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9}};
  const auto y = run_op({OpKind::conv, {x, w}, {Value{{1, 1, 2, 2}, {}}}, graph::ConvAttr{1, 1}});
  EXPECT_EQ(y.outputs[0], (Values{5 + 12 + 24 + 36, 4 + 10 + 21 + 32, 2 + 6 + 15 + 24, 1 + 4 + 12 + 20}));
  const auto strided = run_op({OpKind::conv, {x, w}, {Value{{1, 1, 1, 1}, {}}}, graph::ConvAttr{2, 1}});
  EXPECT_EQ(strided.outputs[0], (Values{77}));
}

TEST(Conv, StoresBf16RoundedToEven) {
  const Value x{{1, 1, 1, 1}, {1}, DType::bf16}, w{{2, 1, 1, 1}, {1.00390625F, 1.01171875F}};
  const auto y =
      run_op({OpKind::conv, {x, w}, {Value{{1, 2, 1, 1}, {}, DType::bf16}}, graph::ConvAttr{1, 0}});
  EXPECT_EQ(y.outputs[0], (Values{1.0F, 1.015625F}));  // 1 + 1/256 down, 1 + 3/256 up: both ties
}

TEST(BatchNorm, ByHand) {
  // One channel, values 1 and 3: mean 2, biased variance 1, unbiased 2.
  graph::NormAttr attr;
  attr.epsilon = 0.0F;
  attr.momentum = 0.25F;
  const Value x{{2, 1, 1, 1}, {1, 3}}, gamma{{1}, {10}}, beta{{1}, {5}}, mean{{1}, {4}}, var{{1}, {8}};
  const auto run = run_op({OpKind::batch_norm, {x, gamma, beta, mean, var}, {x, Value{{2, 1}, {}}}, attr});
  EXPECT_EQ(run.outputs[0], (Values{-5, 15}));
  EXPECT_EQ(run.outputs[1], (Values{2, 1}));
  EXPECT_EQ(run.inputs[3], (Values{3.5F}));  // 3/4 4 + 1/4 2
  EXPECT_EQ(run.inputs[4], (Values{6.5F}));  // 3/4 8 + 1/4 2
  attr.training = false;
  const auto inference = run_op({OpKind::batch_norm, {x, gamma, beta, mean, Value{{1}, {4}}}, {x}, attr});
  EXPECT_EQ(inference.outputs[0], (Values{-10, 0}));
  EXPECT_EQ(inference.inputs[3], (Values{4})) << "inference leaves the running statistics alone";
}

TEST(BatchNorm, OfOneValueDoesNotDivideByZero) {
  const Value x{{1, 1, 1, 1}, {3}}, one{{1}, {1}}, zero{{1}, {0}};
  const auto run =
      run_op({OpKind::batch_norm, {x, one, zero, zero, one}, {x, Value{{2, 1}, {}}}, graph::NormAttr{}});
  EXPECT_EQ(run.outputs[0], (Values{0}));
  EXPECT_FLOAT_EQ(run.inputs[4][0], 0.9F);
}

TEST(MaxPool, FirstMaximumWinsAndPaddingNever) {
  const Value x{{1, 1, 2, 2}, {-3, -1, -1, -2}};
  const auto run = run_op({OpKind::max_pool,
                           {x},
                           {Value{{1, 1, 1, 1}, {}}, Value{{1, 1, 1, 1}, {}, DType::u8}},
                           graph::PoolAttr{3, 2, 1}});
  EXPECT_EQ(run.outputs[0], (Values{-1}));
  EXPECT_EQ(run.outputs[1], (Values{5}));  // row 1, column 2 of the window
}

TEST(AffineAct, MaskIsOneBitPerElement) {
  const Value y{{1, 1, 3, 3}, {1, -1, 2, -2, 0, 3, -3, 4, 5}}, affine{{2, 1}, {1, 0}};
  const auto run = run_op({OpKind::affine_act,
                           {y, affine, Value{{1, 1, 3, 3}, Values(9, 0.0F)}, std::nullopt},
                           {y, Value{{2}, {}, DType::u8}},
                           graph::ActAttr{}});
  EXPECT_EQ(run.outputs[0], (Values{1, 0, 2, 0, 0, 3, 0, 4, 5}));
  EXPECT_EQ(run.outputs[1], (Values{1 + 4 + 32 + 128, 1}));
}

TEST(Update, Sgd) {
  const Value w{{1}, {2}}, dw{{1}, {8}}, v{{1}, {4}};
  // g = 8/4 + 0.5 2 = 3; v = 0.5 4 + 3 = 5
  const auto plain =
      run_op({OpKind::sgd, {w, dw, v, kScalars, kCheck}, {w, v}, graph::SgdAttr{0.5F, 0.5F, false}, {0, 2}});
  EXPECT_EQ(plain.outputs, (std::vector<Values>{{-0.5F}, {5}}));
  const auto nesterov =
      run_op({OpKind::sgd, {w, dw, v, kScalars, kCheck}, {w, v}, graph::SgdAttr{0.5F, 0.5F, true}, {0, 2}});
  EXPECT_EQ(nesterov.outputs, (std::vector<Values>{{2 - 0.5F * 5.5F}, {5}}));
}

TEST(Update, Lars) {
  const Value w{{2}, {3, 4}}, dw{{2}, {0, 40}}, v{{2}, {1, 1}};
  // |w| = 5, g = (0, 10), ratio = 0.6 5 / (10 + 1 5) = 0.2; v = 0.5 v + 0.5 0.2 (g + w)
  const auto run = run_op(
      {OpKind::lars, {w, dw, v, kScalars, kCheck}, {w, v}, graph::LarsAttr{0.5F, 1.0F, 0.6F, 0.0F}, {0, 2}});
  EXPECT_NEAR(run.outputs[1][0], 0.8, 1e-6);
  EXPECT_NEAR(run.outputs[1][1], 1.9, 1e-6);
  EXPECT_NEAR(run.outputs[0][0], 2.2, 1e-6);
  EXPECT_NEAR(run.outputs[0][1], 2.1, 1e-6);
  const Value zero{{2}, {0, 0}};
  const auto from_zero =
      run_op({OpKind::lars, {zero, dw, zero, kScalars, kCheck}, {w, v}, graph::LarsAttr{}, {0, 2}});
  EXPECT_EQ(from_zero.outputs[0], (Values{0, -5})) << "no weight norm: plain rate";
}

TEST(Update, EmaAndAccumulate) {
  const Value a{{1}, {8}}, b{{1}, {4}};
  EXPECT_EQ(run_op({OpKind::ema, {a, b, kScalars, kCheck}, {a}, {}, {0}}).outputs[0], (Values{7}));
  EXPECT_EQ(run_op({OpKind::accumulate, {a, b, kScalars}, {a}, {}, {0}}).outputs[0], (Values{12}));
  Value fresh = kScalars;
  fresh.values[graph::kAccumulateKeep] = 0.0F;
  const Value poisoned{{1}, {kNaN}};
  EXPECT_EQ(run_op({OpKind::accumulate, {poisoned, b, fresh}, {a}, {}, {0}}).outputs[0], (Values{4}));
}

// What gradient_check leaves: check, squares, loss scale, good steps, skipped steps.
std::vector<Values> check_of(std::vector<Values> gradients, graph::ScaleState now, graph::ScaleAttr attr) {
  const Value loss_scale{{1}, {now.loss_scale}}, good{{1}, {now.good_steps}},
      skipped{{1}, {now.skipped_steps}};
  const Value squares{{static_cast<std::int64_t>(gradients.size())}, {}};
  OpRun run{OpKind::gradient_check,
            {kScalars, loss_scale, good, skipped},
            {kCheck, squares, loss_scale, good, skipped},
            attr,
            {-1, -1, 1, 2, 3}};
  for (Values& values : gradients) {
    const auto size = static_cast<std::int64_t>(values.size());
    run.inputs.push_back(Value{{size}, std::move(values)});
  }
  return run_op(run).outputs;
}

TEST(Update, GradientCheckGivesNormsAndGrowsTheScale) {
  const graph::ScaleAttr dynamic{true, 2.0F, 0.5F, 3};
  // |g| = 5 of loss scale 4 and gradient scale 1/4.
  const auto found = check_of({{3, 0}, {4}}, {4, 1, 7}, dynamic);
  EXPECT_EQ(found, (std::vector<Values>{{1, 0.0625F, 0.3125F, 4, 2}, {9, 16}, {4}, {2}, {7}}));
  EXPECT_EQ(check_of({{3, 0}, {4}}, {4, 2, 7}, dynamic)[2], (Values{8})) << "the third good step";
  EXPECT_EQ(check_of({{3, 0}, {4}}, {4, 2, 7}, dynamic)[3], (Values{0}));
  EXPECT_EQ(check_of({{3}}, {4, 2, 0}, {})[2], (Values{4})) << "a fixed scale";
}

TEST(Update, GradientCheckRefusesInfinityAndNaN) {
  for (const float bad : {kNaN, std::numeric_limits<float>::infinity()}) {
    const auto found = check_of({{1, 2}, {bad}}, {4, 2, 7}, {true, 2.0F, 0.5F, 3});
    EXPECT_EQ(found[0][graph::kFinite], 0.0F);
    EXPECT_EQ(found[0][graph::kLossScale], 4.0F) << "the one it was made with";
    EXPECT_EQ(found[2], (Values{2}));
    EXPECT_EQ(found[3], (Values{0}));
    EXPECT_EQ(found[4], (Values{8}));
    EXPECT_EQ(check_of({{bad}}, {1, 0, 0}, {})[2], (Values{1})) << "a fixed scale";
  }
}

// By the norm of what the optimizer would see, whatever the loss scale.
TEST(Update, GradientCheckClips) {
  graph::ScaleAttr attr;
  attr.clip_norm = 0.0625F;
  for (const float scale : {1.0F, 4.0F}) {
    const auto found = check_of({{3 * scale, 0}, {4 * scale}}, {scale, 0, 0}, attr)[0];
    EXPECT_EQ(found[graph::kGradientNorm], 1.25F) << "before it is clipped";
    EXPECT_NEAR(found[graph::kUnscale] * scale, 0.25F * 0.0625F / 1.25F, 1e-7);
  }
  attr.clip_norm = 1.5F;
  EXPECT_EQ(check_of({{3, 0}, {4}}, {1, 0, 0}, attr)[0][graph::kUnscale], 0.25F) << "short enough";
}

TEST(Update, ARefusedStepChangesNothing) {
  Value refused = kCheck;
  refused.values[graph::kFinite] = 0.0F;
  const Value w{{1}, {2}}, dw{{1}, {kNaN}}, v{{1}, {4}};
  const std::vector<Values> same{{2}, {4}};
  EXPECT_EQ(run_op({OpKind::sgd, {w, dw, v, kScalars, refused}, {w, v}, graph::SgdAttr{}, {0, 2}}).outputs,
            same);
  EXPECT_EQ(run_op({OpKind::lars, {w, dw, v, kScalars, refused}, {w, v}, graph::LarsAttr{}, {0, 2}}).outputs,
            same);
  for (const OpKind kind : {OpKind::adamw, OpKind::lamb}) {
    EXPECT_EQ(
        run_op({kind, {w, dw, v, v, kScalars, refused}, {w, v, v}, graph::AdamAttr{}, {0, 2, 3}}).outputs,
        (std::vector<Values>{{2}, {4}, {4}}));
  }
  EXPECT_EQ(run_op({OpKind::ema, {w, dw, kScalars, refused}, {w}, {}, {0}}).outputs[0], (Values{2}));
  EXPECT_EQ(run_op({OpKind::restore, {refused, w, dw}, {dw}, {}, {2}}).outputs[0], (Values{2}));
  EXPECT_EQ(run_op({OpKind::restore, {kCheck, w, v}, {v}, {}, {2}}).outputs[0], (Values{4})) << "a good one";
}

}  // namespace
}  // namespace redline
