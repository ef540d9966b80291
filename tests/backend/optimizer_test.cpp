// The optimizers on the reference backend, compared step by step with PyTorch's
// (tests/golden/make_optimizers.py).
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "run_op.h"

namespace redline {
namespace {

using cases::run_op;
using cases::Value;
using graph::OpKind;
using Values = std::vector<float>;

class OptimizerGolden : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::ifstream file(REDLINE_OPTIMIZERS);
    ASSERT_TRUE(file) << REDLINE_OPTIMIZERS;
    golden_ = nlohmann::json::parse(file);
    for (const auto& found : golden_.at("cases"))
      if (found.at("case") == GetParam()) case_ = found;
    attr_ = {golden_.at("betas")[0], golden_.at("betas")[1], golden_.at("epsilon"),
             golden_.at("weight_decay")};
  }

  // Gradients arrive times a loss scale, in the `step`th update, before which `kSkipped` others were refused.
  Value check(const Values& gradient, float step) const {
    const auto size = static_cast<std::int64_t>(gradient.size());
    const Value scale{{1}, {kLossScale}}, good{{1}, {0}}, skipped{{1}, {kSkipped}};
    Value scalars{{graph::kStepScalars}, Values(graph::kStepScalars)};
    scalars.values[graph::kGradientScale] = 1.0F;
    scalars.values[graph::kUpdate] = step + kSkipped;
    graph::ScaleAttr attr;
    attr.clip_norm = case_.at("clip");
    const Value found{{graph::kStepChecks}, {}}, squares{{1}, {}};
    return {{graph::kStepChecks},
            run_op({OpKind::gradient_check,
                    {scalars, scale, good, skipped, Value{{size}, gradient}},
                    {found, squares, scale, good, skipped},
                    attr,
                    {-1, -1, 1, 2, 3}})
                .outputs[0]};
  }

  static constexpr float kLossScale = 64.0F, kSkipped = 3.0F;
  nlohmann::json golden_, case_;
  graph::AdamAttr attr_;
};

// fp32 state beside float64: each step rounds, and the gradients of later ones depend on the weights.
constexpr double kTolerance = 2e-6;

void expect_near(const Values& actual, const std::vector<double>& expected, const char* what) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], kTolerance * (1.0 + std::abs(expected[i]))) << what << " " << i;
}

TEST_P(OptimizerGolden, StepByStep) {
  const bool lamb = std::string(GetParam()) == "lamb";
  Value scalars{{graph::kStepScalars}, Values(graph::kStepScalars)};
  // Half the rate, of which the parameter has twice as much.
  scalars.values[graph::kLearningRate] = golden_.at("lr").get<float>() / 2;
  attr_.rate = 2.0F;
  Value w{{6}, {0.5F, -0.25F, 1.5F, 0.0F, -2.0F, 0.125F}}, m{{6}, Values(6)}, v{{6}, Values(6)};
  float step = 0;
  for (const auto& row : case_.at("steps")) {
    SCOPED_TRACE("step " + std::to_string(step));
    Values gradient = row.at("gradient");
    for (float& g : gradient) g *= kLossScale;
    const Value found = check(gradient, ++step);
    EXPECT_NEAR(found.values[graph::kGradientNorm], row.at("norm").get<double>(), 1e-5);
    EXPECT_EQ(found.values[graph::kTakenUpdates], step);
    const auto after = run_op({lamb ? OpKind::lamb : OpKind::adamw,
                               {w, Value{{6}, gradient}, m, v, scalars, found},
                               {w, m, v},
                               attr_,
                               {0, 2, 3}})
                           .outputs;
    expect_near(after[0], row.at("w"), "w");
    expect_near(after[1], row.at("m"), "m");
    expect_near(after[2], row.at("v"), "v");
    w.values = after[0], m.values = after[1], v.values = after[2];
  }
}

INSTANTIATE_TEST_SUITE_P(Torch, OptimizerGolden, testing::Values("adamw", "adamw_clipped", "lamb"),
                         [](const auto& given) { return std::string(given.param); });

}  // namespace
}  // namespace redline
