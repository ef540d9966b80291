// Batch norm around the pending affine: statistics, apply, and their gradients, on blocked activations.
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "backend/cpu/blocks.h"
#include "backend/cpu/kernels/dispatch.h"
#include "backend/cpu/step.h"
#include "backend/cpu/threads.h"
#include "backend/host/collectives.h"
#include "graph/half.h"

namespace redline::backend::cpu {
namespace {

const std::byte* at(const std::byte* base, std::int64_t element, graph::DType dtype) {
  return base == nullptr ? nullptr : base + static_cast<std::size_t>(element) * graph::size_of(dtype);
}
std::byte* at(std::byte* base, std::int64_t element, graph::DType dtype) {
  return base == nullptr ? nullptr : base + static_cast<std::size_t>(element) * graph::size_of(dtype);
}

float value_at(const std::byte* base, std::int64_t element, graph::DType dtype) {
  const std::byte* from = at(base, element, dtype);
  if (dtype == graph::DType::f32) {
    float value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return graph::bf16_to_float(bits);
}

// Set if a norm uses the batches of all ranks together; otherwise null.
Collectives* synchronising(const OpView& op) {
  return op.attr<graph::NormAttr>().synchronised ? op.collectives() : nullptr;
}

// Two sums per channel, gathered piece by piece and added up in a fixed order.
class ChannelSums {
 public:
  explicit ChannelSums(const Blocks& blocks)
      : blocks_(blocks),
        sums_(static_cast<std::size_t>(blocks.pieces() * 2 * kBlock)),
        totals_(static_cast<std::size_t>(2 * blocks.channels)) {}

  double* first(std::int64_t piece) { return &sums_[static_cast<std::size_t>(piece * 2 * kBlock)]; }
  double* second(std::int64_t piece) { return first(piece) + kBlock; }
  void clear(std::int64_t piece) { std::fill_n(first(piece), 2 * kBlock, 0.0); }

  std::vector<double>& totals() { return totals_; }  // [2,C], for the caller to fill
  struct Pair {
    double first = 0.0, second = 0.0;
  };
  Pair total(std::int64_t channel) {
    Pair sum;
    for (std::int64_t group = 0; group < blocks_.groups; ++group) {
      const std::int64_t piece = channel / kBlock * blocks_.groups + group;
      sum.first += first(piece)[channel % kBlock];
      sum.second += second(piece)[channel % kBlock];
    }
    return sum;
  }

 private:
  Blocks blocks_;
  std::vector<double> sums_, totals_;
};

// A norm's per-channel tensors.
struct NormParameters {
  const float *gamma, *beta;
  float *mean, *var;  // running
  float* affine;      // [2,C]: scale, bias
  float* saved;       // [2,C]: mean, 1 / deviation; null outside training
};

// Finds the statistics of y, moves the running ones, and leaves the affine that normalises y.
class NormStats {
 public:
  NormStats(const graph::Tensor& y, const OpView& op, const NormParameters& parameters)
      : blocks_(y.shape),
        dtype_(y.dtype),
        attr_(op.attr<graph::NormAttr>()),
        p_(parameters),
        y_(op.in(operands::NormStats::y)),  // of a batch_norm too
        sums_(blocks_),
        collectives_(synchronising(op)),
        means_(static_cast<std::size_t>(2 * blocks_.channels)) {}

  void run() {
    if (!attr_.training) {
      for (std::int64_t c = 0; c < blocks_.channels; ++c) set_affine(c, p_.mean[c], p_.var[c]);
      return;
    }
    const ActivationKernels& kernels = activation_kernels(dtype_);
    parallel_for(blocks_.pieces(), [&](std::int64_t index) {
      const Piece piece(blocks_, index);
      Lanes shift;
      for (std::int64_t lane = 0; lane < kBlock; ++lane)
        shift.values[lane] = shift_of(piece.block * kBlock + lane);
      sums_.clear(index);
      kernels.stats(piece.run, at(y_, piece.element, dtype_), shift, sums_.first(index), sums_.second(index));
    });
    const auto count = static_cast<double>(blocks_.per_channel());
    const double all = collectives_ == nullptr ? count : count * collectives_->ranks();
    const double unbiased = all > 1.0 ? all / (all - 1.0) : 1.0;
    find_means(count);
    for (std::int64_t c = 0; c < blocks_.channels; ++c) {
      const double mean = means_[static_cast<std::size_t>(c)];
      const double var = means_[static_cast<std::size_t>(blocks_.channels + c)];
      p_.mean[c] += attr_.momentum * (static_cast<float>(mean) - p_.mean[c]);
      p_.var[c] += attr_.momentum * (static_cast<float>(var * unbiased) - p_.var[c]);
      set_affine(c, mean, var);
    }
  }

 private:
  // Leaves the mean and the biased variance of every channel in means_.
  void find_means(double count) {
    double *mean = means_.data(), *var = mean + blocks_.channels;
    for (std::int64_t c = 0; c < blocks_.channels; ++c) {
      const auto [sum, sum2] = sums_.total(c);
      mean[c] = shift_of(c) + sum / count;
      var[c] = std::max(0.0, sum2 / count - sum / count * (sum / count));
    }
    if (collectives_ == nullptr) return;
    // Every rank has as many values, so means over ranks are means over all of them; squares are in double.
    for (std::int64_t c = 0; c < blocks_.channels; ++c) var[c] += mean[c] * mean[c];
    collectives_->average(means_);
    for (std::int64_t c = 0; c < blocks_.channels; ++c) var[c] = std::max(0.0, var[c] - mean[c] * mean[c]);
  }

  // A value of the channel itself: sums of differences from it do not cancel when the mean is large.
  float shift_of(std::int64_t channel) const {
    return value_at(y_, channel / kBlock * blocks_.pixels * kBlock + channel % kBlock, dtype_);
  }

  void set_affine(std::int64_t c, double mean, double var) {
    const double inverse = 1.0 / std::sqrt(var + static_cast<double>(attr_.epsilon));
    const double scale = static_cast<double>(p_.gamma[c]) * inverse;
    p_.affine[c] = static_cast<float>(scale);
    p_.affine[blocks_.channels + c] = static_cast<float>(static_cast<double>(p_.beta[c]) - mean * scale);
    if (p_.saved == nullptr) return;
    p_.saved[c] = static_cast<float>(mean);
    p_.saved[blocks_.channels + c] = static_cast<float>(inverse);
  }

  Blocks blocks_;
  graph::DType dtype_;
  graph::NormAttr attr_;
  NormParameters p_;
  const std::byte* y_;
  ChannelSums sums_;
  Collectives* collectives_;   // null: this rank's batch alone
  std::vector<double> means_;  // [2,C]
};

// z = act(affine(y) + affine(shortcut)).
struct Apply {
  Blocks blocks;
  graph::DType dtype;
  const std::byte* y;
  const float* affine;
  const std::byte* shortcut;
  const float* shortcut_affine;
  bool relu;
  std::byte* z;
  std::uint16_t* mask;

  void run() const {
    const ActivationKernels& kernels = activation_kernels(dtype);
    const std::int64_t c = blocks.channels;
    parallel_for(blocks.pieces(), [&](std::int64_t index) {
      const Piece piece(blocks, index);
      const Lanes scale(affine, piece.block, c), bias(affine + c, piece.block, c);
      Lanes shortcut_scale, shortcut_bias;
      if (shortcut_affine != nullptr) {
        shortcut_scale = Lanes(shortcut_affine, piece.block, c);
        shortcut_bias = Lanes(shortcut_affine + c, piece.block, c);
      }
      kernels.affine_act(
          piece.run,
          {at(y, piece.element, dtype), scale, bias, at(shortcut, piece.element, dtype),
           shortcut_affine == nullptr ? nullptr : shortcut_scale.values,
           shortcut_affine == nullptr ? nullptr : shortcut_bias.values, relu, at(z, piece.element, dtype),
           mask == nullptr ? nullptr : mask + piece.pixel, blocks.blocks * blocks.pixels});
    });
  }
};

// The gradient that reaches a norm, and the norm's tensors.
struct NormGradient {
  Blocks blocks;
  graph::DType dtype;
  const std::byte *g, *g2, *y;
  const float* affine;        // gates by affine(y) > 0 when given
  const std::uint16_t* mask;  // gates by bits when given
  const float* saved;
  const float* gamma;
  float *dgamma, *dbeta;
  std::byte* masked;
  std::byte* dy;
  Collectives* collectives = nullptr;

  // The lanes that gate one piece; keep it alive while the kernel runs.
  struct PieceGate {
    Lanes scale, bias;
    Gate gate;
    PieceGate(const NormGradient& n, const Piece& piece) {
      if (n.mask != nullptr) {
        gate.mask = n.mask + piece.pixel;
        gate.mask_stride = n.blocks.blocks * n.blocks.pixels;
      } else if (n.affine != nullptr) {
        scale = Lanes(n.affine, piece.block, n.blocks.channels);
        bias = Lanes(n.affine + n.blocks.channels, piece.block, n.blocks.channels);
        gate.scale = scale;
        gate.bias = bias;
      }
    }
  };

  void find_sums(ChannelSums& sums) const {
    const ActivationKernels& kernels = activation_kernels(dtype);
    parallel_for(blocks.pieces(), [&](std::int64_t index) {
      const Piece piece(blocks, index);
      const PieceGate gate(*this, piece);
      const Lanes mean(saved, piece.block, blocks.channels);
      sums.clear(index);
      kernels.grad_stats(
          piece.run,
          {at(g, piece.element, dtype), at(g2, piece.element, dtype), at(y, piece.element, dtype), gate.gate,
           mean, at(masked, piece.element, dtype), sums.first(index), sums.second(index)});
    });
    std::vector<double>& totals = sums.totals();
    for (std::int64_t c = 0; c < blocks.channels; ++c) {
      const auto [sum, dot] = sums.total(c);
      totals[static_cast<std::size_t>(c)] = sum;
      totals[static_cast<std::size_t>(blocks.channels + c)] = dot;
    }
    // Means over the ranks serve both uses: apply() divides by this rank's count, and the all-reduce of
    // gradients adds up as many equal ones as there are ranks.
    if (collectives != nullptr) collectives->average(totals);
    for (std::int64_t c = 0; c < blocks.channels; ++c) {
      const double dot = totals[static_cast<std::size_t>(blocks.channels + c)];
      dbeta[c] = static_cast<float>(totals[static_cast<std::size_t>(c)]);
      dgamma[c] = static_cast<float>(dot * static_cast<double>(saved[blocks.channels + c]));
    }
  }

  // dy = gamma / deviation * (g - mean(g) - normalised y * mean(g * normalised y))
  void apply() const {
    const ActivationKernels& kernels = activation_kernels(dtype);
    const auto count = static_cast<float>(blocks.per_channel());
    parallel_for(blocks.pieces(), [&](std::int64_t index) {
      const Piece piece(blocks, index);
      const PieceGate gate(*this, piece);
      const Lanes mean(saved, piece.block, blocks.channels);
      Lanes a, b, c;
      const std::int64_t first = piece.block * kBlock;
      for (std::int64_t lane = 0; lane < std::min(kBlock, blocks.channels - first); ++lane) {
        const std::int64_t channel = first + lane;
        const float inverse = saved[blocks.channels + channel];
        a.values[lane] = gamma[channel] * inverse;
        b.values[lane] = -a.values[lane] * inverse * dgamma[channel] / count;
        c.values[lane] = -a.values[lane] * dbeta[channel] / count;
      }
      kernels.grad_apply(piece.run, {at(g, piece.element, dtype), at(y, piece.element, dtype), gate.gate, a,
                                     b, c, mean, at(dy, piece.element, dtype)});
    });
  }
};

}  // namespace

Step make_norm_stats(const OpView& op, Scratch&) {
  using Stats = operands::NormStats;
  const NormParameters parameters{op.in<float>(Stats::gamma),   op.in<float>(Stats::beta),
                                  op.in<float>(Stats::mean),    op.in<float>(Stats::var),
                                  op.out<float>(Stats::affine), op.out<float>(Stats::saved)};
  auto stats = std::make_shared<NormStats>(op.in_tensor(Stats::y), op, parameters);
  return [stats] { stats->run(); };
}

Step make_affine_act(const OpView& op, Scratch&) {
  using Act = operands::AffineAct;
  const Apply apply{Blocks(op.in_tensor(Act::y).shape),
                    op.in_tensor(Act::y).dtype,
                    op.in(Act::y),
                    op.in<float>(Act::affine),
                    op.in(Act::shortcut),
                    op.in<float>(Act::shortcut_affine),
                    op.attr<graph::ActAttr>().relu,
                    op.out(Act::z),
                    op.out<std::uint16_t>(Act::mask)};
  return [apply] { apply.run(); };
}

Step make_norm_grad_stats(const OpView& op, Scratch&) {
  using Stats = operands::NormGradStats;
  NormGradient gradient{Blocks(op.in_tensor(Stats::y).shape),
                        op.in_tensor(Stats::y).dtype,
                        op.in(Stats::g),
                        op.in(Stats::g2),
                        op.in(Stats::y),
                        op.in<float>(Stats::affine),
                        op.in<std::uint16_t>(Stats::mask),
                        op.in<float>(Stats::saved),
                        nullptr,
                        op.out<float>(Stats::dgamma),
                        op.out<float>(Stats::dbeta),
                        op.out(Stats::masked),
                        nullptr,
                        synchronising(op)};
  auto sums = std::make_shared<ChannelSums>(gradient.blocks);
  return [gradient, sums] { gradient.find_sums(*sums); };
}

Step make_norm_grad_apply(const OpView& op, Scratch&) {
  using Grad = operands::NormGradApply;
  const NormGradient gradient{Blocks(op.in_tensor(Grad::y).shape),
                              op.in_tensor(Grad::y).dtype,
                              op.in(Grad::g),
                              nullptr,
                              op.in(Grad::y),
                              op.in<float>(Grad::affine),
                              op.in<std::uint16_t>(Grad::mask),
                              op.in<float>(Grad::saved),
                              op.in<float>(Grad::gamma),
                              op.in<float>(Grad::dgamma),
                              op.in<float>(Grad::dbeta),
                              nullptr,
                              op.out(Grad::dy)};
  return [gradient] { gradient.apply(); };
}

Step make_batch_norm(const OpView& op, Scratch&) {
  using operands::BatchNorm;
  const graph::Tensor& x = op.in_tensor(BatchNorm::x);
  auto affine = std::make_shared<std::vector<float>>(static_cast<std::size_t>(2 * x.shape.c()));
  const NormParameters parameters{op.in<float>(BatchNorm::gamma),
                                  op.in<float>(BatchNorm::beta),
                                  op.in<float>(BatchNorm::mean),
                                  op.in<float>(BatchNorm::var),
                                  affine->data(),
                                  op.out<float>(BatchNorm::saved)};
  auto stats = std::make_shared<NormStats>(x, op, parameters);
  const Apply apply{Blocks(x.shape), x.dtype, op.in(BatchNorm::x),  affine->data(), nullptr,
                    nullptr,         false,   op.out(BatchNorm::y), nullptr};
  return [affine, stats, apply] {
    stats->run();
    apply.run();
  };
}

Step make_batch_norm_grad(const OpView& op, Scratch&) {
  using Grad = operands::BatchNormGrad;
  const graph::Tensor& x = op.in_tensor(Grad::x);
  const NormGradient gradient{Blocks(x.shape),
                              x.dtype,
                              op.in(Grad::dy),
                              nullptr,
                              op.in(Grad::x),
                              nullptr,
                              nullptr,
                              op.in<float>(Grad::saved),
                              op.in<float>(Grad::gamma),
                              op.out<float>(Grad::dgamma),
                              op.out<float>(Grad::dbeta),
                              nullptr,
                              op.out(Grad::dx),
                              synchronising(op)};
  auto sums = std::make_shared<ChannelSums>(gradient.blocks);
  return [gradient, sums] {
    gradient.find_sums(*sums);
    gradient.apply();
  };
}

}  // namespace redline::backend::cpu
