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

Field taking(std::string value_name, Field field) {
  field.value_name = std::move(value_name);
  return field;
}

std::vector<Field> model_fields() {
  return {
      {"model", "name", "--model", "model to train", [](Config& c) -> Text& { return c.model.name; },
       graph::model_names()},
      {"model", "classes", "--classes", "number of classes (default: as many as the data has)",
       [](Config& c) -> Maybe& { return c.model.classes; }},
      {"model", "image_size", "--image-size", "image height and width in pixels",
       [](Config& c) -> Int& { return c.model.image_size; }},
      taking("PATH",
             {"model", "init", "--init",
              "start from these weights: safetensors or .pth with torchvision's names, a checkpoint or a run",
              [](Config& c) -> Text& { return c.model.init; }}),
      {"model", "zero_init_last", "--zero-init-last",
       "initialise the last batch norm of every residual branch to zero",
       [](Config& c) -> bool& { return c.model.zero_init_last; }},
      {"model", "ema", "--model-ema",
       "keep an exponential moving average of the weights, and evaluate it too",
       [](Config& c) -> bool& { return c.model.ema; }},
      {"model", "ema_decay", "--model-ema-decay", "decay of the moving average per step",
       [](Config& c) -> double& { return c.model.ema_decay; }},
  };
}

std::vector<Field> data_fields() {
  return {
      taking("PATH",
             {"data", "path", "", "image folder with train/ and val/, or 'synthetic' for random images",
              [](Config& c) -> Text& { return c.data.path; }}),
      taking("DIR", {"data", "val_dir", "--val-dir",
                     "validation images, if the data set has none: a folder of class folders, or a data set",
                     [](Config& c) -> Text& { return c.data.val_dir; }}),
      {"data", "val_split", "--val-split",
       "fraction of the training images to hold out for validation, if the data set has none",
       [](Config& c) -> double& { return c.data.val_split; }},
      {"data", "workers", "--workers,-j",
       "threads that read and decode images (0: chosen from the number of cores)",
       [](Config& c) -> Int& { return c.data.workers; }},
      {"data",
       "decode",
       "--decode",
       "where training JPEGs are decoded; auto: on the GPU if it has JPEG engines",
       [](Config& c) -> Text& { return c.data.decode; },
       {"auto", "cpu", "gpu"}},
      {"data",
       "interpolation",
       "--interpolation",
       "interpolation for resizing images",
       [](Config& c) -> Text& { return c.data.interpolation; },
       {"bilinear", "bicubic"}},
      {"data", "crop_pct", "--crop-pct",
       "fraction of the image's shorter side that the evaluation crop keeps",
       [](Config& c) -> double& { return c.data.crop_pct; }},
      {"data", "max_bad", "--max-bad",
       "fraction of images that may be damaged before training stops; above 0, at least 10 images or 1 in 20 "
       "may",
       [](Config& c) -> double& { return c.data.max_bad; }},
      {"data", "max_image_pixels", "--max-image-pixels", "treat larger images as damaged",
       [](Config& c) -> Int& { return c.data.max_image_pixels; }},
      {"data", "max_image_bytes", "--max-image-bytes", "treat larger image files as damaged",
       [](Config& c) -> Int& { return c.data.max_image_bytes; }},
      {"data", "synthetic_batches", "--synthetic-batches", "batches per epoch of synthetic data",
       [](Config& c) -> Int& { return c.data.synthetic_batches; }},
  };
}

std::vector<Field> augment_fields() {
  return {
      {"augment", "scale", "--scale",
       "smallest and largest area of a random crop, as a fraction of the image",
       [](Config& c) -> Numbers& { return c.augment.scale; }},
      {"augment", "ratio", "--ratio", "smallest and largest aspect ratio (width / height) of a random crop",
       [](Config& c) -> Numbers& { return c.augment.ratio; }},
      {"augment", "hflip", "--hflip", "probability of a horizontal flip",
       [](Config& c) -> double& { return c.augment.hflip; }},
      {"augment",
       "auto_augment",
       "--auto-augment",
       "augmentation policy: RandAugment (ra) or TrivialAugment Wide (ta_wide)",
       [](Config& c) -> Text& { return c.augment.auto_augment; },
       {"none", "ra", "ta_wide"}},
      {"augment", "ra_magnitude", "--ra-magnitude", "magnitude of RandAugment, 0 to 30",
       [](Config& c) -> Int& { return c.augment.ra_magnitude; }},
      {"augment", "ra_num_ops", "--ra-num-ops", "operations that RandAugment applies to each image",
       [](Config& c) -> Int& { return c.augment.ra_num_ops; }},
      {"augment", "color_jitter", "--color-jitter",
       "strength of random brightness, contrast, saturation and hue; a single number sets the first three",
       [](Config& c) -> Numbers& { return c.augment.color_jitter; }},
      {"augment", "random_erase", "--random-erase", "probability of erasing a random rectangle",
       [](Config& c) -> double& { return c.augment.random_erase; }},
      {"augment", "random_erase_scale", "--random-erase-scale",
       "smallest and largest area of the rectangle, as a fraction of the image",
       [](Config& c) -> Numbers& { return c.augment.random_erase_scale; }},
      {"augment", "random_erase_ratio", "--random-erase-ratio",
       "smallest and largest aspect ratio (height / width) of the rectangle",
       [](Config& c) -> Numbers& { return c.augment.random_erase_ratio; }},
      {"augment", "mixup_alpha", "--mixup-alpha", "alpha of mixup (0: off)",
       [](Config& c) -> double& { return c.augment.mixup_alpha; }},
      {"augment", "cutmix_alpha", "--cutmix-alpha", "alpha of CutMix (0: off)",
       [](Config& c) -> double& { return c.augment.cutmix_alpha; }},
  };
}

std::vector<Field> optimizer_fields() {
  return {
      {"optimizer", "batch_size", "--batch-size,-b", "batch size per process",
       [](Config& c) -> Int& { return c.optimizer.batch_size; }},
      {"optimizer", "lr", "--lr", "learning rate", [](Config& c) -> double& { return c.optimizer.lr; }},
      {"optimizer",
       "name",
       "--opt",
       "optimizer",
       [](Config& c) -> Text& { return c.optimizer.name; },
       {"sgd", "lars", "adamw", "lamb"}},
      {"optimizer", "momentum", "--momentum", "momentum (sgd, lars)",
       [](Config& c) -> double& { return c.optimizer.momentum; }},
      {"optimizer", "weight_decay", "--weight-decay,--wd",
       "weight decay; not applied to batch norms and biases",
       [](Config& c) -> double& { return c.optimizer.weight_decay; }},
      {"optimizer", "label_smoothing", "--label-smoothing", "label smoothing",
       [](Config& c) -> double& { return c.optimizer.label_smoothing; }},
      {"optimizer", "nesterov", "--nesterov", "use Nesterov momentum (sgd)",
       [](Config& c) -> bool& { return c.optimizer.nesterov; }},
      {"optimizer", "clip_norm", "--clip-norm", "clip the norm of the gradient to this value (0: off)",
       [](Config& c) -> double& { return c.optimizer.clip_norm; }},
      {"optimizer", "lr_scale_batch", "--lr-scale-batch",
       "multiply the learning rate by images per update / 256",
       [](Config& c) -> bool& { return c.optimizer.lr_scale_batch; }},
      {"optimizer", "accumulate", "--accumulate", "batches to accumulate gradients over before each update",
       [](Config& c) -> Int& { return c.optimizer.accumulate; }},
      {"optimizer", "global_batch", "--global-batch",
       "images per update over all processes; sets --accumulate so that no process takes more than "
       "--batch-size at a time (0: off)",
       [](Config& c) -> Int& { return c.optimizer.global_batch; }},
      taking("PARTS", {"optimizer", "freeze", "--freeze",
                       "parts to freeze, from the front: stem,layer1,layer2,layer3,layer4",
                       [](Config& c) -> Text& { return c.optimizer.freeze; }}),
      {"optimizer", "head_lr", "--head-lr", "learning rate of the last layer (0: --lr)",
       [](Config& c) -> double& { return c.optimizer.head_lr; }},
      {"optimizer", "layer_decay", "--layer-decay",
       "factor on the learning rate from each block to the one before it, starting at the last layer",
       [](Config& c) -> double& { return c.optimizer.layer_decay; }},
      {"optimizer", "betas", "--opt-betas",
       "decay rates of the gradient's mean and mean square (adamw, lamb)",
       [](Config& c) -> Numbers& { return c.optimizer.betas; }},
      {"optimizer", "epsilon", "--opt-eps",
       "epsilon in the update's denominator (adamw, lamb; 0: 1e-8 for adamw, 1e-6 for lamb)",
       [](Config& c) -> double& { return c.optimizer.epsilon; }},
      {"optimizer", "lars_trust", "--lars-trust", "trust coefficient (lars)",
       [](Config& c) -> double& { return c.optimizer.lars_trust; }},
  };
}

std::vector<Field> schedule_fields() {
  return {
      {"schedule",
       "epochs",
       "--epochs,-e",
       "epochs to train (default: 90)",
       [](Config& c) -> Maybe& { return c.schedule.epochs; },
       {},
       "length"},
      {"schedule",
       "steps",
       "--steps",
       "updates to train, instead of --epochs",
       [](Config& c) -> Maybe& { return c.schedule.steps; },
       {},
       "length"},
      {"schedule",
       "name",
       "--lr-scheduler",
       "learning rate schedule",
       [](Config& c) -> Text& { return c.schedule.name; },
       {"step", "cosine", "poly"}},
      {"schedule",
       "step_size",
       "--lr-step-size",
       "epochs between drops of the learning rate (step; default: 30)",
       [](Config& c) -> Maybe& { return c.schedule.step_size; },
       {},
       "falls"},
      {"schedule",
       "milestones",
       "--lr-milestones",
       "epochs at which the learning rate drops (step), instead of --lr-step-size",
       [](Config& c) -> Ints& { return c.schedule.milestones; },
       {},
       "falls"},
      {"schedule", "gamma", "--lr-gamma", "factor of each drop (step)",
       [](Config& c) -> double& { return c.schedule.gamma; }},
      {"schedule", "power", "--lr-power", "exponent (poly)",
       [](Config& c) -> double& { return c.schedule.power; }},
      {"schedule", "min_lr", "--lr-min", "final learning rate (cosine, poly)",
       [](Config& c) -> double& { return c.schedule.min_lr; }},
      {"schedule",
       "warmup_epochs",
       "--lr-warmup-epochs",
       "epochs of linear warm-up",
       [](Config& c) -> Maybe& { return c.schedule.warmup_epochs; },
       {},
       "warm-up"},
      {"schedule",
       "warmup_steps",
       "--lr-warmup-steps",
       "updates of linear warm-up, instead of --lr-warmup-epochs",
       [](Config& c) -> Maybe& { return c.schedule.warmup_steps; },
       {},
       "warm-up"},
      {"schedule", "train_sizes", "--train-sizes",
       "progressive resizing: training image sizes in pixels, each for an equal share of the epochs "
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
      taking("DEVICE", {"device", "name", "--device",
                        "device to train on: cuda (cuda:1 for the second GPU), cpu or reference (plain "
                        "loops, slow and exact); "
                        "auto: a GPU if it "
                        "can be used, else the CPU",
                        [](Config& c) -> Text& { return c.device.name; }}),
      {"device",
       "dtype",
       "--dtype",
       "precision of activations; auto: fp16 on a GPU, bf16 on a CPU that has it, else fp32 (default: auto "
       "on a GPU, fp32 on a CPU)",
       [](Config& c) -> Text& { return c.device.dtype; },
       {"fp32", "tf32", "bf16", "fp16", "auto"},
       "precision"},
      {"device",
       "amp",
       "--amp",
       "mixed precision if the device has it: short for --dtype auto",
       [](Config& c) -> bool& { return c.device.amp; },
       {},
       "precision"},
      {"device", "threads", "--threads", "compute threads on a CPU (0: all cores)",
       [](Config& c) -> Int& { return c.device.threads; }},
      {"device", "deterministic", "--deterministic",
       "bit-identical results for the same seed and thread count; slower on a GPU",
       [](Config& c) -> bool& { return c.device.deterministic; }},
      {"device", "tune", "--tune",
       "choose kernels with more care (GPU): time all candidates before the first step, not only the most "
       "important ones, and compare close ones by the time of whole steps; takes minutes, once",
       [](Config& c) -> bool& { return c.device.tune; }},
      {"device", "no_fuse", "--no-fuse", "run every op separately, without fusion",
       [](Config& c) -> bool& { return c.device.no_fuse; }},
      {"device",
       "recompute",
       "--recompute",
       "save memory by recomputing activations in the backward pass: those within blocks, or also the output "
       "of every second block; the results are the same",
       [](Config& c) -> Text& { return c.device.recompute; },
       {"none", "activations", "blocks"}},
      {"device", "input_copy", "--input-copy",
       "how batches are copied to the GPU; anything but auto keeps --decode auto on the CPU (auto: pinned)",
       [](Config& c) -> Text& { return c.device.input_copy; }, input_copies()},
  };
}

std::vector<Field> comm_fields() {
  return {
      {"comm",
       "grad_dtype",
       "--grad-dtype",
       "precision of gradients in all-reduce",
       [](Config& c) -> Text& { return c.comm.grad_dtype; },
       {"fp32", "fp16", "bf16"}},
      {"comm", "bucket_mb", "--bucket-mb", "size of all-reduce buckets in MiB",
       [](Config& c) -> double& { return c.comm.bucket_mb; }},
      {"comm", "sync_bn", "--sync-bn", "synchronise batch norm statistics across ranks",
       [](Config& c) -> bool& { return c.comm.sync_bn; }},
      {"comm", "when_alone", "--comm-when-alone",
       "all-reduce gradients with a single rank too, to measure what it costs",
       [](Config& c) -> bool& { return c.comm.when_alone; }},
      {"comm", "check_every", "--check-every",
       "steps between checks that all ranks hold the same weights (0: only at the start)",
       [](Config& c) -> Int& { return c.comm.check_every; }},
      {"comm", "timeout", "--comm-timeout", "seconds after which a rank that does not answer counts as lost",
       [](Config& c) -> double& { return c.comm.timeout; }},
      {"comm", "join_timeout", "--join-timeout", "seconds to wait for all ranks to join",
       [](Config& c) -> double& { return c.comm.join_timeout; }},
      taking("NAME", {"comm", "interface", "--comm-interface",
                      "network interface between ranks (default: the one that leads to rank 0)",
                      [](Config& c) -> Text& { return c.comm.interface; }}),
  };
}

std::vector<Field> run_fields() {
  return {
      taking("NAME",
             {"run", "name", "--name", "name of the run and its folder (default: from model, data and time)",
              [](Config& c) -> Text& { return c.run.name; }}),
      taking("DIR", {"run", "output_dir", "--output-dir,-o", "folder for run folders",
                     [](Config& c) -> Text& { return c.run.output_dir; }}),
      {"run", "seed", "--seed", "seed for initial weights, shuffling and augmentation",
       [](Config& c) -> Int& { return c.run.seed; }},
      taking("INTERVAL", {"run", "checkpoint_every", "--checkpoint-every",
                          "steps (500), epochs (1ep) or time (90s, 5m, 1h) between checkpoints, or off "
                          "(default: 10m; off for "
                          "synthetic data)",
                          [](Config& c) -> Text& { return c.run.checkpoint_every; }}),
      {"run", "keep", "--keep", "number of recent checkpoints to keep; the best one is always kept",
       [](Config& c) -> Int& { return c.run.keep; }},
      {"run", "eval_every", "--eval-every", "epochs between evaluations (0: only at the end)",
       [](Config& c) -> Int& { return c.run.eval_every; }},
      {"run", "patience", "--patience", "stop after this many epochs without a better evaluation (0: off)",
       [](Config& c) -> Int& { return c.run.patience; }},
      {"run", "target_accuracy", "--target-accuracy",
       "stop once top-1 reaches this value, such as 0.759 (0: off)",
       [](Config& c) -> double& { return c.run.target_accuracy; }},
      {"run", "log_every", "--log-every", "steps between progress lines",
       [](Config& c) -> Int& { return c.run.log_every; }},
      {"run", "quiet", "--quiet,-q", "print only the closing summary",
       [](Config& c) -> bool& { return c.run.quiet; }},
      {"run",
       "telemetry",
       "--telemetry",
       "record clocks, power, temperature and utilisation to profile/telemetry.csv at this interval (without "
       "a value: 50ms)",
       [](Config& c) -> Text& { return c.run.telemetry; },
       {},
       {},
       "50ms",
       "INTERVAL"},
      {"run", "histograms_every", "--histograms-every",
       "steps between TensorBoard histograms of weights and gradients (0: off)",
       [](Config& c) -> Int& { return c.run.histograms_every; }},
      {"run", "max_bad_steps", "--max-bad-steps",
       "stop after this many steps in a row with non-finite gradients",
       [](Config& c) -> Int& { return c.run.max_bad_steps; }},
      {"run", "eval_offset", "--eval-offset",
       "shift evaluations by this many epochs: 1 with --eval-every 4 evaluates after epochs 1, 5, 9, …",
       [](Config& c) -> Int& { return c.run.eval_offset; }},
      {"run",
       "mlperf_log",
       "--mlperf-log",
       "write an MLPerf log to this file (without a value: mlperf.log in the run folder)",
       [](Config& c) -> Text& { return c.run.mlperf_log; },
       {},
       {},
       "auto",
       "FILE"},
      taking("NAME",
             {"run", "mlperf_org", "--mlperf-org", "submitter's name in the MLPerf log (default: none)",
              [](Config& c) -> Text& { return c.run.mlperf_org; }}),
  };
}

// The order of the help and of configuration files: what is used most comes first.
std::vector<Field> make_fields() {
  std::vector<Field> all;
  for (auto part : {model_fields, data_fields, optimizer_fields, schedule_fields, augment_fields,
                    device_fields, run_fields, comm_fields}) {
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
