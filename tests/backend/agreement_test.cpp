// Every backend against the reference, on every op case.
#include <memory>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "agreement.h"
#include "backend/backend.h"
#include "backend/reference/reference.h"
#include "base/error.h"
#include "op_cases.h"

namespace redline {
namespace {

using bench::OpCase;
using graph::DType;
using graph::OpKind;
using graph::TensorId;

std::unique_ptr<backend::Executable> run_case(const OpCase& op_case, backend::Backend& on) {
  auto plan = std::make_shared<plan::Plan>(plan::make_plan(op_case.graph, on));
  auto executable = on.compile(plan, on.make_state());
  bench::fill_inputs(op_case, 7, *executable);
  executable->run(backend::Section::compute);
  executable->run(backend::Section::update);
  return executable;
}

void compare_case(const OpCase& op_case, backend::Backend& on, DType dtype) {
  SCOPED_TRACE(op_case.name);
  const auto reference = backend::make_reference_backend();
  const auto expected = run_case(op_case, *reference), actual = run_case(op_case, on);
  cases::expect_agreement(*actual, *expected, dtype);
}

// Whether a backend takes part in a choice that the planner asks it about.
bool offers(const backend::Backend& on, const OpCase& op_case, DType dtype) {
  const graph::Op& op = op_case.op();
  const bool sums = (op.kind == OpKind::conv && op.outputs.size() > 1) ||
                    (op.kind == OpKind::norm_stats && op.inputs.size() > 5);
  if (sums && !on.conv_gives_sums(dtype)) return false;
  for (TensorId id : op_case.graph.of_kind(graph::TensorKind::gradient)) {
    const DType kept = op_case.graph.tensor(id).dtype;
    if (kept != DType::f32 && kept != on.weight_gradient(dtype)) return false;
  }
  return true;
}

struct Target {
  const char* device;
  DType dtype;
};

class AgreementTest : public testing::TestWithParam<std::tuple<Target, OpKind>> {};

TEST_P(AgreementTest, WithReference) {
  const auto [target, kind] = GetParam();
  std::unique_ptr<backend::Backend> on;
  try {
    on = backend::make_backend({target.device, 0, false});
  } catch (const UnavailableError& e) {
    GTEST_SKIP() << e.what();
  }
  if (!on->supports(kind, target.dtype)) GTEST_SKIP() << "not in this dtype";
  int compared = 0;
  for (const OpCase& op_case : cases::op_cases(target.dtype)) {
    if (op_case.op().kind != kind || !offers(*on, op_case, target.dtype)) continue;
    compare_case(op_case, *on, target.dtype);
    ++compared;
  }
  EXPECT_GT(compared, 0) << "an op without cases";
}

#ifdef REDLINE_TEST_CUDA
class LargeAgreementTest : public testing::TestWithParam<DType> {};

TEST_P(LargeAgreementTest, WithReference) {
  std::unique_ptr<backend::Backend> on;
  try {
    on = backend::make_backend({"cuda", 0, false});
  } catch (const UnavailableError& e) {
    GTEST_SKIP() << e.what();
  }
  if (!on->supports(OpKind::conv, GetParam())) GTEST_SKIP() << "not in this dtype";
  for (const OpCase& op_case : cases::large_op_cases(GetParam())) compare_case(op_case, *on, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Cuda, LargeAgreementTest, testing::Values(DType::f32, DType::f16, DType::bf16),
                         [](const auto& each) { return std::string(name_of(each.param)); });
#endif

std::vector<OpKind> all_kinds() {
  std::vector<OpKind> kinds;
  for (int i = 0; i <= static_cast<int>(OpKind::ema); ++i) kinds.push_back(static_cast<OpKind>(i));
  return kinds;
}

std::string parameter_name(const testing::TestParamInfo<std::tuple<Target, OpKind>>& info) {
  const auto& [target, kind] = info.param;
  return fmt::format("{}_{}_{}", target.device, name_of(target.dtype), name_of(kind));
}

#ifdef REDLINE_TEST_CUDA
const auto kTargets =
    testing::Values(Target{"cuda", DType::f32}, Target{"cuda", DType::f16}, Target{"cuda", DType::bf16});
#else
const auto kTargets = testing::Values(Target{"cpu", DType::f32}, Target{"cpu", DType::bf16});
#endif

INSTANTIATE_TEST_SUITE_P(Ops, AgreementTest, testing::Combine(kTargets, testing::ValuesIn(all_kinds())),
                         parameter_name);

}  // namespace
}  // namespace redline
