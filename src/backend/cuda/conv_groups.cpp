// 1x1 and 3x3 convolutions fused with the norms around them, on Hopper: each saves a pass over memory.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "backend/cuda/group_table.h"
#include "backend/cuda/kernels/conv3x3.h"
#include "backend/cuda/kernels/gemm.h"
#include "backend/cuda/step.h"

namespace redline::backend::cuda {
namespace {

using operands::EitherConv;

int channels(const graph::Tensor& tensor) { return static_cast<int>(tensor.shape.c()); }

std::vector<Candidate> gemm_steps(const Gemm& work, Shared& shared) {
  std::vector<Candidate> found;
  for (const GemmCandidate& candidate : gemm_candidates(work, shared.device())) {
    const auto& [form, blocks_each] = candidate;
    found.push_back(
        {fmt::format("gemm {} columns, {} staged, {} blocks", form.columns, form.staging, blocks_each),
         [=, &shared] { return reducing_step(gemm(work, shared.device(), candidate), shared); }});
  }
  return found;
}

// The convolution of a GEMM, forward or back to its input.
Gemm gemm_of(const GroupView& group, const OpView& conv) {
  const graph::Tensor &from = conv.in_tensor(EitherConv::from), &to = conv.out_tensor(EitherConv::to);
  return {.type = type_of(from.dtype),
          .rows = matrix_of(to).rows,
          .k = channels(from),
          .n = channels(to),
          .a = conv.in(EitherConv::from),
          .b = group.weights(conv),
          .out = conv.out(EitherConv::to)};
}

// Forward with the norm's sums.
Gemm forward_of(const GroupView& group, const OpView& conv) {
  Gemm work = gemm_of(group, conv);
  work.sums = conv.out<float>(operands::Conv::sums);
  return work;
}

// Its input gradient, with the sums of the norm that it arrives at.
Gemm gradient_of(const GroupView& group, const OpView& conv) {
  using Stats = operands::NormGradStats;
  const OpView sums = group.op(OpKind::norm_grad_stats);
  const bool dx_first = sums.op().inputs[Stats::g] == conv.op().outputs[EitherConv::to];
  Gemm work = gemm_of(group, conv);
  work.epilogue = sums.in(Stats::mask) != nullptr ? Epilogue::joined : Epilogue::gated;
  if (sums.out(Stats::masked) != nullptr) work.out = sums.out(Stats::masked);
  work.before = gated_norm_of(sums);
  work.other = sums.in(dx_first ? Stats::g2 : Stats::g);
  return work;
}

Gemm gradient_of(const GroupView& group) { return gradient_of(group, group.op(OpKind::conv_grad_input)); }

// One of the two input gradients of sparse_gradient_sums, of stride 1 and of stride 2.
OpView input_gradient(const GroupView& group, int stride) {
  for (const OpView& op : group.ops()) {
    if (op.kind() == OpKind::conv_grad_input && op.attr<graph::ConvAttr>().stride == stride) return op;
  }
  throw InternalError("group '{}' has no convolution of stride {}", group.group().name, stride);
}

Gemm norm_gradient_of(const GroupView& group) {
  using Apply = operands::NormGradApply;
  const OpView apply = group.op(OpKind::norm_grad_apply);
  Gemm work = gradient_of(group);
  work.prologue = Prologue::norm_grad;
  work.a = apply.in(Apply::y);
  work.a2 = apply.in(Apply::g);
  work.made = apply.out(Apply::dy);
  work.after = norm_grad_apply_of(apply);
  return work;
}

Gemm join_of(const GroupView& group, const Shared& shared) {
  using Act = operands::AffineAct;
  const OpView act = group.op(OpKind::affine_act);
  Gemm work = forward_of(group, group.op(OpKind::conv));
  work.prologue = Prologue::join;
  work.a = act.in(Act::y);
  work.a2 = act.in(Act::shortcut);
  work.made = act.out(Act::z);
  work.affine = act.in<float>(Act::affine);
  work.a2_affine = act.in<float>(Act::shortcut_affine);
  work.made_mask = act.out<std::uint8_t>(Act::mask);
  if (group.has(OpKind::norm_stats)) {
    work.finalizes = true;
    work.norm = norm_finalize_of(group.op(OpKind::norm_stats), shared);
  }
  return work;
}

Gemm activated_of(const GroupView& group, const Shared& shared) {
  const OpView norm = group.op(OpKind::norm_stats);
  Gemm work = forward_of(group, group.op(OpKind::conv));
  work.prologue = Prologue::activate;
  work.a = norm.in(operands::NormStats::y);
  work.finalizes = true;
  work.norm = norm_finalize_of(norm, shared);
  if (group.group().unstored.empty()) work.made = group.op(OpKind::affine_act).out(operands::AffineAct::z);
  return work;
}

Conv3x3 conv3x3_of(const GroupView& group, const OpView& conv) {
  const graph::Tensor &from = conv.in_tensor(EitherConv::from), &to = conv.out_tensor(EitherConv::to);
  return {.type = type_of(from.dtype),
          .from = images_of(from.shape),
          .to = channels(to),
          .gradient = conv.kind() == OpKind::conv_grad_input,
          .x = conv.in(EitherConv::from),
          .weights = group.weights(conv),
          .out = conv.out(EitherConv::to)};
}

Conv3x3 activated_conv_of(const GroupView& group, const Shared& shared) {
  const OpView act = group.op(OpKind::affine_act), conv = group.op(OpKind::conv);
  Conv3x3 work = conv3x3_of(group, conv);
  work.norm = norm_finalize_of(group.op(OpKind::norm_stats), shared);
  work.x = act.in(operands::AffineAct::y);
  if (group.group().unstored.empty()) work.activated = act.out(operands::AffineAct::z);
  work.sums = conv.out<float>(operands::Conv::sums);
  return work;
}

Conv3x3 gated_gradient_of(const GroupView& group) {
  Conv3x3 work = conv3x3_of(group, group.op(OpKind::conv_grad_input));
  work.before = gated_norm_of(group.op(OpKind::norm_grad_stats));
  return work;
}

// Candidates for a whole group around a 3x3 convolution, the largest tiles first.
std::vector<Candidate> conv3x3_candidates(const GroupView& group, Shared& shared) {
  const Conv3x3 work = group.has(OpKind::conv) ? activated_conv_of(group, shared) : gated_gradient_of(group);
  std::vector<Candidate> found;
  for (const int size : conv3x3::tile_sizes(work.from, work.to)) {
    found.push_back({fmt::format("conv3x3 tiles of {}", size), [work, size, &shared] {
                       return reducing_step(conv3x3_conv(work, shared.device(), size), shared);
                     }});
  }
  return found;
}

// The tuning key: the shape of a group's convolution, and what is fused with it.
std::string key_of(const GroupView& group) {
  const std::string& name = group.group().name;
  const bool sparse = name == groups::kSparseGradientSums;
  const OpView conv = sparse ? input_gradient(group, 1)
                             : group.op(group.has(OpKind::conv) ? OpKind::conv : OpKind::conv_grad_input);
  const graph::Tensor &from = conv.in_tensor(EitherConv::from), &to = conv.out_tensor(EitherConv::to);
  const std::string key = fmt::format("{}{}{}_{}_n{}h{}w{}c{}k{}", name, group.group().ops.size(),
                                      group.group().unstored.empty() ? "" : "_unstored", name_of(from.dtype),
                                      to.shape.n(), to.shape.h(), to.shape.w(), channels(from), channels(to));
  return sparse ? fmt::format("{}c{}", key, channels(input_gradient(group, 2).in_tensor(EitherConv::from)))
                : key;
}

// Two steps, one after the other; the first may be empty.
std::function<Step()> one_after_other(const std::function<Step()>& first,
                                      const std::function<Step()>& second) {
  if (!first) return second;
  return [=]() -> Step {
    return [a = first(), b = second()](cudaStream_t stream) {
      a(stream);
      b(stream);
    };
  };
}

// Adds candidates that run a group part by part, one for each combination of the parts' candidates. (A part
// has none if cuDNN built no plans because another candidate is certain to be taken.)
void add_in_parts(Candidates& candidates, const std::string& prefix, const std::vector<Candidates>& parts) {
  std::vector<Candidate> found{{prefix, nullptr}};
  for (const Candidates& part : parts) {
    std::vector<Candidate> longer;
    for (const Candidate& begun : found) {
      for (const Candidate& next : part.list) {
        const std::string name = next.name.empty() || begun.name == prefix ? next.name : kWith + next.name;
        longer.push_back({begun.name + name, one_after_other(begun.make, next.make)});
      }
    }
    found = std::move(longer);
  }
  candidates.list.insert(candidates.list.end(), found.begin(), found.end());
  for (const Candidates& part : parts) {
    for (const auto& [name, shape] : part.cudnn) candidates.cudnn.push_back({prefix + name, shape});
  }
}

// The parts of a group, around a forward convolution or an input gradient.
std::vector<Candidates> parts_of(const GroupView& group, Shared& shared) {
  if (group.has(OpKind::conv))
    return {make_affine_act(group.part({OpKind::norm_stats, OpKind::affine_act}), shared),
            make_conv(group.part({OpKind::conv}), shared)};
  return {make_conv_grad_input(group.part({OpKind::conv_grad_input}), shared),
          make_norm_grad_stats(group.part({OpKind::norm_grad_stats}), shared)};
}

// Kernels for the whole group first. If tensors are small, separate kernels for its ops may be faster; they
// are possible if everything between them is stored.
Candidates whole_or_parts(const GroupView& group, std::vector<Candidate> whole, Shared& shared) {
  Candidates candidates{key_of(group), std::move(whole)};
  if (group.group().unstored.empty()) add_in_parts(candidates, kApart, parts_of(group, shared));
  return candidates;
}

}  // namespace

// The strided convolution's gradient is stored densely, for the pixels that it read, or in place, with zeros.
Candidates make_sparse_gradient_sums(const GroupView& group, Shared& shared) {
  const GroupView branch = group.part(input_gradient(group, 2));
  const Gemm joined = gradient_of(group, input_gradient(group, 1));
  Gemm sparse = joined;
  sparse.epilogue = Epilogue::joined_sparse;
  const graph::Shape& images = input_gradient(group, 1).out_tensor(EitherConv::to).shape;
  sparse.sparse = {static_cast<int>(images.h()), static_cast<int>(images.w())};
  Candidates candidates{key_of(group)};
  add_in_parts(candidates, "", {make_dense_grad_input(branch, shared), {"", gemm_steps(sparse, shared)}});
  std::vector<Candidate> first = gemm_steps(joined, shared);  // apart is seldom the fastest
  if (!first.empty()) first.resize(1);
  add_in_parts(candidates, kApart, {make_conv_grad_input(branch, shared), {"", std::move(first)}});
  return candidates;
}

// The shortcut's sums in a kernel of their own, or in the same one.
Candidates make_two_norm_sums(const GroupView& group, Shared& shared) {
  Gemm work = gradient_of(group);
  const OpView shortcut = group.ops().back();
  Candidates candidates{key_of(group)};
  add_in_parts(candidates, kApart,
               {{"", gemm_steps(work, shared)}, make_norm_grad_stats(group.part(shortcut), shared)});
  work.epilogue = Epilogue::joined_two_norms;
  work.shortcut = gated_norm_of(shortcut);
  std::ranges::move(gemm_steps(work, shared), std::back_inserter(candidates.list));
  return candidates;
}

Candidates make_expand_gradient(const GroupView& group, Shared& shared) {
  using operands::ConvGradInput;
  using operands::ConvGradWeight;
  const OpView apply = group.op(OpKind::norm_grad_apply), input = group.op(OpKind::conv_grad_input);
  const OpView weight = group.op(OpKind::conv_grad_weight);
  const graph::Tensor& y = apply.in_tensor(operands::NormGradApply::y);
  ExpandGrad work{.type = type_of(y.dtype),
                  .rows = matrix_of(y).rows,
                  .norm = norm_grad_apply_of(apply),
                  .x = weight.in(ConvGradWeight::x),
                  .weights = group.weights(input),
                  .dx = input.out(ConvGradInput::dx),
                  .dw = weight.out(ConvGradWeight::dw),
                  .dw_type = type_of(weight.out_tensor(ConvGradWeight::dw).dtype)};
  if (group.has(OpKind::norm_grad_stats)) work.before = gated_norm_of(group.op(OpKind::norm_grad_stats));
  return only(reducing_step(expand_grad(work, shared.device()), shared));
}

Candidates make_activated_conv(const GroupView& group, Shared& shared) {
  return whole_or_parts(group, gemm_steps(activated_of(group, shared), shared), shared);
}
Candidates make_join(const GroupView& group, Shared& shared) {
  return whole_or_parts(group, gemm_steps(join_of(group, shared), shared), shared);
}
Candidates make_gradient_sums(const GroupView& group, Shared& shared) {
  return whole_or_parts(group, gemm_steps(gradient_of(group), shared), shared);
}
Candidates make_conv3x3_group(const GroupView& group, Shared& shared) {
  return whole_or_parts(group, conv3x3_candidates(group, shared), shared);
}

// All in one kernel; or the norm's gradient alone, and the rest in one kernel or in two.
Candidates make_norm_gradient(const GroupView& group, Shared& shared) {
  Candidates candidates{key_of(group), gemm_steps(norm_gradient_of(group), shared)};
  const Candidates apply = make_norm_grad_apply(group.part({OpKind::norm_grad_apply}), shared);
  const GroupView rest = group.part({OpKind::conv_grad_input, OpKind::norm_grad_stats});
  add_in_parts(candidates, kApart, {apply, {"", gemm_steps(gradient_of(rest), shared)}});
  std::vector<Candidates> parts = parts_of(group, shared);
  parts.insert(parts.begin(), apply);
  add_in_parts(candidates, kApart, parts);
  return candidates;
}

std::vector<Candidate> pointwise_convs(const GroupView& group, Shared& shared) {
  using operands::Conv;
  const OpView op = group.op();
  const auto& attr = op.attr<graph::ConvAttr>();
  if (graph::size_of(op.in_tensor(Conv::x).dtype) != 2 || op.in_tensor(Conv::w).shape[2] != 1 ||
      attr.stride != 1 || attr.pad != 0 || attr.groups != 1 ||
      op.in_layout(Conv::x) != plan::Layout::channels_last) {
    return {};
  }
  return gemm_steps(forward_of(group, op), shared);
}

}  // namespace redline::backend::cuda
