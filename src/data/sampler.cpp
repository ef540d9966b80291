#include "data/sampler.h"

#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/random.h"

namespace redline::data {
namespace {

constexpr std::uint64_t kOrderStream = 0x6f726465;  // keeps these draws apart from those of augmentation

}  // namespace

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  check(options.samples > 0 && options.batch_size > 0, "a sampler over nothing");
  check(options.rank >= 0 && options.rank < options.ranks, "rank {} of {}", options.rank, options.ranks);
  if (options.samples > std::numeric_limits<std::uint32_t>::max())
    throw UsageError("{} samples: more than Redline counts", options.samples);
  const std::int64_t global = std::int64_t{options.batch_size} * options.ranks;
  if (options.train && options.samples < global)
    throw UsageError("{} training samples do not fill one batch of {}; use a smaller --batch-size",
                     options.samples, global);
}

std::int64_t Sampler::batches_per_epoch() const {
  const std::int64_t global = std::int64_t{options_.batch_size} * options_.ranks;
  return options_.train ? options_.samples / global : (options_.samples + global - 1) / global;
}

void Sampler::start_epoch(std::int64_t epoch) {
  if (!options_.train) return;
  order_.resize(static_cast<std::size_t>(options_.samples));
  std::iota(order_.begin(), order_.end(), 0u);
  Random(options_.seed, mix(kOrderStream, static_cast<std::uint64_t>(epoch))).shuffle(order_);
}

std::int64_t Sampler::sample(std::int64_t batch, int row) const {
  const std::int64_t position = (batch * options_.ranks + options_.rank) * options_.batch_size + row;
  if (position >= options_.samples) return -1;
  return options_.train ? std::int64_t{order_[static_cast<std::size_t>(position)]} : position;
}

}  // namespace redline::data
