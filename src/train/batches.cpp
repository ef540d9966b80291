#include "train/batches.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "data/sources/hold_out.h"
#include "train/plans.h"

namespace redline::train {
namespace {

constexpr std::int64_t kMostWorkers = 8;      // by default: enough to feed a CPU's training step
constexpr std::int64_t kMostGpuWorkers = 32;  // and a GPU's

data::DistortOptions distort_options(const AugmentConfig& augment) {
  data::DistortOptions options;
  if (augment.auto_augment == "ra") options.policy = data::AutoAugment::rand_augment;
  if (augment.auto_augment == "ta_wide") options.policy = data::AutoAugment::trivial_augment_wide;
  options.magnitude = static_cast<int>(augment.ra_magnitude);
  options.operations = static_cast<int>(augment.ra_num_ops);
  std::vector<double> jitter = augment.color_jitter;
  if (jitter.size() == 1) jitter.resize(3, jitter[0]);
  jitter.resize(4);
  options.jitter = {jitter[0], jitter[1], jitter[2], jitter[3]};
  options.erase.probability = augment.random_erase;
  options.erase.scale_min = augment.random_erase_scale[0];
  options.erase.scale_max = augment.random_erase_scale[1];
  options.erase.ratio_min = augment.random_erase_ratio[0];
  options.erase.ratio_max = augment.random_erase_ratio[1];
  return options;
}

}  // namespace

data::OpenSplits open_splits(const Config& config, const std::atomic<bool>* stop) {
  data::SourceOptions limits;
  limits.max_bytes = config.data.max_image_bytes;
  if (stop != nullptr) limits.stop = [stop] { return stop->load(); };
  const auto seed = static_cast<std::uint64_t>(config.run.seed);
  return config.data.val_split > 0
             ? data::open_with_held_out(config.data.path, config.data.val_split, seed, limits)
             : data::open_splits(config.data.path, config.data.val_dir, limits);
}

std::string remedy_without_val(const std::string& path) {
  const std::vector<data::LeftOut> unused = data::unused_in(path);
  for (const data::LeftOut& one : unused)
    for (const char* name : {"test", "testing", "Test", "Testing"})
      if (one.what == std::string(name) + "/")
        return fmt::format("--val-dir {} uses those images", (std::filesystem::path(path) / name).string());
  return "--val-split 0.1 holds out a tenth of its images";
}

std::size_t Decoding::memory_need(const plan::Plan& train) const {
  if (decoder == nullptr) return 0;
  const graph::Shape& images = train.graph().tensor(train.model.images).shape;
  return decoder->memory_need(static_cast<int>(images.n()), static_cast<int>(image_size_of(train)),
                              kBatchSlots, pixels);
}

std::shared_ptr<backend::ImageDecoder> resolve_decoder(const Config& config, backend::Backend& backend) {
  if (config.data.decode == "cpu" || config.data.synthetic()) return nullptr;
  if (config.device.input_copy != "auto") {  // whoever names a method wants batches to take it
    if (config.data.decode == "gpu")
      throw UsageError(
          "--decode gpu and --input-copy {} contradict each other: images that a GPU decodes are already in "
          "its memory",
          config.device.input_copy);
    return nullptr;
  }
  if (distort_options(config.augment).any() || mix_options(config.augment).any()) {
    constexpr const char* kWhy =
        "a GPU's decoder can only crop and mirror, without --auto-augment, --color-jitter, --random-erase, "
        "--mixup-alpha and --cutmix-alpha";
    if (config.data.decode == "gpu") throw UsageError("--decode gpu: {}", kWhy);
    if (backend.device_memory()) log_info("the CPU decodes images: {}", kWhy);
    return nullptr;
  }
  try {
    return backend.make_image_decoder();
  } catch (const UnavailableError& why) {
    if (config.data.decode == "gpu") throw UnavailableError("--decode gpu: {}", why.what());
    if (backend.device_memory()) log_info("the CPU decodes images: {}", why.what());
    return nullptr;
  }
}

std::int64_t default_workers(const Machine& machine, const backend::Backend& backend) {
  return std::clamp<std::int64_t>(machine.cores_allowed, 1,
                                  backend.runs_ahead() ? kMostGpuWorkers : kMostWorkers);
}

data::MixOptions mix_options(const AugmentConfig& augment) {
  return {augment.mixup_alpha, augment.cutmix_alpha};
}

data::LoaderOptions loader_options(const Config& config, bool train) {
  data::LoaderOptions options;
  options.ranks = static_cast<int>(config.ranks);
  options.fixed_split = config.device.deterministic || config.data.decode == "gpu";
  options.batch_size = static_cast<int>(config.optimizer.batch_size);
  options.threads = static_cast<int>(config.data.workers);
  options.slots = kBatchSlots;
  options.seed = static_cast<std::uint64_t>(config.run.seed);
  options.max_bad = config.data.max_bad;
  options.transform.train = train;
  options.transform.size = static_cast<int>(config.model.image_size);
  options.transform.filter =
      config.data.interpolation == "bicubic" ? Interpolation::bicubic : Interpolation::bilinear;
  options.transform.scale_min = config.augment.scale[0];
  options.transform.scale_max = config.augment.scale[1];
  options.transform.ratio_min = config.augment.ratio[0];
  options.transform.ratio_max = config.augment.ratio[1];
  options.transform.flip = config.augment.hflip;
  options.transform.distort = distort_options(config.augment);
  options.transform.centre = config.data.crop_pct;
  options.mix = mix_options(config.augment);
  options.limits.max_pixels = config.data.max_image_pixels;
  return options;
}

data::LoaderOptions loader_options(const Config& config, const backend::Backend& backend, int rank,
                                   bool train) {
  data::LoaderOptions options = loader_options(config, train);
  options.rank = rank;
  options.allocator = backend.input_allocator();
  return options;
}

std::unique_ptr<data::Loader> evaluation_batches(const Config& config, const backend::Backend& backend,
                                                 std::shared_ptr<const data::RecordSource> records,
                                                 int rank) {
  data::LoaderOptions options = loader_options(config, backend, rank, /*train=*/false);
  if (options.threads == 0) options.threads = static_cast<int>(default_workers(inspect_machine(), backend));
  return std::make_unique<data::Loader>(std::move(records), options);
}

}  // namespace redline::train
