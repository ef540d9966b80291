// A single op: a graph with one op, and how to fill its inputs. Tests compare a case with the reference;
// `redline bench op` times it at training sizes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "graph/graph.h"

namespace redline::bench {

struct OpCase {
  std::string name;          // describe() of its op
  graph::Graph graph;        // the op alone; a test of several in a row has a case for each
  std::size_t position = 0;  // of the op

  const graph::Op& op() const { return graph.ops()[position]; }
};

// What an op computes: "conv 32x64x56x56, 64x64x1x1 -> 32x64x56x56 fp32 stride 1 pad 0". Two ops with the
// same text do the same work.
std::string describe(const graph::Graph& graph, const graph::Op& op);

// The op lifted out of a graph with the tensors it touches.
OpCase isolate(const graph::Graph& graph, const graph::Op& op);

// Random values, in plain order, that suit an input of the op: normal activations, weights that keep the
// output near one, valid labels and pool indices, positive variances. The same for the same seed. Masks are
// one value of 0 or 1 per element of the activation they belong to.
std::vector<float> input_values(const OpCase& op_case, std::size_t input, std::uint64_t seed);

// Writes an input of the op in the layout of its tensor in `executable`; `values` as from input_values.
void write_input(const OpCase& op_case, std::size_t input, const std::vector<float>& values,
                 backend::Executable& executable);
// Fills all inputs: the tensors of the case that its op does not write.
void fill_inputs(const OpCase& op_case, std::uint64_t seed, backend::Executable& executable);

// The bits of a mask that the op wrote, one value per element of the activation, in plain order.
std::vector<float> read_mask(const OpCase& op_case, std::size_t output,
                             const backend::Executable& executable);

// Whether an input is the bit mask of an activation, and the activation that it belongs to.
bool is_mask_input(graph::OpKind kind, std::size_t input);
bool is_mask_output(graph::OpKind kind, std::size_t output);

}  // namespace redline::bench
