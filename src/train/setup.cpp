#include "train/setup.h"

#include <filesystem>
#include <functional>
#include <optional>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/communicator.h"
#include "data/prepare/info.h"
#include "data/sources/class_match.h"
#include "train/cores.h"
#include "train/schedule.h"

namespace redline::train {
namespace {

constexpr const char* kTf32 = "tf32";
constexpr const char* kAuto = "auto";
constexpr const char* kAsConfigured = "as configured";
constexpr std::int64_t kSyntheticClasses = 1000;
constexpr std::int64_t kLookedAt = 64;                     // images, to learn how large they are
constexpr std::uint64_t kSeedStride = 0x9e3779b97f4a7c15;  // between the ranks' synthetic data

// Reports the progress of the kernel choice once a second.
std::function<void(std::int64_t, std::int64_t)> tell_tuning() {
  return [watch = std::optional<Stopwatch>()](std::int64_t made, std::int64_t all) mutable {
    if (watch && watch->seconds() < 1 && made < all) return;
    watch.emplace();
    log_info("timing kernels to find the fastest: {} of {}", made, all);
  };
}

// As PyTorch does: the norms of the last layers have no variance over a single value, and training would
// never learn.
void check_norms(const Config& config) {
  constexpr std::int64_t kShrink = 32;  // of the last layers, rounded up
  const std::int64_t least = train_sizes(config).back(), points = (least + kShrink - 1) / kShrink;
  const std::int64_t images = config.optimizer.batch_size * (config.comm.sync_bn ? config.ranks : 1);
  if (images * points * points > 1) return;
  throw UsageError(
      "--batch-size 1 at {} px: the last batch norms would see a single value of each channel; use a larger "
      "--batch-size or --image-size",
      least);
}

std::int64_t resolve_classes(const Config& config, const data::RecordSource* records) {
  if (records == nullptr) return config.model.classes.value_or(kSyntheticClasses);
  const auto present = static_cast<std::int64_t>(records->classes().size());
  const std::int64_t classes = config.model.classes.value_or(present);
  if (classes < present) {
    throw UsageError("--classes {} is fewer than the {} classes of {}: leave it out to use them all", classes,
                     present, config.data.path);
  }
  return classes;
}

Config resolve(const Setup& setup) {
  Config config = setup.config;
  config.model.classes = setup.classes;
  if (!config.device.name.starts_with(setup.backend->name() + ":"))  // "cuda:1" stays
    config.device.name = setup.backend->name();
  if (config.device.dtype != kTf32) config.device.dtype = graph::name_of(setup.dtype);
  config.device.amp = false;
  if (!config.schedule.epochs && !config.schedule.steps) config.schedule.epochs = kDefaultEpochs;
  config.run.checkpoint_every = checkpoint_interval(config);
  if (config.data.workers == 0) config.data.workers = default_workers(setup.machine, *setup.backend);
  if (!setup.decoding.decoder) config.data.decode = "cpu";
  if (!config.model.init.empty())
    config.model.init = std::filesystem::absolute(config.model.init).lexically_normal().string();
  if (!setup.synthetic())
    config.data.path = std::filesystem::absolute(config.data.path).lexically_normal().string();
  if (!config.data.val_dir.empty())
    config.data.val_dir = std::filesystem::absolute(config.data.val_dir).lexically_normal().string();
  return config;
}

}  // namespace

std::unique_ptr<backend::Backend> open_device(const Config& config,
                                              std::shared_ptr<comm::Communicator> communicator,
                                              const std::atomic<bool>* stop) {
  backend::DeviceOptions device;
  device.communicator = std::move(communicator);
  device.device = config.device.name;
  device.threads = static_cast<int>(config.device.threads);
  device.deterministic = config.device.deterministic;
  device.tf32 = config.device.dtype == kTf32;
  device.cache_dir = cache_folder();
  if (config.device.time_all) device.tuning = backend::Tuning::all;
  if (config.device.tune) device.tuning = backend::Tuning::step;
  device.tuning_progress = tell_tuning();
  if (stop != nullptr) device.stop = [stop] { return stop->load(); };
  const std::string& copy = config.device.input_copy;
  if (copy != kAuto) device.input_copy = backend::parse_input_copy(copy);
  auto backend = backend::make_backend(device);
  if (copy != kAuto && !backend->device_memory())
    throw UsageError("--input-copy {} is for GPUs, but the device is {}: leave it out", copy,
                     backend->description());
  return backend;
}

Precision resolve_dtype(const Config& config, const backend::Backend& backend) {
  const std::string& wanted = config.device.dtype;
  const bool gpu = backend.device_memory().has_value();
  const auto offers = [&](graph::DType dtype) { return backend.supports(graph::OpKind::conv, dtype); };
  if (wanted == kTf32) {
    if (!backend.has_tf32())
      throw UnavailableError(
          "--dtype tf32: {} does not support it, only GPUs of compute capability 8.0 and later do; use "
          "--dtype fp32",
          backend.description());
    return {graph::DType::f32, kAsConfigured};
  }
  if (!wanted.empty() && wanted != kAuto) {
    const graph::DType dtype = graph::parse_dtype(wanted);
    if (offers(dtype)) return {dtype, kAsConfigured};
    if (gpu && dtype == graph::DType::bf16)
      throw UnavailableError(
          "--dtype bf16: {} does not support it, only GPUs of compute capability 8.0 and later do, with code "
          "compiled for them; use --dtype fp16 or fp32",
          backend.description());
    throw UnavailableError(
        "--dtype {}: {} does not support it here; use {}", wanted, backend.description(),
        dtype != graph::DType::bf16 && offers(graph::DType::bf16) ? "--dtype bf16 or fp32" : "--dtype fp32");
  }
  const std::optional<graph::DType> mixed = backend.mixed_precision();
  if (config.device.amp || wanted == kAuto)
    return mixed ? Precision{*mixed, "mixed precision"}
                 : Precision{graph::DType::f32, "no other type is faster on this device"};
  if (gpu && mixed) return {*mixed, "mixed precision, the default on a GPU"};
  return {graph::DType::f32, gpu ? "the default on this GPU" : "the default on a CPU"};
}

void refuse_batch(const Setup& setup, const std::string& what) {
  refuse_batch(setup.config, *setup.backend, setup.dtype, setup.classes,
               memory_available(setup.machine, *setup.backend), setup.decoding,
               fmt::format("--batch-size {} does not fit: {}", setup.config.optimizer.batch_size, what));
}

std::string Setup::data_text() const {
  if (synthetic()) return "synthetic";
  return fmt::format("{} ({})", config.data.path, train_records->kind());
}

namespace {

void open_records(Setup& setup, const std::vector<std::string>& class_names, const std::atomic<bool>* stop) {
  const DataConfig& config = setup.config.data;
  data::OpenSplits splits = open_splits(setup.config, stop);
  setup.train_records = std::move(splits.train);
  setup.val_records = std::move(splits.val);
  const std::vector<std::string> present = setup.train_records->classes();
  setup.class_names = class_names.empty() ? data::lasting_names(present) : class_names;
  if (class_names.empty() || class_names == present || data::lasting_names(present).empty()) return;
  const std::vector<std::int32_t> labels = data::match_classes(class_names, present, config.path);
  for (auto* records : {&setup.train_records, &setup.val_records})
    if (*records) *records = data::relabelled(std::move(*records), labels, class_names);
}

}  // namespace

Setup prepare(const Config& config, const std::shared_ptr<comm::Communicator>& communicator,
              const std::atomic<bool>* stop, const std::vector<std::string>& class_names) {
  validate(config);
  Setup setup;
  if (communicator != nullptr) setup.rank = communicator->rank();
  setup.config = config;
  std::optional<CoreShare> cores;  // before whatever counts them
  if (communicator != nullptr) cores.emplace(*communicator);
  setup.machine = inspect_machine();
  setup.backend = open_device(config, communicator, stop);
  if (cores) cores->move_near(setup.backend->pci_address());
  Precision precision = resolve_dtype(config, *setup.backend);
  setup.dtype = precision.dtype;
  setup.why_dtype = std::move(precision.why);
  if (!config.data.synthetic()) open_records(setup, class_names, stop);
  if (!setup.synthetic()) check_norms(config);  // synthetic images are for measuring, at any size
  if (!config.optimizer.freeze.empty() && config.model.init.empty() && !setup.synthetic())
    log_warning("--freeze {} without --init: the frozen weights are random", config.optimizer.freeze);
  setup.classes = resolve_classes(config, setup.train_records.get());
  setup.decoding.decoder = resolve_decoder(config, *setup.backend);
  if (setup.decoding.decoder) {
    data::SplitInfo images;
    data::look_at_images(*setup.train_records, kLookedAt, images);
    setup.decoding.pixels = images.mean_plain_pixels;
  }
  setup.config = resolve(setup);
  setup.plans = make_plans(config, *setup.backend, setup.dtype, setup.classes, config.optimizer.batch_size);
  check_memory(config, *setup.backend, setup.dtype, setup.classes, setup.plans,
               memory_available(setup.machine, *setup.backend), setup.decoding);
  return setup;
}

std::unique_ptr<data::BatchSource> train_batches(const Setup& setup) {
  if (!setup.synthetic()) {
    // Evaluation stays with the CPU's decoder, so that an accuracy does not depend on the GPU.
    data::LoaderOptions options = loader_options(setup.config, *setup.backend, setup.rank, /*train=*/true);
    options.decoder = setup.decoding.decoder;
    options.transform.size = static_cast<int>(train_sizes(setup.config).front());
    return std::make_unique<data::Loader>(setup.train_records, options);
  }
  data::SyntheticOptions options;
  options.batch_size = static_cast<int>(setup.config.optimizer.batch_size);
  options.image_size = static_cast<int>(train_sizes(setup.config).front());
  options.classes = static_cast<int>(setup.classes);
  options.batches_per_epoch = setup.config.data.synthetic_batches;
  // Other images on every rank.
  options.ranks = static_cast<int>(setup.config.ranks);
  options.seed = static_cast<std::uint64_t>(setup.config.run.seed) +
                 static_cast<std::uint64_t>(setup.rank) * kSeedStride;
  options.allocator = setup.backend->input_allocator();
  options.mix = mix_options(setup.config.augment);
  return std::make_unique<data::SyntheticBatches>(options);
}

std::unique_ptr<data::BatchSource> val_batches(const Setup& setup) {
  if (setup.val_records == nullptr) return nullptr;
  return evaluation_batches(setup.config, *setup.backend, setup.val_records, setup.rank);
}

}  // namespace redline::train
