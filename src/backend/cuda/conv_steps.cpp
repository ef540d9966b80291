#include <algorithm>

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

bool gives_sums(const graph::Op& op) { return op.kind == OpKind::conv && op.outputs.size() > 1; }

ConvShape shape_of(const plan::Plan& plan, const graph::Op& op, ConvPass pass) {
  const ConvTensors t = tensors_of(op);
  const graph::Shape &x = plan.graph().tensor(t.x).shape, &w = plan.graph().tensor(t.w).shape;
  const graph::Shape& y = plan.graph().tensor(t.y).shape;
  const auto& attr = op.attr<graph::ConvAttr>();
  return {pass,        plan.graph().tensor(t.x).dtype,
          x.n(),       stored_channels(x, plan.placement(t.x).layout),
          x.h(),       x.w(),
          y.c(),       y.h(),
          y.w(),       static_cast<int>(w[2]),
          attr.stride, attr.pad};
}

Matrix matrix_of(const graph::Shape& shape) {
  return {shape.n() * shape.h() * shape.w(), static_cast<int>(shape.c())};
}

// What a separate pass over y costs, counted at a bandwidth that such a pass reaches.
double sums_milliseconds(const graph::Tensor& y) {
  constexpr double kBytesPerMillisecond = 3.5e9;
  return static_cast<double>(y.shape.elements()) * static_cast<double>(graph::size_of(y.dtype)) /
         kBytesPerMillisecond;
}

// A gradient that is wanted in fp32 though convolutions give the activations' type.
Step widened(std::shared_ptr<const ConvPlan> plan, ConvPointers pointers, const OpView& op, Shared& shared) {
  const Type type = type_of(op.in_tensor(0).dtype);
  const std::int64_t count = op.out_stored(0);
  auto narrow =
      std::make_shared<DeviceMemory>(static_cast<std::size_t>(count) * graph::size_of(op.in_tensor(0).dtype));
  pointers.w = narrow->data();
  return [=, plan = std::move(plan), dw = op.out<float>(0), &shared](cudaStream_t stream) {
    plan->run(pointers, shared.work(), stream);
    widen(type, count, narrow->data(), dw, stream);
  };
}

}  // namespace

ConvSteps::ConvSteps(const plan::Plan& plan, ConvLibrary& library) {
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
  const auto plans = library.find(shapes);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    Choice& choice = choices_[owners[i]];
    if (shapes[i].pass != ConvPass::forward_sums) {
      choice = {plans[i], gives_sums(*owners[i])};
    } else if (plans[i] != nullptr) {
      const double apart =
          choice.plan->milliseconds() + sums_milliseconds(plan.graph().tensor(owners[i]->outputs[0]));
      // Without timings (both from the cache) the fused one wins: it nearly always does.
      if (plans[i]->milliseconds() == 0.0 || plans[i]->milliseconds() <= apart) choice = {plans[i], false};
    }
  }
}

Step ConvSteps::make(const OpView& op, const graph::Op& key, std::byte* weights, Shared& shared) const {
  const Choice& choice = choices_.at(&key);
  ConvPointers pointers;
  switch (key.kind) {
    case OpKind::conv:
      pointers = {op.in(0), weights, op.out(0), op.out<float>(1)};
      break;
    case OpKind::conv_grad_input:
      pointers = {op.out(0), weights, op.in(0), nullptr};
      break;
    default:
      pointers = {op.in(0), op.out(0), op.in(1), nullptr};
      break;
  }
  shared.need(choice.plan->workspace_bytes());
  if (key.kind == OpKind::conv_grad_weight && op.out_tensor(0).dtype != op.in_tensor(0).dtype) {
    return widened(choice.plan, pointers, op, shared);
  }
  if (!choice.sums_apart) {
    return [plan = choice.plan, pointers, &shared](cudaStream_t stream) {
      plan->run(pointers, shared.work(), stream);
    };
  }
  const Matrix m = matrix_of(op.out_tensor(0).shape);
  const Type type = type_of(op.out_tensor(0).dtype);
  shared.need(reduce_partials(m, type) * sizeof(float));
  return [plan = choice.plan, pointers, m, type, &shared](cudaStream_t stream) {
    plan->run(pointers, shared.work(), stream);
    channel_sums(type, m, pointers.y, pointers.sums, shared.reduce_space(), stream);
  };
}

}  // namespace redline::backend::cuda
