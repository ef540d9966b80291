// Mixup (Zhang et al., 2018) and CutMix (Yun et al., 2019): every image of a batch is mixed with its
// neighbour, the row before it (the last for the first), all with one weight, and gets both labels with their
// shares. Works on the bytes of a complete batch.
#pragma once

#include <cstdint>
#include <vector>

#include "base/random.h"
#include "data/host_memory.h"
#include "data/images/image.h"

namespace redline::data {

// The weight is drawn from Beta(alpha, alpha); an alpha of 0 turns that kind off. With both on, each batch is
// mixed one way or the other, with equal probability.
struct MixOptions {
  double mixup_alpha = 0;
  double cutmix_alpha = 0;

  bool any() const { return mixup_alpha > 0 || cutmix_alpha > 0; }
};

// Throws UsageError naming the option that makes no sense.
void validate(const MixOptions& options);

// The random generator of one batch of one rank in one epoch.
Random batch_random(std::uint64_t seed, std::int64_t epoch, std::int64_t batch, int rank);

// How one batch is mixed.
struct Mix {
  bool cut = false;   // CutMix: the neighbour shows in `box` alone. Mixup: it shines through everywhere.
  double weight = 1;  // of a row's own label and, for mixup, of its own pixels; the neighbour has the rest
  Rect box;
};

// options.any() must hold.
Mix draw_mix(const MixOptions& options, int side, Random& random);

// Mixes the images [rows, side, side, 3] of a batch whose labels are set, and writes its other labels and
// weights. A row without a label (-1), or whose neighbour has none, stays as it is: its other label is -1 and
// its weight 1. scratch grows to the size of an image once.
void mix_batch(const Mix& mix, int rows, int side, const BatchMemory& batch,
               std::vector<std::uint8_t>& scratch);

}  // namespace redline::data
