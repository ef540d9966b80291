#include "backend/cuda/groups.h"
#include "backend/cuda/kernels/stem_conv.h"

namespace redline::backend::cuda {
namespace {

using operands::conv_tensors;
using operands::ConvTensors;

// Prefixes of candidates' names; the name of cuDNN's plan follows.
constexpr const char *kCudnn = "cudnn ", *kCudnnSums = "cudnn_sums ";

bool is_folded(const plan::Plan& plan, const graph::Op& op) {
  return plan.placement(conv_tensors(op).x).layout == plan::Layout::folded;
}

bool gives_sums(const graph::Op& op) { return plan::sums_of(op) != graph::kNone; }

// The pass that computes all outputs of the op.
ConvPass pass_of(const graph::Op& op) {
  if (op.kind == OpKind::conv_grad_input) return ConvPass::grad_input;
  if (op.kind == OpKind::conv_grad_weight) return ConvPass::grad_weight;
  return gives_sums(op) ? ConvPass::forward_sums : ConvPass::forward;
}

ConvShape shape_of(const plan::Plan& plan, const graph::Op& op, ConvPass pass) {
  const ConvTensors t = conv_tensors(op);
  const graph::Shape &x = plan.graph().tensor(t.x).shape, &w = plan.graph().tensor(t.w).shape;
  const graph::Shape& y = plan.graph().tensor(t.y).shape;
  const auto& attr = op.attr<graph::ConvAttr>();
  check(attr.groups == 1 || plan.placement(t.w).layout == plan::Layout::channels_last,
        "'{}' has groups of padded channels", op.name);
  ConvShape shape{.pass = pass,
                  .dtype = plan.graph().tensor(t.x).dtype,
                  .n = x.n(),
                  .c = x.c(),
                  .h = x.h(),
                  .w = x.w(),
                  .k = y.c(),
                  .out_h = y.h(),
                  .out_w = y.w(),
                  .kernel = static_cast<int>(w[2]),
                  .stride = attr.stride,
                  .pad = attr.pad,
                  .groups = attr.groups};
  if (plan.placement(t.x).layout == plan::Layout::channels_last4) shape.c = (x.c() + 3) / 4 * 4;
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

// The stem's shape, if our own kernels support it. No other convolution reads three channels.
std::optional<StemShape> stem_of(const plan::Plan& plan, const graph::Op& op) {
  const ConvTensors t = conv_tensors(op);
  const graph::Tensor& x = plan.graph().tensor(t.x);
  if (plan.placement(t.x).layout != plan::Layout::channels_last4 || x.shape.c() != 3 ||
      plan.graph().tensor(t.y).dtype != x.dtype) {
    return std::nullopt;
  }
  const graph::Shape& w = plan.graph().tensor(t.w).shape;
  const auto& attr = op.attr<graph::ConvAttr>();
  const StemShape shape{type_of(x.dtype),       images_of(x.shape), static_cast<int>(w[0]),
                        static_cast<int>(w[2]), attr.stride,        attr.pad};
  return shape.possible() ? std::optional(shape) : std::nullopt;
}

Step cudnn_step(std::shared_ptr<const ConvPlan> plan, const ConvPointers& pointers, Shared& shared) {
  // Mostly counters: with memory of their own, they can be cleared at the start of the step.
  const std::optional<std::size_t> own = shared.need_own(plan->workspace_bytes);
  if (!own) shared.need(plan->workspace_bytes);
  return [plan = std::move(plan), pointers, own, &shared](cudaStream_t stream) {
    plan->run(pointers, own ? shared.own_work(*own) : shared.work(), stream);
  };
}

// A candidate for each plan that cuDNN has for a shape; `make` turns a plan into a step.
template <typename Make>
void add_cudnn(Candidates& candidates, const char* prefix, const ConvShape& shape, Shared& shared,
               const Make& make) {
  candidates.cudnn.push_back({prefix, shape});
  for (const auto& plan : shared.convs().plans(shape)) {
    candidates.list.push_back({prefix + plan->name, [plan, make] { return make(plan); }});
  }
}

// The steps of a weight gradient: its kernel; widening, if fp32 is wanted but the kernel's output has the
// activations' type; clearing of the padding; addition to a total.
Step finished_weight_gradient(const GroupView& group, const Step& kernel,
                              std::shared_ptr<DeviceMemory> narrow) {
  const OpView op = group.op(OpKind::conv_grad_weight);
  using Grad = operands::ConvGradWeight;
  std::vector<Step> steps{kernel};
  if (narrow != nullptr) {
    steps.push_back([narrow = std::move(narrow), type = type_of(op.in_tensor(Grad::x).dtype),
                     count = op.out_stored(Grad::dw), dw = op.out<float>(Grad::dw)](cudaStream_t stream) {
      widen(type, count, narrow->data(), dw, stream);
    });
  }
  if (is_folded(group.plan(), op.op())) {
    const graph::Tensor& dw = op.out_tensor(Grad::dw);
    steps.push_back([type = type_of(dw.dtype), filters = dw.shape[0], to = op.out(Grad::dw)](
                        cudaStream_t stream) { clear_folded_padding(type, filters, to, stream); });
  }
  if (group.has(OpKind::accumulate)) steps.push_back(accumulate_step(group.op(OpKind::accumulate)));
  if (steps.size() == 1) return kernel;
  return [steps](cudaStream_t stream) {
    for (const Step& step : steps) step(stream);
  };
}

Step cudnn_weight_gradient(const GroupView& group, std::shared_ptr<const ConvPlan> plan, Shared& shared) {
  using Grad = operands::ConvGradWeight;
  const OpView op = group.op(OpKind::conv_grad_weight);
  ConvPointers pointers{op.in(Grad::x), op.out(Grad::dw), op.in(Grad::dy), nullptr};
  std::shared_ptr<DeviceMemory> narrow;
  if (const DType dtype = op.in_tensor(Grad::x).dtype; dtype != op.out_tensor(Grad::dw).dtype) {
    narrow = std::make_shared<DeviceMemory>(static_cast<std::size_t>(op.out_stored(Grad::dw)) *
                                            graph::size_of(dtype));
    pointers.w = narrow->data();
  }
  shared.side_work().need(plan->workspace_bytes);
  const Step kernel = [plan = std::move(plan), pointers, &shared](cudaStream_t stream) {
    plan->run(pointers, shared.side_work().data(), stream);
  };
  return finished_weight_gradient(group, kernel, std::move(narrow));
}

// The tuning key: the shape, and whether the result is widened.
std::string key_of(const GroupView& group, const OpView& op) {
  const bool widened =
      op.kind() == OpKind::conv_grad_weight &&
      op.in_tensor(operands::ConvGradWeight::x).dtype != op.out_tensor(operands::ConvGradWeight::dw).dtype;
  return shape_of(group.plan(), op.op(), pass_of(op.op())).key() + (widened ? "_widened" : "");
}

Candidates grad_input_by(const GroupView& group, const ConvShape& shape, std::string key, Shared& shared) {
  using operands::ConvGradInput;
  const OpView op = group.op();
  const ConvPointers pointers{op.out(ConvGradInput::dx), group.weights(op), op.in(ConvGradInput::dy),
                              nullptr};
  Candidates candidates{std::move(key)};
  add_cudnn(candidates, kCudnn, shape, shared,
            [=, &shared](const auto& plan) { return cudnn_step(plan, pointers, shared); });
  return candidates;
}

}  // namespace

std::string ConvShape::key() const {
  constexpr const char* kPasses[] = {"forward", "forward_sums", "grad_input", "grad_weight"};
  return fmt::format("{}_{}_n{}c{}h{}w{}k{}r{}s{}p{}", kPasses[static_cast<int>(pass)], name_of(dtype), n, c,
                     h, w, k, kernel, stride, pad) +
         (groups == 1 ? "" : fmt::format("g{}", groups));
}

Candidates make_conv(const GroupView& group, Shared& shared) {
  using operands::Conv;
  const OpView op = group.op();
  const ConvPointers pointers{op.in(Conv::x), group.weights(op), op.out(Conv::y), op.out<float>(Conv::sums)};
  const bool sums = gives_sums(op.op());
  Candidates candidates{key_of(group, op)};
  if (const auto stem = stem_of(group.plan(), op.op())) {
    candidates.list.push_back({"stem", [=, stem = *stem, &shared] {
                                 return reducing_step(stem_forward(stem, shared.device(), pointers.x,
                                                                   pointers.w, pointers.y, pointers.sums),
                                                      shared);
                               }});
  }
  if (sums) {
    for (Candidate& own : pointwise_convs(group, shared)) candidates.list.push_back(std::move(own));
    add_cudnn(candidates, kCudnnSums, shape_of(group.plan(), op.op(), ConvPass::forward_sums), shared,
              [=, &shared](const auto& plan) { return cudnn_step(plan, pointers, shared); });
  }
  const Matrix m = matrix_of(op.out_tensor(Conv::y));
  add_cudnn(candidates, kCudnn, shape_of(group.plan(), op.op(), ConvPass::forward), shared,
            [=, &shared](const auto& plan) -> Step {
              const Step conv = cudnn_step(plan, pointers, shared);
              if (!sums) return conv;
              shared.need(reduce_partials(m) * sizeof(float));
              return [=, &shared](cudaStream_t stream) {
                conv(stream);
                channel_sums(m, pointers.y, nullptr, pointers.sums, shared.reduce_space(), stream);
              };
            });
  return candidates;
}

Candidates make_conv_grad_input(const GroupView& group, Shared& shared) {
  const OpView op = group.op();
  return grad_input_by(group, shape_of(group.plan(), op.op(), ConvPass::grad_input), key_of(group, op),
                       shared);
}

Candidates make_dense_grad_input(const GroupView& group, Shared& shared) {
  const OpView op = group.op();
  ConvShape shape = shape_of(group.plan(), op.op(), ConvPass::grad_input);
  shape.h = shape.out_h;
  shape.w = shape.out_w;
  shape.stride = 1;
  return grad_input_by(group, shape, key_of(group, op) + "_dense", shared);
}

Step own_weight_gradient(const GroupView& group, const TileLaunch& own, Shared& shared) {
  shared.side_work().need(own.partials * sizeof(float));
  const Step kernel = [own, &shared](cudaStream_t stream) {
    own.run({reinterpret_cast<float*>(shared.side_work().data()), nullptr}, stream);
  };
  return finished_weight_gradient(group, kernel, nullptr);
}

// Nothing but the update waits for a weight gradient: conv_grad_weight, and its addition to a total.
plan::Group match_weight_gradient(const plan::Node& op) {
  if (!op.is(OpKind::conv_grad_weight)) return {};
  plan::Group group{.ops = {op.position}, .side_stream = true};
  if (const plan::Node total = op.reader(operands::ConvGradWeight::dw, OpKind::accumulate))
    group.ops.push_back(total.position);
  return group;
}

Candidates make_weight_gradient(const GroupView& group, Shared& shared) {
  using Grad = operands::ConvGradWeight;
  const OpView op = group.op(OpKind::conv_grad_weight);
  Candidates candidates{key_of(group, op)};
  if (const auto stem = stem_of(group.plan(), op.op())) {
    candidates.list.push_back(
        {"stem", [=, stem = *stem, to = type_of(op.out_tensor(Grad::dw).dtype), &shared] {
           return own_weight_gradient(group,
                                      stem_weight_gradient(stem, shared.device(), op.in(Grad::x),
                                                           op.in(Grad::dy), op.out(Grad::dw), to),
                                      shared);
         }});
  }
  add_cudnn(candidates, kCudnn, shape_of(group.plan(), op.op(), ConvPass::grad_weight), shared,
            [group, &shared](const auto& plan) { return cudnn_weight_gradient(group, plan, shared); });
  return candidates;
}

}  // namespace redline::backend::cuda
