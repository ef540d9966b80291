// Runs one op on the reference backend with given values, for tests that compute by hand what must come out.
#pragma once

#include <optional>
#include <vector>

#include "graph/op.h"

namespace redline::cases {

// A tensor and its values in plain order.
struct Value {
  graph::Shape shape;
  std::vector<float> values;
  graph::DType dtype = graph::DType::f32;
};

// An input given twice (same position in `in_place`) is also an output, as updates want it: in_place[k] is
// the input that output k is written to, -1 for an output of its own.
struct OpRun {
  graph::OpKind kind;
  std::vector<std::optional<Value>> inputs;
  std::vector<std::optional<Value>> outputs;  // shape and dtype; values are ignored
  graph::Attributes attributes = {};
  std::vector<int> in_place = {};
};

struct OpResult {
  std::vector<std::vector<float>> inputs;   // after the run: running statistics move
  std::vector<std::vector<float>> outputs;  // empty for an absent one
};

OpResult run_op(const OpRun& run);

}  // namespace redline::cases
