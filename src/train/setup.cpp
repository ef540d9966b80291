#include "train/setup.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/communicator.h"
#include "data/class_match.h"
#include "data/hold_out.h"
#include "data/info.h"
#include "data/loader.h"
#include "train/cores.h"
#include "train/interval.h"
#include "train/schedule.h"

namespace redline::train {
namespace {

constexpr const char* kSynthetic = "synthetic";
constexpr const char* kTf32 = "tf32";
constexpr const char* kAuto = "auto";
constexpr const char* kAsConfigured = "as configured";
constexpr std::int64_t kSyntheticClasses = 1000;
constexpr std::int64_t kMostWorkers = 8;      // by default: enough to feed a CPU's training step
constexpr std::int64_t kMostGpuWorkers = 32;  // and a GPU's
constexpr int kSlots = 4;
constexpr std::int64_t kLookedAt = 64;                     // images, to learn how large they are
constexpr std::uint64_t kSeedStride = 0x9e3779b97f4a7c15;  // between the ranks' synthetic data
constexpr const char* kCheckpointEvery = "10m";  // loses little, and costs little however long an epoch is

// Says once a second how far the choice of kernels is.
std::function<void(std::int64_t, std::int64_t)> tell_tuning() {
  return [watch = std::optional<Stopwatch>()](std::int64_t made, std::int64_t all) mutable {
    if (watch && watch->seconds() < 1 && made < all) return;
    watch.emplace();
    log_info("timing kernels to take the fastest: {} of {}", made, all);
  };
}

bool fits_into(const Memory& need, const Memory& available) {
  const auto fits = [](std::uint64_t wanted, std::uint64_t there) { return there == 0 || wanted <= there; };
  return fits(need.host, available.host) && fits(need.device, available.device);
}

// Largest batch below the configured one whose plans fit; 0 when not even one image does.
std::int64_t largest_batch(const Config& config, const backend::Backend& backend, graph::DType dtype,
                           std::int64_t classes, const Memory& available, const Decoding& decoding) {
  std::int64_t fits = 0, too_large = config.optimizer.batch_size;
  while (fits + 1 < too_large) {
    const std::int64_t middle = fits + (too_large - fits) / 2;
    const bool ok =
        fits_into(memory_need(config, make_plans(config, backend, dtype, classes, middle), backend, decoding),
                  available);
    (ok ? fits : too_large) = middle;
  }
  return fits;
}

[[noreturn]] void refuse(const std::string& problem, std::int64_t fits) {
  if (fits == 0)
    throw BatchTooLarge("{}: not even one image fits; try a smaller --image-size or --model", problem);
  throw BatchTooLarge("{}: the largest batch that fits is {} (--accumulate makes a step of several)", problem,
                      fits);
}

// --checkpoint-every, or what it is where it was not given.
std::string checkpoint_interval(const Config& config) {
  if (!config.run.checkpoint_every.empty()) return config.run.checkpoint_every;
  return config.data.path == kSynthetic ? "off" : kCheckpointEvery;
}

// As PyTorch does: the norms of the last layers have no variance over a single value, and training would go
// on without ever learning.
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

std::int64_t default_workers(const Machine& machine, const backend::Backend& backend) {
  return std::clamp<std::int64_t>(machine.cores_allowed, 1,
                                  backend.runs_ahead() ? kMostGpuWorkers : kMostWorkers);
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

data::MixOptions mix_options(const AugmentConfig& augment) {
  return {augment.mixup_alpha, augment.cutmix_alpha};
}

}  // namespace

data::LoaderOptions loader_options(const Config& config, bool train) {
  data::LoaderOptions options;
  options.ranks = static_cast<int>(config.ranks);
  options.fixed_split = config.device.deterministic || config.data.decode == "gpu";
  options.batch_size = static_cast<int>(config.optimizer.batch_size);
  options.threads = static_cast<int>(config.data.workers);
  options.slots = kSlots;
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

namespace {

data::LoaderOptions loader_options(const Config& config, const backend::Backend& backend, int rank,
                                   bool train) {
  data::LoaderOptions options = loader_options(config, train);
  options.rank = rank;
  options.allocator = backend.input_allocator();
  return options;
}

}  // namespace

std::int64_t image_size_of(const plan::Plan& plan) {
  return plan.graph().tensor(plan.model.images).shape.h();
}

namespace {

void set_optimizer(const OptimizerConfig& optimizer, plan::Options& options) {
  using enum plan::OptimizerKind;
  const std::string& name = optimizer.name;
  options.optimizer = name == "lars" ? lars : name == "adamw" ? adamw : name == "lamb" ? lamb : sgd;
  options.momentum = static_cast<float>(optimizer.momentum);
  options.nesterov = optimizer.nesterov;
  options.weight_decay = static_cast<float>(optimizer.weight_decay);
  options.lars_trust = static_cast<float>(optimizer.lars_trust);
  options.beta1 = static_cast<float>(optimizer.betas[0]);
  options.beta2 = static_cast<float>(optimizer.betas[1]);
  const double usual = options.optimizer == lamb ? 1e-6 : 1e-8;
  options.epsilon = static_cast<float>(optimizer.epsilon > 0 ? optimizer.epsilon : usual);
  options.clip_norm = static_cast<float>(optimizer.clip_norm);
  if (optimizer.head_lr > 0) options.head_rate = static_cast<float>(optimizer.head_lr / optimizer.lr);
  options.layer_decay = static_cast<float>(optimizer.layer_decay);
}

}  // namespace

plan::Options train_plan_options(const Config& config, graph::DType dtype, std::int64_t classes,
                                 std::int64_t batch) {
  plan::Options options;
  options.model.model = config.model.name;
  options.model.classes = classes;
  options.model.image_size = train_sizes(config).front();
  options.model.batch = batch;
  options.model.dtype = dtype;
  options.model.label_smoothing = static_cast<float>(config.optimizer.label_smoothing);
  options.model.mixed_labels = mix_options(config.augment).any();
  options.model.frozen_parts = frozen_parts(config.optimizer);
  set_optimizer(config.optimizer, options);
  options.accumulate = static_cast<int>(config.optimizer.accumulate);
  options.ema = config.model.ema;
  options.fuse = !config.device.no_fuse;
  options.bucket_bytes = static_cast<std::size_t>(config.comm.bucket_mb * (1 << 20));
  options.all_reduce = config.ranks > 1 || config.comm.when_alone;
  options.gradient_wire = graph::parse_dtype(config.comm.grad_dtype);
  options.synchronised_norms = config.comm.sync_bn && config.ranks > 1;
  return options;
}

plan::Options eval_plan_options(const Config& config, graph::DType dtype, std::int64_t classes,
                                std::int64_t batch) {
  plan::Options options = train_plan_options(config, dtype, classes, batch);
  options.model.image_size = config.model.image_size;
  options.model.training = false;
  options.model.frozen_parts = 0;
  options.model.label_smoothing = 0;
  options.model.mixed_labels = false;
  options.optimizer = plan::OptimizerKind::none;
  options.all_reduce = options.synchronised_norms = false;
  options.accumulate = 1;
  options.ema = false;
  return options;
}

Plans make_plans(const Config& config, const plan::Capabilities& backend, graph::DType dtype,
                 std::int64_t classes, std::int64_t batch) {
  Plans plans;
  plan::Options train = train_plan_options(config, dtype, classes, batch);
  for (const std::int64_t size : train_sizes(config)) {
    train.model.image_size = size;
    auto plan = std::make_shared<plan::Plan>(make_plan(train, backend));
    if (plans.train == nullptr)
      plans.train = std::move(plan);
    else
      plans.smaller.push_back(std::move(plan));
  }
  plans.eval =
      std::make_shared<plan::Plan>(make_plan(eval_plan_options(config, dtype, classes, batch), backend));
  return plans;
}

std::size_t Decoding::memory_need(const plan::Plan& train) const {
  if (decoder == nullptr) return 0;
  const graph::Shape& images = train.graph().tensor(train.model.images).shape;
  return decoder->memory_need(static_cast<int>(images.n()), static_cast<int>(image_size_of(train)), kSlots,
                              pixels);
}

Memory memory_need(const Config& config, const Plans& plans, const backend::Backend& backend,
                   const Decoding& decoding) {
  const plan::MemoryUse train = plan::memory_use(*plans.train), eval = plan::memory_use(*plans.eval);
  const std::size_t slots = kSlots * (train.inputs + eval.inputs);
  // They run in turn: activations need the memory of the largest.
  std::size_t work = train.total() - train.activations + std::max(train.activations, eval.activations) +
                     eval.inputs + backend.memory_overhead(*plans.train, /*owns_weights=*/true) +
                     backend.memory_overhead(*plans.eval, /*owns_weights=*/false);
  for (const auto& plan : plans.smaller)
    work += plan::memory_use(*plan).inputs + backend.memory_overhead(*plan, /*owns_weights=*/false);
  work += decoding.memory_need(*plans.train);
  const bool checkpoints =
      parse_interval(checkpoint_interval(config), "--checkpoint-every").unit != Interval::Unit::never;
  const std::size_t host =
      slots + (checkpoints ? train.parameters + train.statistics + train.optimizer + train.average : 0);
  return backend.device_memory() ? Memory{host, work} : Memory{host + work, 0};
}

Memory memory_available(const Machine& machine, const backend::Backend& backend) {
  const auto device = backend.device_memory();
  return {machine.memory_available, device ? device->free : 0};
}

void check_memory(const Config& config, const backend::Backend& backend, graph::DType dtype,
                  std::int64_t classes, const Plans& plans, const Memory& available,
                  const Decoding& decoding) {
  const Memory need = memory_need(config, plans, backend, decoding);
  if (fits_into(need, available)) return;
  const bool on_device = available.device != 0 && need.device > available.device;
  refuse(fmt::format("--batch-size {} needs {} of {}memory and {} are available", config.optimizer.batch_size,
                     format_bytes(on_device ? need.device : need.host), on_device ? "device " : "",
                     format_bytes(on_device ? available.device : available.host)),
         largest_batch(config, backend, dtype, classes, available, decoding));
}

void refuse_batch(const Setup& setup, const std::string& what) {
  refuse(fmt::format("--batch-size {} does not fit: {}", setup.config.optimizer.batch_size, what),
         largest_batch(setup.config, *setup.backend, setup.dtype, setup.classes,
                       memory_available(setup.machine, *setup.backend), setup.decoding));
}

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
  device.tune = config.device.tune;
  device.tuning = tell_tuning();
  if (stop != nullptr) device.stop = [stop] { return stop->load(); };
  const std::string& copy = config.device.input_copy;
  if (copy != kAuto) device.input_copy = backend::parse_input_copy(copy);
  auto backend = backend::make_backend(device);
  if (copy != kAuto && !backend->device_memory())
    throw UsageError("--input-copy {} says how batches get to a GPU, and this is {}: leave it out", copy,
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
          "--dtype tf32: {} does not have it, only GPUs of compute capability 8.0 and later; use --dtype "
          "fp32",
          backend.description());
    return {graph::DType::f32, kAsConfigured};
  }
  if (!wanted.empty() && wanted != kAuto) {
    const graph::DType dtype = graph::parse_dtype(wanted);
    if (offers(dtype)) return {dtype, kAsConfigured};
    if (gpu && dtype == graph::DType::bf16)
      throw UnavailableError(
          "--dtype bf16: {} does not have it, only GPUs of compute capability 8.0 and later, by code that "
          "was compiled "
          "for those; use --dtype fp16 or fp32",
          backend.description());
    throw UnavailableError(
        "--dtype {}: {} does not have it here; use {}", wanted, backend.description(),
        dtype != graph::DType::bf16 && offers(graph::DType::bf16) ? "--dtype bf16 or fp32" : "--dtype fp32");
  }
  const std::optional<graph::DType> mixed = backend.mixed_precision();
  if (config.device.amp || wanted == kAuto)
    return mixed ? Precision{*mixed, "mixed precision"}
                 : Precision{graph::DType::f32, "this device is quicker in no other type"};
  if (gpu && mixed) return {*mixed, "mixed precision, the default on a GPU"};
  return {graph::DType::f32, gpu ? "the default on this GPU" : "the default on a CPU"};
}

std::shared_ptr<backend::ImageDecoder> resolve_decoder(const Config& config, backend::Backend& backend) {
  if (config.data.decode == "cpu" || config.data.path == kSynthetic) return nullptr;
  if (config.device.input_copy != kAuto) {  // whoever names a method wants batches to take it
    if (config.data.decode == "gpu")
      throw UsageError(
          "--decode gpu and --input-copy {} contradict each other: images that a GPU decodes are "
          "there already",
          config.device.input_copy);
    return nullptr;
  }
  if (distort_options(config.augment).any() || mix_options(config.augment).any()) {
    constexpr const char* kWhy =
        "a GPU's decoder gives crops and mirror images alone, without --auto-augment, --color-jitter, "
        "--random-erase, --mixup-alpha and --cutmix-alpha";
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

std::string Setup::data_text() const {
  if (synthetic()) return "synthetic";
  return fmt::format("{} ({})", config.data.path, train_records->kind());
}

data::OpenSplits open_splits(const Config& config) {
  data::SourceOptions limits;
  limits.max_bytes = config.data.max_image_bytes;
  const auto seed = static_cast<std::uint64_t>(config.run.seed);
  return config.data.val_split > 0
             ? data::open_with_held_out(config.data.path, config.data.val_split, seed, limits)
             : data::open_splits(config.data.path, config.data.val_dir, limits);
}

std::string remedy_without_val(const std::string& path) {
  const std::vector<data::LeftOut> unused = data::unused_in(path);
  if (std::ranges::any_of(unused, [](const data::LeftOut& one) { return one.what == "test/"; }))
    return fmt::format("--val-dir {} takes those images", (std::filesystem::path(path) / "test").string());
  return "--val-split 0.1 holds out a tenth of its images";
}

namespace {

void open_records(Setup& setup, const std::vector<std::string>& class_names) {
  const DataConfig& config = setup.config.data;
  data::OpenSplits splits = open_splits(setup.config);
  setup.train_records = std::move(splits.train);
  setup.val_records = std::move(splits.val);
  if (!setup.val_records)
    log_warning("{} has no val split: nothing is evaluated ({})", config.path,
                remedy_without_val(config.path));
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
  if (config.data.path != kSynthetic) open_records(setup, class_names);
  if (!setup.synthetic()) check_norms(config);
  if (!config.optimizer.freeze.empty() && config.model.init.empty() && !setup.synthetic())
    log_warning("--freeze {} without --init: random weights stay as they are", config.optimizer.freeze);
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

std::unique_ptr<data::Loader> evaluation_batches(const Config& config, const backend::Backend& backend,
                                                 std::shared_ptr<const data::RecordSource> records,
                                                 int rank) {
  data::LoaderOptions options = loader_options(config, backend, rank, /*train=*/false);
  if (options.threads == 0) options.threads = static_cast<int>(default_workers(inspect_machine(), backend));
  return std::make_unique<data::Loader>(std::move(records), options);
}

}  // namespace redline::train
