#include "fused_groups.h"

namespace redline::cases {
namespace {

using graph::DType;
using graph::kNone;
using graph::OpKind;
using graph::Shape;
using graph::TensorId;
using graph::TensorKind;

// What a norm's two backward ops read and write.
struct NormGradient {
  TensorId y, affine, saved, gamma, dgamma, dbeta;

  NormGradient(CaseGraph& g, const Shape& shape)
      : y(g.activation(shape)),
        affine(g.pair(shape.c())),
        saved(g.pair(shape.c())),
        gamma(g.channels(shape.c())),
        dgamma(g.channels(shape.c(), TensorKind::gradient)),
        dbeta(g.channels(shape.c(), TensorKind::gradient)) {}

  void add_stats(CaseGraph& g, TensorId gradient) const {
    g.add_op(OpKind::norm_grad_stats, {gradient, kNone, y, affine, kNone, saved}, {dgamma, dbeta, kNone},
             graph::NormAttr{});
  }
  void add_apply(CaseGraph& g, TensorId gradient, TensorId gate, TensorId dy) const {
    g.add_op(OpKind::norm_grad_apply, {gradient, y, gate, kNone, saved, gamma, dgamma, dbeta}, {dy},
             graph::NormAttr{});
  }
};

TensorId add_conv_grad_input(CaseGraph& g, TensorId dy, const Shape& from, const Shape& to) {
  const TensorId weights = g.tensor({from.c(), to.c(), 1, 1}, DType::f32, TensorKind::parameter);
  const TensorId dx = g.activation(to);
  g.add_op(OpKind::conv_grad_input, {dy, weights}, {dx}, graph::ConvAttr{});
  return dx;
}

void add_conv_grad_weight(CaseGraph& g, TensorId x, TensorId dy, const Shape& in, const Shape& out) {
  g.add_op(OpKind::conv_grad_weight, {x, dy},
           {g.tensor({out.c(), in.c(), 1, 1}, g.dtype(), TensorKind::gradient)}, graph::ConvAttr{});
}

// A convolution's input gradient, and the sums of the norm before it. The norm's other op follows, as it does
// in training: the gradient between may be gated once or twice, what comes out of that op is the same.
Sequence gated(CaseGraph& g, const Images& images, std::int64_t from_channels, std::int64_t to_channels) {
  const Shape from = images.with(from_channels), to = images.with(to_channels);
  const TensorId dx = add_conv_grad_input(g, g.activation(from), from, to);
  const NormGradient norm(g, to);
  norm.add_stats(g, dx);
  const TensorId last = g.activation(to);
  norm.add_apply(g, dx, norm.affine, last);
  return {{{0, 1}}, {dx}, {last}};
}
Sequence gated_64(CaseGraph& g, const Images& images) { return gated(g, images, 256, 64); }
Sequence gated_384(CaseGraph& g, const Images& images) { return gated(g, images, 64, 384); }

// The same at the end of a block, where a second gradient joins and the gate is a mask.
struct Joined {
  TensorId dx, other, masked;
};
Joined add_joined(CaseGraph& g, const Images& images, std::int64_t from_channels, std::int64_t to_channels,
                  bool in_place) {
  const Shape from = images.with(from_channels), to = images.with(to_channels);
  const TensorId dx = add_conv_grad_input(g, g.activation(from), from, to);
  const TensorId other = g.activation(to), masked = g.activation(to);
  const TensorId first = in_place ? other : dx, second = in_place ? dx : other;
  g.add_op(OpKind::norm_grad_stats, {first, second, g.activation(to), kNone, g.mask(to), g.pair(to.c())},
           {g.channels(to.c(), TensorKind::gradient), g.channels(to.c(), TensorKind::gradient), masked},
           graph::NormAttr{});
  return {dx, other, masked};
}
Sequence joined_apart(CaseGraph& g, const Images& images) {
  return {{{0, 1}}, {add_joined(g, images, 64, 256, false).dx}};
}
Sequence joined_in_place(CaseGraph& g, const Images& images) {
  const auto [dx, other, masked] = add_joined(g, images, 64, 256, true);
  return {{{0, 1}}, {dx, other}, {}, other, masked};
}
Sequence joined_64(CaseGraph& g, const Images& images) {
  return {{{0, 1}}, {add_joined(g, images, 192, 64, false).dx}};
}

// The same where the block's shortcut has a norm too.
Sequence joined_two_norms(CaseGraph& g, const Images& images, std::int64_t from_channels,
                          std::int64_t to_channels) {
  const Joined joined = add_joined(g, images, from_channels, to_channels, false);
  const Shape to = images.with(to_channels);
  g.add_op(OpKind::norm_grad_stats, {joined.masked, kNone, g.activation(to), kNone, kNone, g.pair(to.c())},
           {g.channels(to.c(), TensorKind::gradient), g.channels(to.c(), TensorKind::gradient), kNone},
           graph::NormAttr{});
  return {{{0, 1, 2}}, {joined.dx}};
}
Sequence joined_two_norms_256(CaseGraph& g, const Images& images) {
  return joined_two_norms(g, images, 64, 256);
}
Sequence joined_two_norms_64(CaseGraph& g, const Images& images) {
  return joined_two_norms(g, images, 192, 64);
}

// The same where the second gradient is that of a 1x1 convolution of stride 2.
Sequence joined_sparse(CaseGraph& g, const Images& images, std::int64_t from_channels,
                       std::int64_t to_channels, bool branch_first) {
  const Shape from = images.with(from_channels), to = images.with(to_channels);
  const Shape half{to.n(), 128, (to.h() + 1) / 2, (to.w() + 1) / 2};
  const TensorId other = g.activation(to);
  g.add_op(OpKind::conv_grad_input,
           {g.activation(half), g.tensor({half.c(), to.c(), 1, 1}, DType::f32, TensorKind::parameter)},
           {other}, graph::ConvAttr{.stride = 2, .pad = 0});
  const TensorId dx = add_conv_grad_input(g, g.activation(from), from, to), masked = g.activation(to);
  g.add_op(OpKind::norm_grad_stats,
           {branch_first ? other : dx, branch_first ? dx : other, g.activation(to), kNone, g.mask(to),
            g.pair(to.c())},
           {g.channels(to.c(), TensorKind::gradient), g.channels(to.c(), TensorKind::gradient), masked},
           graph::NormAttr{});
  return {{{0, 1, 2}}, {dx, other}};
}
Sequence joined_sparse_256(CaseGraph& g, const Images& images) {
  return joined_sparse(g, images, 64, 256, true);
}
Sequence joined_sparse_64(CaseGraph& g, const Images& images) {
  return joined_sparse(g, images, 192, 64, false);
}

// A norm's scale and bias from sums that a convolution gathered.
void add_norm_stats(CaseGraph& g, TensorId y, std::int64_t c, TensorId affine, TensorId saved) {
  const TensorId gamma = g.channels(c), beta = g.channels(c);
  const TensorId mean = g.channels(c, TensorKind::statistic), variance = g.channels(c, TensorKind::statistic);
  g.add_op(OpKind::norm_stats, {y, gamma, beta, mean, variance, g.pair(c)}, {affine, saved},
           graph::NormAttr{});
}

// The same, and their first use.
Sequence affine(CaseGraph& g, const Images& images, bool shortcut) {
  const Shape shape = images.with(64);
  const TensorId y = g.activation(shape), scales = g.pair(shape.c());
  add_norm_stats(g, y, shape.c(), scales, g.pair(shape.c()));
  g.add_op(OpKind::affine_act, {y, scales, shortcut ? g.activation(shape) : kNone, kNone},
           {g.activation(shape), shortcut ? g.mask(shape) : kNone}, graph::ActAttr{});
  return {{{0, 1}}, {}};
}
Sequence affine_alone(CaseGraph& g, const Images& images) { return affine(g, images, false); }
Sequence affine_and_shortcut(CaseGraph& g, const Images& images) { return affine(g, images, true); }

// The stem's pool and norm. The images are what the pool gives.
Sequence stem(CaseGraph& g, const Images& images) {
  const Shape out = images.with(64), in{images.count, 64, 2 * images.h, 2 * images.w};
  const TensorId pooled = g.activation(out), index = g.activation(out, DType::u8), dx = g.activation(in);
  g.add_op(OpKind::max_pool_grad, {pooled, index}, {dx}, graph::PoolAttr{});
  const NormGradient norm(g, in);
  norm.add_apply(g, dx, norm.affine, g.activation(in));
  return {{{0, 1}}, {dx}};
}

// A 1x1 convolution that gathers sums for the next norm.
Sequence summed(CaseGraph& g, TensorId x, const Images& images, std::int64_t from, std::int64_t to) {
  const TensorId weights = g.tensor({to, from, 1, 1}, DType::f32, TensorKind::parameter);
  g.add_op(OpKind::conv, {x, weights}, {g.activation(images.with(to)), g.pair(to)}, graph::ConvAttr{});
  return {{{0}}, {}};
}
Sequence summed_64(CaseGraph& g, const Images& images) {
  return summed(g, g.activation(images.with(192)), images, 192, 64);
}
Sequence summed_256(CaseGraph& g, const Images& images) {
  return summed(g, g.activation(images.with(64)), images, 64, 256);
}
Sequence summed_384(CaseGraph& g, const Images& images) {
  return summed(g, g.activation(images.with(64)), images, 64, 384);
}

// The same behind a norm and ReLU that nothing else reads.
TensorId add_activated(CaseGraph& g, const NormGradient& norm, const Images& images, std::int64_t from,
                       std::int64_t to) {
  const Shape in = images.with(from);
  const TensorId x = g.activation(in);
  add_norm_stats(g, norm.y, in.c(), norm.affine, norm.saved);
  g.add_op(OpKind::affine_act, {norm.y, norm.affine, kNone, kNone}, {x, kNone}, graph::ActAttr{});
  summed(g, x, images, from, to);
  return x;
}
TensorId add_expanded_activation(CaseGraph& g, const NormGradient& norm, const Images& images) {
  return add_activated(g, norm, images, 64, 256);
}
Sequence expanded_activation(CaseGraph& g, const Images& images) {
  const TensorId x = add_expanded_activation(g, NormGradient(g, images.with(64)), images);
  return {{{0, 1, 2}}, {x}};
}

// The same of other sizes: the activation is stored.
Sequence activated(CaseGraph& g, const Images& images, std::int64_t from, std::int64_t to) {
  add_activated(g, NormGradient(g, images.with(from)), images, from, to);
  return {{{0, 1, 2}}, {}};
}
Sequence activated_128(CaseGraph& g, const Images& images) { return activated(g, images, 128, 512); }
Sequence activated_to_128(CaseGraph& g, const Images& images) { return activated(g, images, 128, 128); }

// The end of a block, and the convolution that the next one begins with. The shortcut may have a norm too:
// all norms are worked out before then.
Sequence join(CaseGraph& g, const Images& images, std::int64_t wide, std::int64_t narrow, bool two_norms) {
  const Shape in = images.with(wide), out = images.with(narrow);
  const TensorId y = g.activation(in), z = g.activation(in), scales = g.pair(wide);
  if (!two_norms) add_norm_stats(g, y, wide, scales, g.pair(wide));
  g.add_op(OpKind::affine_act, {y, scales, g.activation(in), two_norms ? g.pair(wide) : kNone},
           {z, g.mask(in)}, graph::ActAttr{});
  const TensorId weights = g.tensor({narrow, wide, 1, 1}, DType::f32, TensorKind::parameter);
  g.add_op(OpKind::conv, {z, weights}, {g.activation(out), g.pair(narrow)}, graph::ConvAttr{});
  return {{two_norms ? std::vector{0, 1} : std::vector{0, 1, 2}}, {}};
}
Sequence join_64(CaseGraph& g, const Images& images) { return join(g, images, 256, 64, false); }
Sequence join_128(CaseGraph& g, const Images& images) { return join(g, images, 128, 128, false); }
Sequence join_256(CaseGraph& g, const Images& images) { return join(g, images, 384, 256, false); }
Sequence join_widest(CaseGraph& g, const Images& images) { return join(g, images, 1024, 256, false); }
Sequence join_two_norms(CaseGraph& g, const Images& images) { return join(g, images, 256, 128, true); }

// A norm and ReLU, and the 3x3 convolution that reads them.
TensorId add_activated_conv3x3(CaseGraph& g, const Shape& shape) {
  const TensorId y = g.activation(shape), z = g.activation(shape), scales = g.pair(shape.c());
  add_norm_stats(g, y, shape.c(), scales, g.pair(shape.c()));
  g.add_op(OpKind::affine_act, {y, scales, kNone, kNone}, {z, kNone}, graph::ActAttr{});
  const TensorId weights = g.tensor({shape.c(), shape.c(), 3, 3}, DType::f32, TensorKind::parameter);
  g.add_op(OpKind::conv, {z, weights}, {g.activation(shape), g.pair(shape.c())}, graph::ConvAttr{1, 1});
  return z;
}
// The activation is stored where something else reads it.
Sequence activated_conv3x3(CaseGraph& g, const Images& images, std::int64_t channels) {
  const Shape shape = images.with(channels);
  const TensorId z = add_activated_conv3x3(g, shape);
  g.add_op(OpKind::add, {z, g.activation(shape)}, {g.activation(shape)});
  return {{{0, 1, 2}}, {}};
}
Sequence activated_conv3x3_64(CaseGraph& g, const Images& images) { return activated_conv3x3(g, images, 64); }
Sequence activated_conv3x3_128(CaseGraph& g, const Images& images) {
  return activated_conv3x3(g, images, 128);
}
Sequence activated_conv3x3_256(CaseGraph& g, const Images& images) {
  return activated_conv3x3(g, images, 256);
}
// It is not stored where the weight gradient recomputes it.
Sequence weight_grad3x3(CaseGraph& g, const Images& images) {
  const Shape shape = images.with(64);
  const TensorId z = add_activated_conv3x3(g, shape);
  g.add_op(OpKind::conv_grad_weight, {z, g.activation(shape)},
           {g.tensor({64, 64, 3, 3}, g.dtype(), TensorKind::gradient)}, graph::ConvAttr{1, 1});
  return {{{0, 1, 2}, {1, 3}}, {z}};
}

// The gradient of its input, and the sums of the norm before it.
Sequence gated3x3(CaseGraph& g, const Images& images, std::int64_t channels) {
  const Shape shape = images.with(channels);
  const TensorId weights = g.tensor({channels, channels, 3, 3}, DType::f32, TensorKind::parameter);
  const TensorId dx = g.activation(shape);
  g.add_op(OpKind::conv_grad_input, {g.activation(shape), weights}, {dx}, graph::ConvAttr{1, 1});
  const NormGradient norm(g, shape);
  const TensorId dy = g.activation(shape);
  norm.add_stats(g, dx);
  norm.add_apply(g, dx, norm.affine, dy);
  return {{{0, 1}}, {dx}, {dy}};  // the gradient between is rounded too
}
Sequence gated3x3_64(CaseGraph& g, const Images& images) { return gated3x3(g, images, 64); }
Sequence gated3x3_128(CaseGraph& g, const Images& images) { return gated3x3(g, images, 128); }
Sequence gated3x3_256(CaseGraph& g, const Images& images) { return gated3x3(g, images, 256); }

// All that a 1x1 convolution's backward pass is between the norm after it and the norm before it.
void add_between_norms(CaseGraph& g, const NormGradient& before, TensorId x, const Images& images,
                       Sequence& sequence) {
  const Shape out = images.with(256), in = images.with(64);
  const TensorId dy = g.activation(out);
  NormGradient(g, out).add_apply(g, g.activation(out), kNone, dy);
  const TensorId dx = add_conv_grad_input(g, dy, out, in);
  before.add_stats(g, dx);
  add_conv_grad_weight(g, x, dy, in, out);
  before.add_apply(g, dx, before.affine, g.activation(in));
  sequence.between.insert({dy, dx});
}
Sequence between_norms(CaseGraph& g, const Images& images) {
  const Shape in = images.with(64);
  const NormGradient before(g, in);
  const TensorId x = g.activation(in);
  g.add_op(OpKind::affine_act, {before.y, before.affine, kNone, kNone}, {x, kNone}, graph::ActAttr{});
  Sequence sequence{{{1, 2, 3, 4}}, {}};
  add_between_norms(g, before, x, images, sequence);
  return sequence;
}

// Forward and back: what the convolution reads is made twice, and written not at all.
Sequence expanded_and_back(CaseGraph& g, const Images& images) {
  const NormGradient before(g, images.with(64));
  const TensorId x = add_expanded_activation(g, before, images);
  Sequence sequence{{{0, 1, 2}, {1, 3, 4, 5, 6}}, {x}};
  add_between_norms(g, before, x, images, sequence);
  return sequence;
}

// The gradients again without a norm before the convolution.
Sequence after_norm(CaseGraph& g, const Images& images) {
  const Shape out = images.with(256), in = images.with(64);
  const TensorId dy = g.activation(out);
  NormGradient(g, out).add_apply(g, g.activation(out), kNone, dy);
  add_conv_grad_input(g, dy, out, in);
  add_conv_grad_weight(g, g.activation(in), dy, in, out);
  return {{{0, 1, 2}}, {dy}};
}

// Back through a norm and a convolution, to the sums of the norm before.
Sequence through_norm(CaseGraph& g, const Images& images, std::int64_t from, std::int64_t to, bool in_place) {
  const Shape out = images.with(to), in = images.with(from);
  const TensorId gradient = g.activation(out), dy = g.activation(out);
  NormGradient(g, out).add_apply(g, gradient, kNone, dy);
  const TensorId dx = add_conv_grad_input(g, dy, out, in);
  const NormGradient before(g, in);
  before.add_stats(g, dx);
  add_conv_grad_weight(g, g.activation(in), dy, in, out);
  const TensorId last = g.activation(in);
  before.add_apply(g, dx, before.affine, last);
  if (!in_place) return {{{0, 1, 2}}, {dx}, {last}};
  return {{{0, 1, 2}}, {dx, gradient}, {last}, gradient, dy};
}
Sequence through_norm_128(CaseGraph& g, const Images& images) {
  return through_norm(g, images, 128, 384, false);
}
Sequence through_norm_256(CaseGraph& g, const Images& images) {
  return through_norm(g, images, 256, 128, false);
}
Sequence through_norm_in_place(CaseGraph& g, const Images& images) {
  return through_norm(g, images, 256, 256, true);
}
Sequence through_norm_widest(CaseGraph& g, const Images& images) {
  return through_norm(g, images, 256, 1024, false);
}

// Tiles have 128 rows. Even with two blocks on each of a Hopper's 132 multiprocessors, the many are more
// tiles than blocks.
const std::vector<Images> kRows{{"few", 3, 7, 7}, {"many", 12, 55, 55}};
// Of many channels: fewer rows, which are still more tiles than blocks.
const std::vector<Images> kFewerRows{{"few", 3, 7, 7}, {"many", 5, 60, 61}};
const std::vector<Images> kOneTile{kRows[0]};
// Tiles are some rows of an image: one tile, an odd number of rows in several, and more tiles than blocks.
const std::vector<Images> k3x3{{"few", 1, 13, 14}, {"odd", 2, 29, 30}, {"many", 27, 29, 30}};
const std::vector<Images> kOneTile3x3{k3x3[0]};
// A block walks down part of an image, at most 56 columns wide: more rows than its rings have, and two parts
// side by side.
const std::vector<Images> kStems{kRows[0], kRows[1], {"tall", 76, 70, 3}, {"wide", 2, 5, 66}};

}  // namespace

const std::vector<FusedGroup>& fused_groups() {
  static const std::vector<FusedGroup> groups = {
      // The last convolutions of the first stage, and its shortcut's.
      {"expand_gradient",
       4,
       {{"between_norms", between_norms, kRows},
        {"after_norm", after_norm, kRows},
        {"expanded_and_back", expanded_and_back, kRows}}},
      // The last convolutions of the second and third stage.
      {"norm_gradient",
       10,
       {{"through_norm_128", through_norm_128, kFewerRows},
        {"through_norm_256", through_norm_256, kFewerRows},
        {"through_norm_in_place", through_norm_in_place, kFewerRows},
        {"through_norm_widest", through_norm_widest, kOneTile}}},
      // The first convolutions of the later stages' first blocks, with the shortcut's.
      {"sparse_gradient_sums",
       3,
       {{"joined_sparse_256", joined_sparse_256, kRows}, {"joined_sparse_64", joined_sparse_64, kRows}}},
      // Those of each stage's second block,
      {"two_norm_sums",
       4,
       {{"joined_two_norms_256", joined_two_norms_256, kRows},
        {"joined_two_norms_64", joined_two_norms_64, kRows}}},
      // and of the later blocks.
      {"gradient_sums",
       8,
       {{"gated_64", gated_64, kRows},
        {"gated_384", gated_384, kRows},
        {"joined", joined_apart, kRows},
        {"joined_in_place", joined_in_place, kRows},
        {"joined_64", joined_64, kRows}}},
      // The last convolutions of the first stage,
      {"activated_expand", 3, {{"expanded_activation", expanded_activation, kRows}}},
      // and of the second.
      {"activated_conv",
       4,
       {{"activated_128", activated_128, kFewerRows}, {"activated_to_128", activated_to_128, kFewerRows}}},
      // The ends of all blocks of the first three stages but the last.
      {"join",
       12,
       {{"join_64", join_64, kFewerRows},
        {"join_128", join_128, kFewerRows},
        {"join_256", join_256, kFewerRows},
        {"join_two_norms", join_two_norms, kFewerRows},
        {"join_widest", join_widest, kOneTile}}},
      // The 3x3 convolutions of the first stage,
      {"weight_gradient3x3", 3, {{"weight_grad3x3", weight_grad3x3, k3x3}}},
      {"unstored_conv3x3", 3, {{"unstored_conv3x3", weight_grad3x3, kOneTile3x3}}},
      // and of the next two, but for those of stride 2.
      {"activated_conv3x3",
       8,
       {{"activated_conv3x3_64", activated_conv3x3_64, k3x3},
        {"activated_conv3x3_128", activated_conv3x3_128, k3x3},
        {"activated_conv3x3_256", activated_conv3x3_256, kOneTile3x3}}},
      {"gradient_sums3x3",
       11,
       {{"gated3x3_64", gated3x3_64, k3x3},
        {"gated3x3_128", gated3x3_128, k3x3},
        {"gated3x3_256", gated3x3_256, kOneTile3x3}}},
      // The other norms of blocks, and the last blocks' ends.
      {"norm_act",
       17,
       {{"affine", affine_alone, kRows}, {"affine_and_shortcut", affine_and_shortcut, kRows}}},
      // The stem.
      {"pool_gradient", 1, {{"stem", stem, kStems, /*f32=*/true}}},
      // All weight gradients but those of expand_gradient and weight_gradient3x3; op cases and whole steps
      // test them.
      {"weight_gradient", 46, {}},
      {"update", 1, {}},
      // No group: 1x1 convolutions with sums, by the same kernels as the groups of 1x1 convolutions.
      {"",
       0,
       {{"summed_64", summed_64, kRows},
        {"summed_256", summed_256, kRows},
        {"summed_384", summed_384, kRows}}},
  };
  return groups;
}

}  // namespace redline::cases
