// The table of the cuda backend's fused groups: sequences of ops that must become one, and how many of them
// training a ResNet-50 has. A new row of src/backend/cuda/groups.h is a row here; agreement of all its
// candidates with the reference, and the counts, follow.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "case_graph.h"

namespace redline::cases {

struct Images {
  const char* name;
  std::int64_t count, h, w;
  graph::Shape with(std::int64_t channels) const { return {count, channels, h, w}; }
};

// What a maker adds to a graph.
struct Sequence {
  std::vector<std::vector<int>> together;  // positions of the ops that are merged
  std::set<graph::TensorId> between;  // tensors that merged ops need not write, or may write gated already
  std::set<graph::TensorId> rounded_twice = {};
  // In place: on the device the latter lies where the former does.
  graph::TensorId over = graph::kNone, written = graph::kNone;
};

// A sequence, and the images that it is tried with, in fp16 and bf16.
struct SequenceCase {
  const char* name;
  Sequence (*make)(CaseGraph&, const Images&);
  std::vector<Images> images;
  bool f32 = false;  // in fp32 too
};

struct FusedGroup {
  const char* name;  // of its row; empty for ops that stay alone
  int in_resnet50;   // groups in a training step in fp16, on a GPU that has all kernels
  std::vector<SequenceCase> sequences;
};

// In the order of the backend's rows.
const std::vector<FusedGroup>& fused_groups();

}  // namespace redline::cases
