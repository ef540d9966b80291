#include "data/batch_source.h"

#include "base/error.h"
#include "base/random.h"

namespace redline::data {

SyntheticBatches::SyntheticBatches(const SyntheticOptions& options) : options_(options) {
  if (options.batch_size < 1) throw UsageError("--batch-size {} is less than 1", options.batch_size);
  if (options.image_size < 1) throw UsageError("--image-size {} is less than 1", options.image_size);
  if (options.classes < 1) throw UsageError("--classes {} is less than 1", options.classes);
  validate(options.mix);
  check(options.batches_per_epoch > 0 && options.ranks > 0, "an epoch without batches");
  draw();
}

void SyntheticBatches::set_image_size(int size) {
  if (size == options_.image_size) return;
  options_.image_size = size;
  draw();
}

void SyntheticBatches::draw() {
  const SyntheticOptions& options = options_;
  const auto bytes = static_cast<std::size_t>(options.batch_size) *
                     static_cast<std::size_t>(options.image_size) *
                     static_cast<std::size_t>(options.image_size) * 3;
  batches_.clear();
  for (int i = 0; i < kDistinct; ++i) {
    Random random(options.seed, static_cast<std::uint64_t>(i));
    BatchMemory& memory = *batches_.emplace_back(
        std::make_shared<BatchMemory>(options.batch_size, options.image_size, options.allocator));
    std::uint8_t* image = memory.images();
    for (std::size_t at = 0; at < bytes; at += 4) {
      const std::uint32_t word = random.next_u32();
      for (std::size_t k = 0; k < 4 && at + k < bytes; ++k)
        image[at + k] = static_cast<std::uint8_t>(word >> (8 * k));
    }
    for (int row = 0; row < options.batch_size; ++row)
      memory.labels()[row] =
          static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(options.classes)));
    if (options.mix.any()) {
      std::vector<std::uint8_t> scratch;
      mix_batch(draw_mix(options.mix, options.image_size, random), options.batch_size, options.image_size,
                memory, scratch);
    }
  }
}

std::int64_t SyntheticBatches::samples() const {
  return options_.batches_per_epoch * options_.batch_size * options_.ranks;
}

void SyntheticBatches::start_epoch(std::int64_t epoch, std::int64_t first_batch) {
  epoch_ = epoch;
  step_ = first_batch;
}

bool SyntheticBatches::next(Batch& batch) {
  batch = {};
  if (step_ >= options_.batches_per_epoch) return false;
  const auto& shared = batches_[static_cast<std::size_t>(step_ % kDistinct)];
  const BatchMemory& memory = *shared;
  batch.lease = shared;
  batch.images = memory.images();
  batch.labels = memory.labels();
  batch.other_labels = options_.mix.any() ? memory.other_labels() : nullptr;
  batch.label_weights = options_.mix.any() ? memory.label_weights() : nullptr;
  batch.count = options_.batch_size;
  batch.epoch = epoch_;
  batch.step_in_epoch = step_++;
  return true;
}

}  // namespace redline::data
