// Every backend against the reference, on every op case.
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "backend/backend.h"
#include "backend/reference/reference.h"
#include "base/error.h"
#include "op_cases.h"

namespace redline {
namespace {

using bench::OpCase;
using graph::DType;
using graph::kNone;
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

std::vector<float> read(const backend::Executable& executable, TensorId id) {
  std::vector<float> values(static_cast<std::size_t>(executable.plan().graph().tensor(id).shape.elements()));
  executable.read(id, values);
  return values;
}

double rms(const std::vector<float>& values) {
  double squares = 0.0;
  for (float value : values) squares += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(squares / static_cast<double>(values.size()));
}

// What an entry may differ by: `relative` of itself, and `floor` of the tensor's root mean square, since sums
// that cancel keep the error of their terms.
struct Tolerance {
  double relative, floor;
};

// fp32: the longest sum here has some 2,000 terms; summed in any order its error is a few dozen roundings of
// 6e-8. bf16: the result is rounded to 8 bits (2^-9 of itself), and a backend may round fp32 weights to bf16
// first, which adds 2^-9 of the terms: three deviations of that are 2^-7 of the root mean square. fp16 has 11
// bits.
Tolerance tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return {0x1p-7, 0x1p-6};
    case DType::f16:
      return {0x1p-10, 0x1p-9};
    default:
      return {1e-5, 2e-5};
  }
}

void expect_agreement(const std::vector<float>& actual, const std::vector<float>& expected,
                      Tolerance tolerance, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size());
  const double floor = tolerance.floor * rms(expected);
  std::size_t wrong = 0, first = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double allowed = tolerance.relative * std::abs(static_cast<double>(expected[i])) + floor;
    // Written so that NaN is wrong.
    if (std::abs(static_cast<double>(actual[i]) - static_cast<double>(expected[i])) <= allowed) continue;
    if (wrong++ == 0) first = i;
  }
  EXPECT_EQ(wrong, 0U) << what << ": of " << actual.size() << " entries, the first at " << first << ": "
                       << actual[first] << " instead of " << expected[first];
}

// Bits may differ only where the value that they tell the sign of is next to nothing.
void expect_same_mask(const OpCase& op_case, std::size_t output, const backend::Executable& actual,
                      const backend::Executable& expected, double floor) {
  const auto bits = bench::read_mask(op_case, output, actual),
             right = bench::read_mask(op_case, output, expected);
  const auto z = read(expected, op_case.op().outputs[0]), other = read(actual, op_case.op().outputs[0]);
  ASSERT_EQ(bits.size(), right.size());
  for (std::size_t i = 0; i < bits.size(); ++i) {
    EXPECT_EQ(bits[i], other[i] > 0.0F ? 1.0F : 0.0F) << "bit " << i << " against its own activation";
    if (bits[i] == right[i]) continue;
    EXPECT_LE(std::max(z[i], other[i]), floor) << "bit " << i;
  }
}

void compare_case(const OpCase& op_case, backend::Backend& on, DType dtype) {
  SCOPED_TRACE(op_case.name);
  const auto reference = backend::make_reference_backend();
  const auto expected = run_case(op_case, *reference), actual = run_case(op_case, on);
  // Running statistics and everything the op writes; the inputs it does not write are compared too, which
  // shows that it left them alone.
  std::set<TensorId> ids(op_case.op().inputs.begin(), op_case.op().inputs.end());
  const auto& outputs = op_case.op().outputs;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] != kNone && bench::is_mask_output(op_case.op().kind, i)) {
      expect_same_mask(op_case, i, *actual, *expected, tolerance_of(dtype).floor);
    } else {
      ids.insert(outputs[i]);
    }
  }
  for (std::size_t i = 0; i < op_case.op().inputs.size(); ++i) {
    if (bench::is_mask_input(op_case.op().kind, i)) ids.erase(op_case.op().inputs[i]);
  }
  ids.erase(kNone);
  for (TensorId id : ids) {
    const graph::Tensor& tensor = op_case.graph.tensor(id);
    const bool exact = tensor.dtype == DType::u8 || tensor.dtype == DType::i32;
    if (exact && tensor.kind == graph::TensorKind::input)
      continue;  // raw bytes, which read() does not promise
    expect_agreement(read(*actual, id), read(*expected, id), exact ? Tolerance{0, 0} : tolerance_of(dtype),
                     tensor.name);
  }
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
