#include <fmt/format.h>

#include <algorithm>

#include "backend/cuda/kernels/stem_conv.h"
#include "backend/cuda/step.h"

namespace redline::backend::cuda {
namespace {

using graph::OpKind;

std::int64_t stored_channels(const graph::Shape& shape, plan::Layout layout) {
  return layout == plan::Layout::channels_last4 ? (shape[1] + 3) / 4 * 4 : shape[1];
}

struct ConvTensors {
  graph::TensorId x, w, y;
};

ConvTensors tensors_of(const graph::Op& op) {
  switch (op.kind) {
    case OpKind::conv:
      return {op.inputs[0], op.inputs[1], op.outputs[0]};
    case OpKind::conv_grad_input:
      return {op.outputs[0], op.inputs[1], op.inputs[0]};
    case OpKind::conv_grad_weight:
      return {op.inputs[0], op.outputs[0], op.inputs[1]};
    default:
      throw InternalError("{} is no convolution", name_of(op.kind));
  }
}

bool is_folded(const plan::Plan& plan, const graph::Op& op) {
  return plan.placement(tensors_of(op).x).layout == plan::Layout::folded;
}

bool gives_sums(const graph::Op& op) { return plan::sums_of(op) != graph::kNone; }

ConvShape shape_of(const plan::Plan& plan, const graph::Op& op, ConvPass pass) {
  const ConvTensors t = tensors_of(op);
  const graph::Shape &x = plan.graph().tensor(t.x).shape, &w = plan.graph().tensor(t.w).shape;
  const graph::Shape& y = plan.graph().tensor(t.y).shape;
  const auto& attr = op.attr<graph::ConvAttr>();
  ConvShape shape{pass,        plan.graph().tensor(t.x).dtype,
                  x.n(),       stored_channels(x, plan.placement(t.x).layout),
                  x.h(),       x.w(),
                  y.c(),       y.h(),
                  y.w(),       static_cast<int>(w[2]),
                  attr.stride, attr.pad};
  if (is_folded(plan, op)) {
    shape.c = 16;
    shape.h = y.h() + 3;
    shape.w = y.w() + 3;
    shape.kernel = 4;
    shape.stride = 1;
    shape.pad = 0;
  }
  return shape;
}

Matrix matrix_of(const graph::Shape& shape) {
  return {shape.n() * shape.h() * shape.w(), static_cast<int>(shape.c())};
}

// The stem's shape where kernels of our own can do it; none of the others has three channels.
std::optional<StemShape> stem_of(const plan::Plan& plan, const graph::Op& op, const cudaDeviceProp& device) {
  const ConvTensors t = tensors_of(op);
  const graph::Tensor& x = plan.graph().tensor(t.x);
  if (plan.placement(t.x).layout != plan::Layout::channels_last4 || x.shape.c() != 3 ||
      plan.graph().tensor(t.y).dtype != x.dtype) {
    return std::nullopt;
  }
  const graph::Shape& w = plan.graph().tensor(t.w).shape;
  const auto& attr = op.attr<graph::ConvAttr>();
  const StemShape shape{type_of(x.dtype),
                        static_cast<int>(x.shape.n()),
                        static_cast<int>(x.shape.h()),
                        static_cast<int>(x.shape.w()),
                        static_cast<int>(w[0]),
                        static_cast<int>(w[2]),
                        attr.stride,
                        attr.pad};
  return shape.possible(device) ? std::optional(shape) : std::nullopt;
}

// A gradient that is wanted in fp32 though convolutions give the activations' type.
Step widened(std::shared_ptr<const ConvPlan> plan, ConvPointers pointers, const OpView& op, Shared& shared) {
  const Type type = type_of(op.in_tensor(0).dtype);
  const std::int64_t count = op.out_stored(0);
  auto narrow =
      std::make_shared<DeviceMemory>(static_cast<std::size_t>(count) * graph::size_of(op.in_tensor(0).dtype));
  pointers.w = narrow->data();
  return [=, plan = std::move(plan), dw = op.out<float>(0), &shared](cudaStream_t stream) {
    plan->run(pointers, shared.beside().data(), stream);
    widen(type, count, narrow->data(), dw, stream);
  };
}

}  // namespace

ConvSteps::ConvSteps(const plan::Plan& plan, const Places& places, Shared& shared)
    : plan_(plan), places_(places), shared_(shared) {
  std::vector<ConvShape> shapes;
  std::vector<const graph::Op*> owners;
  for (const graph::Op& op : plan.graph().ops()) {
    const auto ask = [&](ConvPass pass) {
      shapes.push_back(shape_of(plan, op, pass));
      owners.push_back(&op);
    };
    switch (op.kind) {
      case OpKind::conv:
        ask(ConvPass::forward);
        if (gives_sums(op)) ask(ConvPass::forward_sums);
        break;
      case OpKind::conv_grad_input:
        ask(ConvPass::grad_input);
        break;
      case OpKind::conv_grad_weight:
        ask(ConvPass::grad_weight);
        break;
      default:
        break;
    }
  }
  const auto plans = shared.convs().find(shapes);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    Found& found = found_[owners[i]];
    (shapes[i].pass == ConvPass::forward_sums ? found.with_sums : found.plain) = plans[i];
  }
}

Ways ConvSteps::make(const graph::Op& key) const {
  const OpView op(plan_, key, places_.address);
  const Found& found = found_.at(&key);
  if (key.kind == OpKind::conv_grad_weight) {
    shared_.beside().need(found.plain->workspace_bytes());
    const ConvPointers pointers{op.in(0), op.out(0), op.in(1), nullptr};
    Step step = [plan = found.plain, pointers, &shared = shared_](cudaStream_t stream) {
      plan->run(pointers, shared.beside().data(), stream);
    };
    const bool widens = op.out_tensor(0).dtype != op.in_tensor(0).dtype;
    if (widens) step = widened(found.plain, pointers, op, shared_);
    if (!is_folded(plan_, key)) {
      Ways ways{fmt::format("stem{}_{}", widens ? "_widened" : "",
                            shape_of(plan_, key, ConvPass::grad_weight).key()),
                {{step}}};
      const auto stem = stem_of(plan_, key, shared_.device());
      if (!stem) return ways;
      const StemWeightGradient own(*stem, shared_.device(), op.in(0), op.in(1), op.out(0),
                                   type_of(op.out_tensor(0).dtype));
      shared_.beside().need(own.partials() * sizeof(float));
      ways.ways.push_back({[own, &shared = shared_](cudaStream_t stream) {
        own.run(reinterpret_cast<float*>(shared.beside().data()), stream);
      }});
      return ways;
    }
    return {"",
            {{[step, type = type_of(op.out_tensor(0).dtype), dw = op.out(0),
               filters = op.out_tensor(0).shape[0]](cudaStream_t stream) {
              step(stream);
              clear_folded_padding(type, filters, dw, stream);
            }}}};
  }
  std::byte* weights = places_.weights(key.inputs[1], op.in_tensor(0).dtype);
  const auto by_cudnn = [&](const std::shared_ptr<const ConvPlan>& plan,
                            const ConvPointers& pointers) -> Step {
    // Counters, mostly: in memory of their own they can be cleared before the step.
    if (const auto own = shared_.need_own(plan->workspace_bytes())) {
      return [plan, pointers, at = *own, &shared = shared_](cudaStream_t stream) {
        plan->run(pointers, shared.own_work(at), stream);
      };
    }
    shared_.need(plan->workspace_bytes());
    return [plan, pointers, &shared = shared_](cudaStream_t stream) {
      plan->run(pointers, shared.work(), stream);
    };
  };
  if (key.kind == OpKind::conv_grad_input) {
    return {"", {{by_cudnn(found.plain, {op.out(0), weights, op.in(0), nullptr})}}};
  }
  const ConvPointers pointers{op.in(0), weights, op.out(0), op.out<float>(1)};
  const auto stem = stem_of(plan_, key, shared_.device());
  const auto by_stem = [&]() -> Step {
    const StemForward own(*stem, shared_.device(), op.in(0), weights, op.out(0), pointers.sums);
    shared_.need(own.partials() * sizeof(float));
    return [own, &shared = shared_](cudaStream_t stream) { own.run(shared.reduce_space(), stream); };
  };
  if (!gives_sums(key)) {
    Ways ways{"plain_" + shape_of(plan_, key, ConvPass::forward).key(), {{by_cudnn(found.plain, pointers)}}};
    if (stem) ways.ways.push_back({by_stem()});
    return ways;
  }
  const Matrix m = matrix_of(op.out_tensor(0).shape);
  const Type type = type_of(op.out_tensor(0).dtype);
  shared_.need(reduce_partials(m, type) * sizeof(float));
  Ways ways{"sums_" + shape_of(plan_, key, ConvPass::forward_sums).key(), {}};
  ways.ways.push_back(
      {[apart = by_cudnn(found.plain, pointers), m, type, pointers, &shared = shared_](cudaStream_t stream) {
        apart(stream);
        channel_sums(type, m, pointers.y, nullptr, pointers.sums, shared.reduce_space(), stream);
      }});
  if (found.with_sums != nullptr) ways.ways.push_back({by_cudnn(found.with_sums, pointers)});
  for (const Step& own : make_pointwise_sums(op, weights, shared_)) ways.ways.push_back({own});
  if (stem) ways.ways.push_back({by_stem()});
  return ways;
}

}  // namespace redline::backend::cuda
