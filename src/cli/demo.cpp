// redline demo: from nothing to a trained ResNet in one command.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "base/error.h"
#include "base/machine.h"
#include "base/signals.h"
#include "cli/command.h"
#include "cli/progress_line.h"
#include "cli/train_options.h"
#include "data/prepare/synth.h"
#include "train/config.h"
#include "train/session.h"

namespace redline::cli {
namespace {

namespace fs = std::filesystem;

// Three epochs are enough to recognise more than nine in ten images; if bf16 makes epochs cheap, do a fourth.
std::int64_t default_epochs(const CpuFeatures& features) {
  return features.avx512_bf16 || features.amx_bf16 ? 4 : 3;
}

struct DemoOptions {
  std::string model = "resnet50", device = "auto", data_dir = "data", output_dir = "runs", name;
  std::optional<std::int64_t> epochs;
  std::int64_t images = 5000, held_out = 1000, batch = 32, threads = 0, seed = 0;
};

// The images of a demo, drawn once for each choice of sizes; the folder is complete if it exists.
fs::path picture_folder(const DemoOptions& options) {
  return fs::path(options.data_dir) /
         fmt::format("demo-pictures-{}-{}-{}", options.images, options.held_out, options.seed);
}

// Returns the signal that stopped the drawing, or 0.
int draw_pictures(const DemoOptions& options, const fs::path& folder) {
  data::SynthOptions synth;
  synth.path = folder;
  synth.train = options.images;
  synth.val = options.held_out;
  synth.seed = static_cast<std::uint64_t>(options.seed);
  synth.threads = inspect_machine().cores_allowed;
  std::error_code error;
  fs::create_directories(options.data_dir, error);
  if (error)
    throw IoError("cannot create {}: {}; choose another --data-dir", options.data_dir, error.message());
  const StopSignals signals;
  ProgressLine line("drawing", "images");
  try {
    data::write_synth(synth, [&](std::int64_t done, std::int64_t total) {
      line.update(done, total);
      return !signals.requested();
    });
  } catch (const data::Stopped&) {
    return signals.signal();
  }
  return 0;
}

// What makes a ResNet-50 learn these images in few epochs: small batches at a high learning rate, which rises
// over the first fifth and then decays to zero; residual branches that start as identities; and whole images,
// since with so few of them random crops cost more than they teach.
train::Config demo_config(const DemoOptions& options, const fs::path& pictures) {
  train::Config config;
  config.model.name = options.model;
  config.model.image_size = 64;
  config.model.zero_init_last = true;
  config.data.path = pictures.string();
  config.augment.scale = {1.0, 1.0};
  config.augment.ratio = {1.0, 1.0};
  config.data.crop_pct = 1.0;
  config.optimizer.batch_size = options.batch;
  config.optimizer.lr = 0.05;
  config.optimizer.nesterov = true;
  config.optimizer.weight_decay = 5e-4;
  config.optimizer.label_smoothing = 0.1;
  const std::int64_t epochs = options.epochs.value_or(default_epochs(inspect_machine().features));
  config.schedule.epochs = epochs;
  config.schedule.name = "cosine";
  config.schedule.warmup_steps = epochs * (options.images / std::max<std::int64_t>(1, options.batch)) / 5;
  config.device.name = options.device;
  config.device.amp = true;
  config.device.threads = options.threads;
  config.run.output_dir = options.output_dir;
  config.run.name = options.name;
  config.run.seed = options.seed;
  return config;
}

int run_demo(const DemoOptions& options, const Context& context) {
  if (options.images < 1) throw UsageError("--images {} must be at least 1", options.images);
  if (options.held_out < 1) throw UsageError("--held-out {} must be at least 1", options.held_out);
  if (options.seed < 0) throw UsageError("--seed {} must be at least 0", options.seed);
  const fs::path pictures = picture_folder(options);
  train::Config config = demo_config(options, pictures);
  train::validate(config);
  if (fs::exists(pictures)) {
    fmt::print("1. The pictures exist already: {}\n", pictures.string());
  } else {
    fmt::print("1. Drawing {} pictures of 10 classes to train on, and {} others to check with\n",
               options.images, options.held_out);
    std::fflush(stdout);
    if (const int signal = draw_pictures(options, pictures); signal != 0) return kSignalExit + signal;
  }
  fmt::print("2. Training {} on them\n", options.model);
  std::fflush(stdout);
  const train::Outcome outcome = train::run_training(config, context.arguments, console());
  if (outcome.signal != 0) return exit_code(outcome);
  fmt::print("\n3. Done: it recognises {:.1f}% of {} pictures that it has never seen.\n\n",
             100 * outcome.top1, options.held_out);
  fmt::print(
      "Look at {0}/report.html in a browser. Every number is in {0}/metrics.jsonl, every option in "
      "{0}/config.toml. Next:\n",
      outcome.folder);
  const char* called = std::getenv("REDLINE_COMMAND");  // set by the bootstrap script
  const std::string redline = called != nullptr ? called : "redline";
  fmt::print("  {} train -c {}/config.toml --name again --epochs 10\n", redline, outcome.folder);
  fmt::print("  {} train {} --image-size 64 --model resnet18 --epochs 10\n", redline, pictures.string());
  fmt::print("  {} train --help\n", redline);
  return 0;
}

}  // namespace

void add_demo(CLI::App& app, Context& context) {
  CLI::App& command =
      add_command(app, "demo", "Draw a small image set and train a ResNet-50 on it, in a few minutes",
                  {"redline demo", "redline demo --model resnet18 --images 1600 --epochs 3"});
  const auto options = std::make_shared<DemoOptions>();
  command.add_option("--model", options->model, "Model to train")->type_name("NAME")->capture_default_str();
  command.add_option("--epochs,-e", options->epochs, "Epochs (default: 4 if the CPU has bf16, else 3)")
      ->type_name("N");
  command.add_option("--images", options->images, "Training images")->type_name("N")->capture_default_str();
  command.add_option("--held-out", options->held_out, "Validation images")
      ->type_name("N")
      ->capture_default_str();
  command.add_option("--batch-size,-b", options->batch, "Batch size")->type_name("N")->capture_default_str();
  command.add_option("--device", options->device, "cuda, cuda:N, cpu or auto")
      ->type_name("NAME")
      ->capture_default_str();
  command.add_option("--threads", options->threads, "Compute threads on a CPU (0: all cores)")
      ->type_name("N")
      ->capture_default_str();
  command.add_option("--seed", options->seed, "Seed for images, initial weights and shuffling")
      ->type_name("N")
      ->capture_default_str();
  command.add_option("--data-dir", options->data_dir, "Folder for the images")
      ->type_name("DIR")
      ->capture_default_str();
  command.add_option("--output-dir,-o", options->output_dir, "Folder for run folders")
      ->type_name("DIR")
      ->capture_default_str();
  command.add_option("--name", options->name, "Name of the run (default: from model, data and time)")
      ->type_name("NAME");
  on_run(command, context, [options, &context] { return run_demo(*options, context); });
}

}  // namespace redline::cli
