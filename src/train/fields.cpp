#include <algorithm>

#include "backend/input_copy.h"
#include "graph/models/resnet.h"
#include "train/config.h"

namespace redline::train {
namespace {

using Int = std::int64_t;
using Text = std::string;
using Maybe = std::optional<std::int64_t>;
using Ints = std::vector<std::int64_t>;
using Numbers = std::vector<double>;

std::vector<Field> model_fields() {
  return {
      {"model", "name", "--model", "network to train", [](Config& c) -> Text& { return c.model.name; },
       graph::model_names()},
      {"model", "classes", "--classes", "classes to tell apart (default: as many as the data has)",
       [](Config& c) -> Maybe& { return c.model.classes; }},
      {"model", "image_size", "--image-size", "height and width of the input in pixels",
       [](Config& c) -> Int& { return c.model.image_size; }},
      {"model", "init", "--init",
       "begin with these weights: safetensors or .pth with torchvision's names, a checkpoint or a run",
       [](Config& c) -> Text& { return c.model.init; }},
      {"model", "zero_init_last", "--zero-init-last", "start the last norm of every residual branch at zero",
       [](Config& c) -> bool& { return c.model.zero_init_last; }},
      {"model", "ema", "--model-ema", "keep a moving average of the weights and evaluate it too",
       [](Config& c) -> bool& { return c.model.ema; }},
      {"model", "ema_decay", "--model-ema-decay", "decay of the moving average per step",
       [](Config& c) -> double& { return c.model.ema_decay; }},
  };
}

std::vector<Field> data_fields() {
  return {
      {"data", "path", "",
       "image folder with train/ and val/, or 'synthetic' for random images made in memory",
       [](Config& c) -> Text& { return c.data.path; }},
      {"data", "val_dir", "--val-dir",
       "validation images, where they are not in the data set: a folder of class folders, or a data set",
       [](Config& c) -> Text& { return c.data.val_dir; }},
      {"data", "val_split", "--val-split",
       "validate on this share of the training images, held out by the seed, where the data has no others",
       [](Config& c) -> double& { return c.data.val_split; }},
      {"data", "workers", "--workers,-j", "threads that read and decode images (0: chosen from the cores)",
       [](Config& c) -> Int& { return c.data.workers; }},
      {"data",
       "decode",
       "--decode",
       "what decodes training JPEGs: cpu, gpu, or auto for a GPU's engines where it has them",
       [](Config& c) -> Text& { return c.data.decode; },
       {"auto", "cpu", "gpu"}},
      {"data",
       "interpolation",
       "--interpolation",
       "how images are resized",
       [](Config& c) -> Text& { return c.data.interpolation; },
       {"bilinear", "bicubic"}},
      {"data", "crop_pct", "--crop-pct", "share of the shorter side that evaluation looks at",
       [](Config& c) -> double& { return c.data.crop_pct; }},
      {"data", "max_bad", "--max-bad",
       "share of damaged images that are skipped before training stops (at least 10 images, or 1 in 20)",
       [](Config& c) -> double& { return c.data.max_bad; }},
      {"data", "max_image_pixels", "--max-image-pixels", "an image with more pixels counts as damaged",
       [](Config& c) -> Int& { return c.data.max_image_pixels; }},
      {"data", "max_image_bytes", "--max-image-bytes", "an image file with more bytes counts as damaged",
       [](Config& c) -> Int& { return c.data.max_image_bytes; }},
      {"data", "synthetic_batches", "--synthetic-batches", "batches in an epoch of synthetic data",
       [](Config& c) -> Int& { return c.data.synthetic_batches; }},
  };
}

std::vector<Field> augment_fields() {
  return {
      {"augment", "scale", "--scale", "share of the image's area that a training crop takes: least and most",
       [](Config& c) -> Numbers& { return c.augment.scale; }},
      {"augment", "ratio", "--ratio", "width / height of a training crop: least and most",
       [](Config& c) -> Numbers& { return c.augment.ratio; }},
      {"augment", "hflip", "--hflip", "probability of mirroring a training image",
       [](Config& c) -> double& { return c.augment.hflip; }},
      {"augment",
       "auto_augment",
       "--auto-augment",
       "random operations on training images: RandAugment or TrivialAugment Wide",
       [](Config& c) -> Text& { return c.augment.auto_augment; },
       {"none", "ra", "ta_wide"}},
      {"augment", "ra_magnitude", "--ra-magnitude", "strength of RandAugment's operations, 0 to 30",
       [](Config& c) -> Int& { return c.augment.ra_magnitude; }},
      {"augment", "ra_num_ops", "--ra-num-ops", "operations that RandAugment applies to an image",
       [](Config& c) -> Int& { return c.augment.ra_num_ops; }},
      {"augment", "color_jitter", "--color-jitter",
       "strength of random brightness, contrast, saturation and hue; one number: of the first three",
       [](Config& c) -> Numbers& { return c.augment.color_jitter; }},
      {"augment", "random_erase", "--random-erase", "probability of painting over a part of a training image",
       [](Config& c) -> double& { return c.augment.random_erase; }},
      {"augment", "random_erase_scale", "--random-erase-scale",
       "share of the area of that part: least and most",
       [](Config& c) -> Numbers& { return c.augment.random_erase_scale; }},
      {"augment", "random_erase_ratio", "--random-erase-ratio", "height / width of that part: least and most",
       [](Config& c) -> Numbers& { return c.augment.random_erase_ratio; }},
      {"augment", "mixup_alpha", "--mixup-alpha",
       "blend each training image with its neighbour: Beta's alpha",
       [](Config& c) -> double& { return c.augment.mixup_alpha; }},
      {"augment", "cutmix_alpha", "--cutmix-alpha",
       "paste a part of its neighbour into each training image: Beta's alpha",
       [](Config& c) -> double& { return c.augment.cutmix_alpha; }},
  };
}

std::vector<Field> optimizer_fields() {
  return {
      {"optimizer",
       "name",
       "--opt",
       "optimizer",
       [](Config& c) -> Text& { return c.optimizer.name; },
       {"sgd", "lars", "adamw", "lamb"}},
      {"optimizer", "batch_size", "--batch-size,-b", "images in a forward pass",
       [](Config& c) -> Int& { return c.optimizer.batch_size; }},
      {"optimizer", "accumulate", "--accumulate", "batches whose gradients are averaged before an update",
       [](Config& c) -> Int& { return c.optimizer.accumulate; }},
      {"optimizer", "global_batch", "--global-batch",
       "images in a step over all ranks, however many there are: --batch-size is then the most in a forward "
       "pass, and --accumulate follows",
       [](Config& c) -> Int& { return c.optimizer.global_batch; }},
      {"optimizer", "lr", "--lr", "learning rate", [](Config& c) -> double& { return c.optimizer.lr; }},
      {"optimizer", "lr_scale_batch", "--lr-scale-batch",
       "multiply the learning rate by images per step / 256",
       [](Config& c) -> bool& { return c.optimizer.lr_scale_batch; }},
      {"optimizer", "momentum", "--momentum", "momentum (sgd and lars)",
       [](Config& c) -> double& { return c.optimizer.momentum; }},
      {"optimizer", "nesterov", "--nesterov", "Nesterov's momentum (sgd)",
       [](Config& c) -> bool& { return c.optimizer.nesterov; }},
      {"optimizer", "weight_decay", "--weight-decay,--wd", "weight decay; norms and biases are spared",
       [](Config& c) -> double& { return c.optimizer.weight_decay; }},
      {"optimizer", "lars_trust", "--lars-trust", "trust coefficient (lars)",
       [](Config& c) -> double& { return c.optimizer.lars_trust; }},
      {"optimizer", "betas", "--opt-betas",
       "how much of its means of gradients and of their squares a step keeps (adamw and lamb)",
       [](Config& c) -> Numbers& { return c.optimizer.betas; }},
      {"optimizer", "epsilon", "--opt-eps",
       "what is added to the root of the mean square (0: 1e-8 with adamw, 1e-6 with lamb)",
       [](Config& c) -> double& { return c.optimizer.epsilon; }},
      {"optimizer", "clip_norm", "--clip-norm",
       "shorten a gradient whose norm is larger to this one (0: never)",
       [](Config& c) -> double& { return c.optimizer.clip_norm; }},
      {"optimizer", "head_lr", "--head-lr", "learning rate of the last layer (0: as the others)",
       [](Config& c) -> double& { return c.optimizer.head_lr; }},
      {"optimizer", "layer_decay", "--layer-decay",
       "learning rate of each block in that of the next one, down from the last layer's",
       [](Config& c) -> double& { return c.optimizer.layer_decay; }},
      {"optimizer", "freeze", "--freeze",
       "parts that are not trained, from the first on: stem,layer1,layer2,layer3,layer4",
       [](Config& c) -> Text& { return c.optimizer.freeze; }},
      {"optimizer", "label_smoothing", "--label-smoothing", "share of the target spread over all classes",
       [](Config& c) -> double& { return c.optimizer.label_smoothing; }},
  };
}

std::vector<Field> schedule_fields() {
  return {
      {"schedule",
       "epochs",
       "--epochs,-e",
       "passes over the data (default: 90)",
       [](Config& c) -> Maybe& { return c.schedule.epochs; },
       {},
       "length"},
      {"schedule",
       "steps",
       "--steps",
       "updates, instead of --epochs",
       [](Config& c) -> Maybe& { return c.schedule.steps; },
       {},
       "length"},
      {"schedule",
       "name",
       "--lr-scheduler",
       "how the learning rate falls",
       [](Config& c) -> Text& { return c.schedule.name; },
       {"step", "cosine", "poly"}},
      {"schedule",
       "step_size",
       "--lr-step-size",
       "epochs between falls (step; default: 30)",
       [](Config& c) -> Maybe& { return c.schedule.step_size; },
       {},
       "falls"},
      {"schedule",
       "milestones",
       "--lr-milestones",
       "epochs at which it falls (step), instead of --lr-step-size",
       [](Config& c) -> Ints& { return c.schedule.milestones; },
       {},
       "falls"},
      {"schedule", "gamma", "--lr-gamma", "factor of each fall (step)",
       [](Config& c) -> double& { return c.schedule.gamma; }},
      {"schedule", "power", "--lr-power", "power of the polynomial (poly)",
       [](Config& c) -> double& { return c.schedule.power; }},
      {"schedule", "min_lr", "--lr-min", "where cosine and poly end",
       [](Config& c) -> double& { return c.schedule.min_lr; }},
      {"schedule",
       "warmup_epochs",
       "--lr-warmup-epochs",
       "epochs over which the learning rate rises linearly",
       [](Config& c) -> Maybe& { return c.schedule.warmup_epochs; },
       {},
       "warm-up"},
      {"schedule",
       "warmup_steps",
       "--lr-warmup-steps",
       "the same in updates, instead of --lr-warmup-epochs",
       [](Config& c) -> Maybe& { return c.schedule.warmup_steps; },
       {},
       "warm-up"},
      {"schedule", "train_sizes", "--train-sizes",
       "sizes of training images in pixels, one after the other, each for an equal share of the epochs "
       "(default: --image-size)",
       [](Config& c) -> Ints& { return c.schedule.train_sizes; }},
  };
}

std::vector<std::string> input_copies() {
  std::vector<std::string> names = {"auto"};
  names.insert(names.end(), backend::kInputCopyNames.begin(), backend::kInputCopyNames.end());
  return names;
}

std::vector<Field> device_fields() {
  return {
      {"device", "name", "--device",
       "what computes: cuda (cuda:1 for the second GPU), cpu or reference (plain loops, slow and exact); "
       "auto: "
       "cuda where a GPU can be used, else cpu",
       [](Config& c) -> Text& { return c.device.name; }},
      {"device",
       "dtype",
       "--dtype",
       "type of activations; auto: fp16 on a GPU, bf16 where the CPU has it, else fp32 (default: auto on a "
       "GPU, "
       "fp32 on a CPU)",
       [](Config& c) -> Text& { return c.device.dtype; },
       {"fp32", "tf32", "bf16", "fp16", "auto"},
       "precision"},
      {"device",
       "amp",
       "--amp",
       "mixed precision where the device has it: short for --dtype auto",
       [](Config& c) -> bool& { return c.device.amp; },
       {},
       "precision"},
      {"device", "threads", "--threads", "threads that compute (0: all cores)",
       [](Config& c) -> Int& { return c.device.threads; }},
      {"device", "deterministic", "--deterministic",
       "the same bits for the same seed and thread count, on a GPU too, where it costs speed",
       [](Config& c) -> bool& { return c.device.deterministic; }},
      {"device", "tune", "--tune",
       "on a GPU, time every kernel that could be taken before the first step, however long that takes; "
       "without "
       "it, those that matter most for a few seconds, and the rest in later runs",
       [](Config& c) -> bool& { return c.device.tune; }},
      {"device", "no_fuse", "--no-fuse", "run every op of the model by itself",
       [](Config& c) -> bool& { return c.device.no_fuse; }},
      {"device", "input_copy", "--input-copy",
       "how batches get to a GPU; one that is named makes --decode auto the CPU's (auto: pinned)",
       [](Config& c) -> Text& { return c.device.input_copy; }, input_copies()},
  };
}

std::vector<Field> comm_fields() {
  return {
      {"comm",
       "grad_dtype",
       "--grad-dtype",
       "type in which gradients travel between ranks",
       [](Config& c) -> Text& { return c.comm.grad_dtype; },
       {"fp32", "fp16", "bf16"}},
      {"comm", "bucket_mb", "--bucket-mb", "MiB of gradients that travel between ranks together",
       [](Config& c) -> double& { return c.comm.bucket_mb; }},
      {"comm", "sync_bn", "--sync-bn", "batch norms take the batches of all ranks together",
       [](Config& c) -> bool& { return c.comm.sync_bn; }},
      {"comm", "when_alone", "--comm-when-alone",
       "exchange gradients with one rank too, to see what the exchange costs by itself",
       [](Config& c) -> bool& { return c.comm.when_alone; }},
      {"comm", "check_every", "--check-every",
       "steps between checks that all ranks hold the same weights (0: only at the start)",
       [](Config& c) -> Int& { return c.comm.check_every; }},
      {"comm", "timeout", "--comm-timeout", "seconds after which a rank that does not answer is lost",
       [](Config& c) -> double& { return c.comm.timeout; }},
      {"comm", "join_timeout", "--join-timeout", "seconds to wait at the start until all ranks are there",
       [](Config& c) -> double& { return c.comm.join_timeout; }},
      {"comm", "interface", "--comm-interface",
       "network interface between ranks (default: the one that leads to rank 0)",
       [](Config& c) -> Text& { return c.comm.interface; }},
  };
}

std::vector<Field> run_fields() {
  return {
      {"run", "output_dir", "--output-dir,-o", "folder that gets a folder for this run",
       [](Config& c) -> Text& { return c.run.output_dir; }},
      {"run", "name", "--name", "name of the run (default: model, data and time)",
       [](Config& c) -> Text& { return c.run.name; }},
      {"run", "seed", "--seed", "seed of weights, order and augmentation",
       [](Config& c) -> Int& { return c.run.seed; }},
      {"run", "eval_every", "--eval-every", "epochs between evaluations (0: only at the end)",
       [](Config& c) -> Int& { return c.run.eval_every; }},
      {"run", "eval_offset", "--eval-offset",
       "evaluate this many epochs after the multiples of --eval-every: 1 with --eval-every 4 is after epochs "
       "1, 5, 9, …",
       [](Config& c) -> Int& { return c.run.eval_offset; }},
      {"run", "target_accuracy", "--target-accuracy",
       "stop when an evaluation's top-1 reaches this, as 0.759 (0: train to the end)",
       [](Config& c) -> double& { return c.run.target_accuracy; }},
      {"run", "patience", "--patience",
       "stop after this many epochs in which no evaluation was better than the best before (0: never)",
       [](Config& c) -> Int& { return c.run.patience; }},
      {"run",
       "mlperf_log",
       "--mlperf-log",
       "write the lines of an MLPerf log into this file (alone: mlperf.log in the run folder)",
       [](Config& c) -> Text& { return c.run.mlperf_log; },
       {},
       {},
       "auto",
       "FILE"},
      {"run", "mlperf_org", "--mlperf-org", "the submitter's name in the MLPerf log (default: none)",
       [](Config& c) -> Text& { return c.run.mlperf_org; }},
      {"run", "log_every", "--log-every", "steps between lines of progress",
       [](Config& c) -> Int& { return c.run.log_every; }},
      {"run", "histograms_every", "--histograms-every",
       "steps between histograms of weights and gradients in TensorBoard (0: none)",
       [](Config& c) -> Int& { return c.run.histograms_every; }},
      {"run", "max_bad_steps", "--max-bad-steps",
       "steps in a row with gradients that are not finite before training stops",
       [](Config& c) -> Int& { return c.run.max_bad_steps; }},
      {"run", "checkpoint_every", "--checkpoint-every",
       "steps (500), epochs (1ep) or time (90s, 5m, 1h) between checkpoints, or off (or 0; default: 10m; off "
       "for "
       "synthetic data)",
       [](Config& c) -> Text& { return c.run.checkpoint_every; }},
      {"run", "keep", "--keep", "newest checkpoints that stay; the best one stays too",
       [](Config& c) -> Int& { return c.run.keep; }},
      {"run",
       "telemetry",
       "--telemetry",
       "sample clocks, power, temperature and use of the device into profile/telemetry.csv, this often "
       "(alone: 50ms)",
       [](Config& c) -> Text& { return c.run.telemetry; },
       {},
       {},
       "50ms",
       "INTERVAL"},
      {"run", "quiet", "--quiet,-q", "no progress, only the closing summary",
       [](Config& c) -> bool& { return c.run.quiet; }},
  };
}

std::vector<Field> make_fields() {
  std::vector<Field> all;
  for (auto part : {model_fields, data_fields, augment_fields, optimizer_fields, schedule_fields,
                    device_fields, comm_fields, run_fields}) {
    std::ranges::move(part(), std::back_inserter(all));
  }
  return all;
}

}  // namespace

const std::vector<Field>& fields() {
  static const std::vector<Field> all = make_fields();
  return all;
}

std::string Field::flag() const { return flags.empty() ? key : flags.substr(0, flags.find(',')); }

void copy(const Field& field, const Config& from, Config& to) {
  Config source = from;
  std::visit([&](auto member) { member(to) = member(source); }, field.member);
}

void reset(const Field& field, Config& config) { copy(field, Config{}, config); }

}  // namespace redline::train
