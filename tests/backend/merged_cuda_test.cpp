// Neighbouring ops that the cuda backend runs as one group, against the reference: the sequences of
// fused_groups.h, with numbers of rows (pixels of all images) that fill the last tile only partly.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "agreement.h"
#include "backend/backend.h"
#include "backend/reference/reference.h"
#include "base/error.h"
#include "bench/op_cases.h"
#include "fused_groups.h"
#include "plan/layout.h"

namespace redline {
namespace {

using cases::CaseGraph;
using cases::Images;
using cases::Sequence;
using graph::DType;
using graph::kNone;
using graph::OpKind;
using graph::Shape;
using graph::TensorId;
using graph::TensorKind;

// The tensors that no op writes, with random values that suit their first reader.
class Inputs {
 public:
  Inputs(const graph::Graph& graph, DType dtype) : graph_(graph) {
    std::set<TensorId> written{kNone};
    for (std::size_t position = 0; position < graph.ops().size(); ++position) {
      const bench::OpCase op_case{"", graph, position};
      const graph::Op& op = op_case.op();
      for (std::size_t i = 0; i < op.inputs.size(); ++i) {
        if (written.contains(op.inputs[i]) || inputs_.contains(op.inputs[i])) continue;
        inputs_[op.inputs[i]] = {position, i, bench::input_values(op_case, i, 7 + position)};
      }
      written.insert(op.outputs.begin(), op.outputs.end());
    }
    for (const graph::Op& op : graph.ops()) {
      if (op.kind == OpKind::conv || op.kind == OpKind::conv_grad_input) round(op.inputs[1], dtype);
      if (op.kind == OpKind::max_pool_grad) coarsen(op.inputs[0]);
      if (op.kind == OpKind::norm_grad_stats) open_or_close(op.inputs[2], op.inputs[3]);
      if (op.kind == OpKind::norm_grad_apply) {
        open_or_close(op.inputs[1], op.inputs[2]);
        weigh_sums(op);
      }
    }
  }

  void write(backend::Executable& executable) const {
    for (const auto& [id, input] : inputs_)
      bench::write_input({"", graph_, input.position}, input.index, input.values, executable);
  }

 private:
  struct Input {
    std::size_t position, index;  // of its first reader, and which of that one's inputs it is
    std::vector<float> values;
  };

  // Calls visit(channel, value) for every element of an activation.
  template <typename Visit>
  void for_each(TensorId id, Visit&& visit) {
    const Shape& shape = graph_.tensor(id).shape;
    std::vector<float>& values = inputs_.at(id).values;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto plane = static_cast<std::int64_t>(i) / (shape.h() * shape.w());
      visit(static_cast<std::size_t>(plane % shape.c()), values[i]);
    }
  }

  // Weights that kernels need not round: results then differ by the rounding of activations alone.
  void round(TensorId id, DType dtype) {
    const graph::Tensor narrow{"", graph_.tensor(id).shape, dtype, TensorKind::activation};
    std::vector<std::byte> memory(plan::stored_bytes(narrow, plan::Layout::plain));
    plan::store(narrow, plan::Layout::plain, inputs_.at(id).values, memory.data());
    plan::load(narrow, plan::Layout::plain, memory.data(), inputs_.at(id).values);
  }

  // Multiples of an eighth: where windows overlap, their sum needs no rounding, be it stored or not.
  void coarsen(TensorId id) {
    for (float& value : inputs_.at(id).values) value = std::round(value * 8.0F) / 8.0F;
  }

  // Scales, then biases: an input, or what a norm makes of its own.
  std::vector<float> scales_of(TensorId affine) const {
    if (const auto input = inputs_.find(affine); input != inputs_.end()) return input->second.values;
    const auto norm = std::ranges::find_if(graph_.ops(), [&](const graph::Op& op) {
      return op.kind == OpKind::norm_stats && op.outputs[0] == affine;
    });
    const auto input = [&](std::size_t i) { return inputs_.at(norm->inputs[i]).values; };
    const std::vector<float> gamma = input(1), beta = input(2), sums = input(5);
    const Shape& y = graph_.tensor(norm->inputs[0]).shape;
    const auto rows = static_cast<float>(y.n() * y.h() * y.w());
    std::vector<float> scales(sums.size());
    for (std::size_t c = 0; c < gamma.size(); ++c) {
      const float mean = sums[c] / rows, variance = sums[gamma.size() + c] / rows - mean * mean;
      scales[c] = gamma[c] / std::sqrt(variance + norm->attr<graph::NormAttr>().epsilon);
      scales[gamma.size() + c] = beta[c] - mean * scales[c];
    }
    return scales;
  }

  // A gate is the sign of affine(y). Where that is so small that its rounding could decide, it is made
  // larger: y, below 8, is rounded by at most 2^-6 in bf16, and the scale is at most about 2.
  void open_or_close(TensorId y, TensorId affine) {
    if (affine == kNone) return;
    constexpr float kClear = 0x1p-4F;
    const std::vector<float> scales = scales_of(affine);
    std::size_t open = 0;
    for_each(y, [&](std::size_t c, float& value) {
      const float scale = scales[c], gate = scale * value + scales[scales.size() / 2 + c];
      if (std::abs(gate) < kClear) value += std::copysign(kClear, gate) / scale;
      if (gate > 0.0F) ++open;
    });
    const std::size_t all = inputs_.at(y).values.size();
    EXPECT_GT(std::min(open, all - open), all / 8) << "a gate with one side only";
  }

  // The norm's sums grow with the rows, so that what is taken off the gradient for them can be seen. Where
  // the gradient is an input, that is added to it before: what is left has a mean of about zero, as in
  // training, and a sum over rows shows when some are missing.
  void weigh_sums(const graph::Op& op) {
    const TensorId gradient = op.inputs[0], y = op.inputs[1], dgamma = op.inputs[6], dbeta = op.inputs[7];
    if (!inputs_.contains(dgamma)) return;
    if (inputs_.contains(gradient)) {
      const std::vector<float>& saved = inputs_.at(op.inputs[4]).values;
      const std::vector<float>&by_gamma = inputs_.at(dgamma).values, &by_beta = inputs_.at(dbeta).values;
      const float* of_y = inputs_.at(y).values.data();
      for_each(gradient, [&](std::size_t c, float& value) {
        value += by_beta[c] + by_gamma[c] * (*of_y++ - saved[c]) * saved[saved.size() / 2 + c];
      });
    }
    const Shape& shape = graph_.tensor(y).shape;
    for (TensorId sums : {dgamma, dbeta}) {
      for (float& sum : inputs_.at(sums).values) sum *= static_cast<float>(shape.n() * shape.h() * shape.w());
    }
  }

  const graph::Graph& graph_;
  std::map<TensorId, Input> inputs_;
};

std::unique_ptr<backend::Executable> run(plan::Plan plan, const Inputs& inputs, backend::Backend& on,
                                         int times) {
  auto executable = on.compile(std::make_shared<plan::Plan>(std::move(plan)), on.make_state());
  for (int i = 0; i < times; ++i) {
    inputs.write(*executable);
    executable->run(backend::Section::compute);
  }
  return executable;
}

bool are_merged(const plan::Plan& plan, const std::vector<int>& ops) {
  return std::ranges::any_of(plan.groups, [&](const plan::Group& group) {
    std::vector<int> all = group.ops;
    all.insert(all.end(), group.recomputes.begin(), group.recomputes.end());
    std::ranges::sort(all);
    return std::ranges::includes(all, ops);
  });
}

// Whether any of them, groups or rows of a backend's table, has this name.
bool any_named(const auto& all, const std::string& name) {
  return std::ranges::any_of(all, [&](const auto& one) { return one.name == name; });
}

struct Parameter {
  const char *group, *name;
  Sequence (*make)(CaseGraph&, const Images&);
  DType dtype;
  Images images;

  friend void PrintTo(const Parameter& parameter, std::ostream* to) { *to << parameter.group; }
};

std::vector<Parameter> parameters() {
  std::vector<Parameter> all;
  for (const cases::FusedGroup& group : cases::fused_groups()) {
    for (const cases::SequenceCase& sequence : group.sequences) {
      for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
        if (dtype == DType::f32 && !sequence.f32) continue;
        for (const Images& images : sequence.images)
          all.push_back({group.name, sequence.name, sequence.make, dtype, images});
      }
    }
  }
  return all;
}

class MergedTest : public testing::TestWithParam<Parameter> {};

TEST_P(MergedTest, AgreesWithReference) {
  const auto& [group, name, make, dtype, images] = GetParam();
  CaseGraph maker(dtype);
  const Sequence sequence = make(maker, images);
  const graph::Graph graph = maker.take();
  const auto reference = backend::make_reference_backend();
  std::optional<Inputs> inputs;
  std::unique_ptr<backend::Executable> expected;
  constexpr int kFastest = -1, kLast = 99;
  for (const int candidate : {0, 1, 2, 3, 4, kLast, kFastest}) {
    SCOPED_TRACE(fmt::format("candidate {}", candidate));
    std::unique_ptr<backend::Backend> on;
    try {
      on = backend::make_backend({.device = "cuda", .candidate = candidate});
    } catch (const UnavailableError& e) {
      GTEST_SKIP() << e.what();
    }
    if (!on->supports(graph::OpKind::conv, dtype)) GTEST_SKIP() << "not in this dtype";
    if (!inputs) {
      inputs.emplace(graph, dtype);
      expected = run(plan::make_plan(graph, *reference), *inputs, *reference, 1);
    }
    plan::Plan plan = plan::make_plan(graph, *on);
    if (sequence.over != kNone) {
      plan.placements[static_cast<std::size_t>(sequence.written)].offset =
          plan.placement(sequence.over).offset;
    }
    // Twice: what blocks count each other by is as it was when the first run ends.
    const auto actual = run(std::move(plan), *inputs, *on, 2);
    if (any_named(on->group_rows(), group)) {
      EXPECT_TRUE(any_named(actual->plan().groups, group));
      for (const std::vector<int>& ops : sequence.together) EXPECT_TRUE(are_merged(actual->plan(), ops));
    }
    cases::expect_agreement(*actual, *expected, dtype, sequence.between, sequence.rounded_twice);
  }
}

std::string parameter_name(const testing::TestParamInfo<Parameter>& info) {
  return fmt::format("{}_{}_{}_rows", info.param.name, name_of(info.param.dtype), info.param.images.name);
}

INSTANTIATE_TEST_SUITE_P(Groups, MergedTest, testing::ValuesIn(parameters()), parameter_name);

}  // namespace
}  // namespace redline
