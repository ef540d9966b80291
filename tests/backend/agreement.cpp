#include "agreement.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "bench/op_cases.h"

namespace redline::cases {
namespace {

using bench::OpCase;
using graph::DType;
using graph::kNone;
using graph::TensorId;

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

void expect_close(const std::vector<float>& actual, const std::vector<float>& expected, Tolerance tolerance,
                  const std::string& what) {
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

}  // namespace

void expect_agreement(const backend::Executable& actual, const backend::Executable& expected, DType dtype,
                      const std::set<TensorId>& ignored, const std::set<TensorId>& rounded_twice) {
  const graph::Graph& graph = expected.plan().graph();
  std::set<TensorId> ids, apart = ignored;
  apart.insert(kNone);
  for (std::size_t position = 0; position < graph.ops().size(); ++position) {
    const OpCase op_case{"", graph, position};
    const graph::Op& op = op_case.op();
    ids.insert(op.inputs.begin(), op.inputs.end());
    ids.insert(op.outputs.begin(), op.outputs.end());
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (bench::is_mask_input(op.kind, i)) apart.insert(op.inputs[i]);
    }
    for (std::size_t i = 0; i < op.outputs.size(); ++i) {
      if (!bench::is_mask_output(op.kind, i) || !apart.insert(op.outputs[i]).second) continue;
      expect_same_mask(op_case, i, actual, expected, tolerance_of(dtype).floor);
    }
  }
  for (TensorId id : ids) {
    if (apart.contains(id)) continue;
    const graph::Tensor& tensor = graph.tensor(id);
    const bool exact = tensor.dtype == DType::u8 || tensor.dtype == DType::i32;
    if (exact && tensor.kind == graph::TensorKind::input)
      continue;  // raw bytes, which read() does not promise
    Tolerance tolerance = exact ? Tolerance{0, 0} : tolerance_of(dtype);
    if (rounded_twice.contains(id)) tolerance.relative *= 2.0;
    expect_close(read(actual, id), read(expected, id), tolerance, tensor.name);
  }
}

}  // namespace redline::cases
