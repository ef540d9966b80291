#include "bench/op_cases.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <variant>

#include "base/error.h"
#include "base/random.h"
#include "graph/operands.h"
#include "plan/layout.h"

namespace redline::bench {
namespace {

namespace operands = graph::operands;
using graph::kNone;
using graph::Op;
using graph::OpKind;
using graph::Shape;
using graph::Tensor;
using graph::TensorId;
using graph::TensorKind;

// What an input of an op holds.
enum class Role {
  values,
  weights,
  bytes,
  labels,
  other_labels,
  label_weights,
  scalars,
  check,
  gamma,
  beta,
  mean,
  variance,
  affine,
  saved,
  sums,
  mask,
  index
};

Role role_of(OpKind kind, std::size_t input) {
  using Roles = std::vector<Role>;
  static const std::map<OpKind, Roles> roles = {
      {OpKind::normalize_image, {Role::bytes}},
      {OpKind::conv, {Role::values, Role::weights}},
      {OpKind::batch_norm, {Role::values, Role::gamma, Role::beta, Role::mean, Role::variance}},
      {OpKind::linear, {Role::values, Role::weights, Role::beta}},
      {OpKind::softmax_cross_entropy,
       {Role::values, Role::labels, Role::variance, Role::other_labels, Role::label_weights}},
      {OpKind::norm_stats, {Role::values, Role::gamma, Role::beta, Role::mean, Role::variance, Role::sums}},
      {OpKind::affine_act, {Role::values, Role::affine, Role::values, Role::affine}},
      {OpKind::affine_pool, {Role::values, Role::affine}},
      {OpKind::conv_grad_input, {Role::values, Role::weights}},
      {OpKind::batch_norm_grad, {Role::values, Role::values, Role::gamma, Role::saved}},
      {OpKind::max_pool_grad, {Role::values, Role::index}},
      {OpKind::linear_grad_input, {Role::values, Role::weights}},
      {OpKind::norm_grad_stats,
       {Role::values, Role::values, Role::values, Role::affine, Role::mask, Role::saved}},
      {OpKind::norm_grad_apply,
       {Role::values, Role::values, Role::affine, Role::mask, Role::saved, Role::gamma, Role::beta,
        Role::beta}},
      {OpKind::snapshot, {Role::scalars}},
      {OpKind::accumulate, {Role::values, Role::values, Role::scalars}},
      {OpKind::gradient_check, {Role::scalars, Role::variance, Role::variance, Role::variance}},
      {OpKind::restore, {Role::check}},
      {OpKind::sgd, {Role::values, Role::values, Role::values, Role::scalars, Role::check}},
      {OpKind::lars, {Role::values, Role::values, Role::values, Role::scalars, Role::check}},
      {OpKind::adamw, {Role::values, Role::values, Role::values, Role::variance, Role::scalars, Role::check}},
      {OpKind::lamb, {Role::values, Role::values, Role::values, Role::variance, Role::scalars, Role::check}},
      {OpKind::ema, {Role::values, Role::values, Role::scalars, Role::check}},
  };
  const auto found = roles.find(kind);
  if (found == roles.end() || input >= found->second.size()) return Role::values;
  return found->second[input];
}

struct DescribeAttributes {
  std::string operator()(std::monostate) const { return ""; }
  std::string operator()(const graph::ConvAttr& a) const {
    return fmt::format(" stride {} pad {}", a.stride, a.pad) +
           (a.groups == 1 ? "" : fmt::format(" groups {}", a.groups));
  }
  std::string operator()(const graph::PoolAttr& a) const {
    return fmt::format(" window {} stride {} pad {}", a.kernel, a.stride, a.pad);
  }
  std::string operator()(const graph::LocalPoolAttr& a) const { return fmt::format(" window {}", a.kernel); }
  std::string operator()(const graph::NormAttr& a) const { return a.training ? "" : " inference"; }
  std::string operator()(const graph::ReduceAttr& a) const { return fmt::format(" in {}", name_of(a.wire)); }
  std::string operator()(const graph::ActAttr& a) const { return a.relu ? " relu" : ""; }
  std::string operator()(const graph::LossAttr& a) const {
    return fmt::format(" smoothing {:g}", a.smoothing);
  }
  std::string operator()(const graph::NormalizeAttr&) const { return ""; }
  std::string operator()(const graph::SgdAttr& a) const {
    return fmt::format(" momentum {:g} decay {:g}{}", a.momentum, a.weight_decay,
                       a.nesterov ? " nesterov" : "");
  }
  std::string operator()(const graph::AdamAttr& a) const {
    return fmt::format(" betas {:g} {:g} decay {:g}", a.beta1, a.beta2, a.weight_decay);
  }
  std::string operator()(const graph::ScaleAttr& a) const {
    return std::string(a.dynamic ? " dynamic" : "") +
           (a.clip_norm > 0 ? fmt::format(" clip {:g}", a.clip_norm) : "");
  }
  std::string operator()(const graph::LarsAttr& a) const {
    return fmt::format(" momentum {:g} decay {:g} trust {:g}", a.momentum, a.weight_decay, a.trust);
  }
};

std::string shapes_of(const graph::Graph& graph, const std::vector<TensorId>& ids) {
  constexpr std::size_t kMostListed = 8;  // an op has at most this many, or one for every layer
  std::string text;
  if (ids.size() > kMostListed) {
    std::int64_t elements = 0;
    for (TensorId id : ids) elements += id == kNone ? 0 : graph.tensor(id).shape.elements();
    return fmt::format("{} tensors of {}", ids.size(), elements);
  }
  for (TensorId id : ids) {
    text += text.empty() ? "" : ", ";
    text += id == kNone ? "-" : graph.tensor(id).shape.text();
  }
  return text;
}

// The element type of the data an op works on: that of its first floating-point activation, if it has one.
graph::DType working_dtype(const graph::Graph& graph, const Op& op) {
  for (const auto* ids : {&op.inputs, &op.outputs}) {
    for (TensorId id : *ids) {
      if (id == kNone) continue;
      const graph::DType dtype = graph.tensor(id).dtype;
      if (dtype != graph::DType::u8 && dtype != graph::DType::i32) return dtype;
    }
  }
  return graph::DType::f32;
}

std::vector<float> pool_indices(const OpCase& op_case, Random& random) {
  const auto& attr = op_case.op().attr<graph::PoolAttr>();
  const Shape& out = op_case.graph.tensor(op_case.op().inputs[operands::MaxPoolGrad::index]).shape;
  const Shape& in = op_case.graph.tensor(op_case.op().outputs[operands::MaxPoolGrad::dx]).shape;
  // A tap inside the image, by rejection: every window has one.
  const auto tap = [&](std::int64_t position, std::int64_t size) {
    for (;;) {
      const auto k = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(attr.kernel)));
      const std::int64_t i = position * attr.stride - attr.pad + k;
      if (i >= 0 && i < size) return k;
    }
  };
  std::vector<float> values;
  for (std::int64_t plane = 0; plane < out.n() * out.c(); ++plane) {
    for (std::int64_t y = 0; y < out.h(); ++y) {
      for (std::int64_t x = 0; x < out.w(); ++x) {
        const std::int64_t ky = tap(y, in.h()), kx = tap(x, in.w());
        values.push_back(static_cast<float>(ky * attr.kernel + kx));
      }
    }
  }
  return values;
}

// Terms in each sum over weights, so that weights can be scaled to give outputs near one.
double fan_in(const Op& op, const Shape& weights) {
  const bool transposed = op.kind == OpKind::conv_grad_input || op.kind == OpKind::linear_grad_input;
  double terms = static_cast<double>(transposed ? weights[0] : weights[1]);
  if (op.kind == OpKind::conv_grad_input) terms /= op.attr<graph::ConvAttr>().groups;
  if (weights.rank() == 4) terms *= static_cast<double>(weights[2] * weights[3]);
  return terms;
}

// The activation whose elements a mask's bits stand for.
TensorId masked_tensor(const Op& op) {
  return op.kind == OpKind::affine_act ? op.outputs[operands::AffineAct::z]
                                       : op.inputs[operands::NormGradStats::g];
}

// The stored position of every element in plain order. Elements are numbered, stored, and looked up. A number
// is stored in two parts, since fp32 is exact only up to 2^24.
std::vector<std::size_t> stored_positions(const Shape& shape, plan::Layout layout) {
  constexpr std::size_t kPart = 4096;
  const Tensor numbers{"", shape, graph::DType::i32, TensorKind::activation};
  const auto count = static_cast<std::size_t>(shape.elements());
  const auto stored_part = [&](auto&& part) {
    std::vector<float> plain(count);
    for (std::size_t i = 0; i < count; ++i) plain[i] = static_cast<float>(part(i));
    std::vector<std::int32_t> memory(static_cast<std::size_t>(plan::stored_elements(shape, layout)));
    plan::store(numbers, layout, plain, reinterpret_cast<std::byte*>(memory.data()));
    return memory;
  };
  const auto high = stored_part([](std::size_t i) { return i / kPart + 1; });
  const auto low = stored_part([](std::size_t i) { return i % kPart; });
  std::vector<std::size_t> positions(count);
  for (std::size_t i = 0; i < high.size(); ++i) {
    if (high[i] == 0) continue;  // padding
    positions[(static_cast<std::size_t>(high[i]) - 1) * kPart + static_cast<std::size_t>(low[i])] = i;
  }
  return positions;
}

}  // namespace

bool is_mask_input(OpKind kind, std::size_t input) { return role_of(kind, input) == Role::mask; }
bool is_mask_output(OpKind kind, std::size_t output) { return kind == OpKind::affine_act && output == 1; }

std::string describe(const graph::Graph& graph, const Op& op) {
  return fmt::format("{} {} -> {} {}{}", name_of(op.kind), shapes_of(graph, op.inputs),
                     shapes_of(graph, op.outputs), name_of(working_dtype(graph, op)),
                     std::visit(DescribeAttributes{}, op.attributes));
}

OpCase isolate(const graph::Graph& graph, const Op& op) {
  OpCase result;
  std::map<TensorId, TensorId> copies;
  const auto copy = [&](TensorId id) {
    if (id == kNone) return kNone;
    const auto known = copies.find(id);
    if (known != copies.end()) return known->second;
    return copies[id] = result.graph.add_tensor(graph.tensor(id));
  };
  Op lifted = op;
  for (TensorId& id : lifted.inputs) id = copy(id);
  for (TensorId& id : lifted.outputs) id = copy(id);
  result.graph.add_op(std::move(lifted));
  result.name = describe(result.graph, result.op());
  return result;
}

std::vector<float> input_values(const OpCase& op_case, std::size_t input, std::uint64_t seed) {
  const Op& op = op_case.op();
  const Tensor& tensor = op_case.graph.tensor(op.inputs[input]);
  const Role role = role_of(op.kind, input);
  Random random(seed, input);
  if (role == Role::index) return pool_indices(op_case, random);
  const Shape& shape = role == Role::mask ? op_case.graph.tensor(masked_tensor(op)).shape : tensor.shape;
  std::vector<float> values(static_cast<std::size_t>(shape.elements()));
  if (role == Role::scalars) {
    // In the order of StepScalar. A snapshot is taken for the first batch only.
    return {0.1F, 0.5F, 0.9F, op.kind == OpKind::snapshot ? 0.0F : 1.0F, 9.0F};
  }
  // In the order of StepCheck. Values are restored in a refused step only.
  if (role == Role::check) return {op.kind == OpKind::restore ? 0.0F : 1.0F, 0.25F, 3.0F, 2.0F, 5.0F};
  const double weight = role == Role::weights ? 1.0 / std::sqrt(fan_in(op, shape)) : 1.0;
  const std::size_t half = values.size() / 2;
  // Large tensors, which are only timed, repeat the values drawn.
  const std::size_t drawn = std::min(values.size(), std::size_t{1} << 20);
  for (std::size_t i = 0; i < drawn; ++i) {
    const auto draw = [&]() -> double {
      switch (role) {
        case Role::bytes:
          if (tensor.dtype != graph::DType::u8) return random.normal();
          return static_cast<double>(random.below(256));
        case Role::labels:
        case Role::other_labels: {  // one row in eight does not count, or is not mixed
          const Shape& logits = op_case.graph.tensor(op.inputs[operands::Loss::logits]).shape;
          const auto label = static_cast<double>(random.below(static_cast<std::uint64_t>(logits[1])));
          return values.size() > 1 && random.below(8) == 0 ? -1.0 : label;
        }
        case Role::label_weights:
          return random.uniform();
        case Role::gamma:
        case Role::variance:
          return random.uniform(0.5, 1.5);
        case Role::beta:
        case Role::mean:
          return random.uniform(-0.5, 0.5);
        case Role::affine: {  // scales of either sign, then biases
          const double scale = random.uniform(0.5, 1.5);
          return i >= half ? random.uniform(-0.5, 0.5) : random.below(4) == 0 ? -scale : scale;
        }
        case Role::saved:  // means, then inverse deviations
          return i < half ? random.uniform(-0.5, 0.5) : random.uniform(0.5, 2.0);
        case Role::sums: {  // sums, then sums of squares, of values with deviations near one
          const Shape& y = op_case.graph.tensor(op.inputs[operands::NormStats::y]).shape;
          const auto count = static_cast<double>(y.n() * y.h() * y.w());
          return count * (i < half ? random.uniform(-0.5, 0.5) : random.uniform(0.75, 1.25));
        }
        case Role::mask:
          return static_cast<double>(random.below(2));
        default:
          return weight * random.normal();
      }
    };
    values[i] = static_cast<float>(draw());
  }
  for (std::size_t i = drawn; i < values.size(); ++i) values[i] = values[i - drawn];
  return values;
}

void write_input(const OpCase& op_case, std::size_t input, const std::vector<float>& values,
                 backend::Executable& executable) {
  const Op& op = op_case.op();
  const TensorId id = op.inputs[input];
  const Tensor& tensor = op_case.graph.tensor(id);
  if (role_of(op.kind, input) == Role::mask) {
    const plan::Layout layout = executable.plan().placement(masked_tensor(op)).layout;
    const auto positions = stored_positions(op_case.graph.tensor(masked_tensor(op)).shape, layout);
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(tensor.shape.elements()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] != 0.0F) bytes[positions[i] / 8] |= static_cast<std::uint8_t>(1U << (positions[i] % 8));
    }
    return executable.write(id, std::vector<float>(bytes.begin(), bytes.end()));
  }
  if (tensor.kind != TensorKind::input) return executable.write(id, values);
  if (tensor.dtype == graph::DType::u8) {
    const std::vector<std::uint8_t> bytes(values.begin(), values.end());
    executable.write_input(id, bytes.data(), bytes.size());
  } else if (tensor.dtype == graph::DType::i32) {
    const std::vector<std::int32_t> ints(values.begin(), values.end());
    executable.write_input(id, ints.data(), ints.size() * sizeof(std::int32_t));
  } else {
    executable.write_input(id, values.data(), values.size() * sizeof(float));
  }
}

void fill_inputs(const OpCase& op_case, std::uint64_t seed, backend::Executable& executable) {
  for (std::size_t i = 0; i < op_case.op().inputs.size(); ++i) {
    if (op_case.op().inputs[i] == kNone) continue;
    write_input(op_case, i, input_values(op_case, i, seed), executable);
  }
}

std::vector<float> read_mask(const OpCase& op_case, std::size_t output,
                             const backend::Executable& executable) {
  const TensorId id = op_case.op().outputs[output];
  std::vector<float> bytes(static_cast<std::size_t>(op_case.graph.tensor(id).shape.elements()));
  executable.read(id, bytes);
  const TensorId masked = masked_tensor(op_case.op());
  const auto positions =
      stored_positions(op_case.graph.tensor(masked).shape, executable.plan().placement(masked).layout);
  std::vector<float> bits;
  for (std::size_t position : positions) {
    bits.push_back(static_cast<float>(static_cast<unsigned>(bytes[position / 8]) >> (position % 8) & 1U));
  }
  return bits;
}

}  // namespace redline::bench
