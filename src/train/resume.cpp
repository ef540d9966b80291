#include "train/resume.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/log.h"
#include "train/checkpointer.h"
#include "train/config_file.h"

namespace redline::train {
namespace fs = std::filesystem;
namespace {

// Options about output and display, or with their own message.
constexpr std::array<std::string_view, 13> kIrrelevant = {
    "run.output_dir", "run.name",          "run.log_every",   "run.quiet", "run.checkpoint_every",
    "run.keep",       "run.mlperf_log",    "run.mlperf_org",  "data.path", "data.workers",
    "model.classes",  "device.input_copy", "device.recompute"};

void set_aside(const fs::path& path) {
  const fs::path aside = path.string() + ".damaged";
  std::error_code error;
  fs::remove_all(aside, error);
  fs::rename(path, aside, error);
  if (error) throw IoError("cannot rename {} to {}: {}", path.string(), aside.string(), error.message());
}

std::string shown(const std::string& value) { return value.empty() ? "unset" : value; }

}  // namespace

void check_same_init(const Config& config, const Config& before) {
  if (config.model.init.empty() || config.model.init == before.model.init) return;
  if (std::filesystem::absolute(config.model.init).lexically_normal() == before.model.init) return;
  throw UsageError(
      "--init {} and --resume contradict each other: the run continues with its own weights; to start from "
      "--init, use a new --name",
      config.model.init);
}

std::optional<Checkpoint> newest_checkpoint(const fs::path& folder) {
  const std::vector<std::int64_t> steps = list_checkpoints(folder);
  std::vector<fs::path> damaged;
  std::optional<Checkpoint> found;
  for (std::size_t i = 0; i < steps.size() && !found; ++i) {
    const fs::path path = folder / checkpoint_name(steps[i]);
    try {
      found = open_checkpoint(path);
    } catch (const Error& reason) {
      if (reason.code() != ExitCode::bad_data && reason.code() != ExitCode::io) throw;
      log_warning("{}", reason.what());
      damaged.push_back(path);
    }
  }
  if (!found && !damaged.empty()) {
    throw DataError("every checkpoint in {} is damaged: remove the folder to start over", folder.string());
  }
  // Only now: nothing is changed until a complete checkpoint is found.
  for (const fs::path& path : damaged) set_aside(path);
  std::error_code ignored;
  if (found && fs::read_symlink(folder / "latest", ignored) != found->path.filename())
    point(folder / "latest", found->path.filename().string());
  return found;
}

std::vector<std::string> saved_class_names(const fs::path& folder) {
  for (const std::int64_t step : list_checkpoints(folder / "checkpoints")) {
    try {
      return read_state(folder / "checkpoints" / checkpoint_name(step)).subject.class_names;
    } catch (const Error& reason) {  // newest_checkpoint() tells
      log_debug("{}", reason.what());
    }
  }
  return {};
}

Config keep_dtype(Config config, const fs::path& folder) {
  if (folder.empty() || config.device.amp || !config.device.dtype.empty()) return config;
  const fs::path file = folder / "config.toml";
  try {
    for (const auto& [key, value] : list_values(read_file(file), file.string()))
      if (key == "device.dtype") config.device.dtype = value;
  } catch (const Error& reason) {
    log_debug("{}", reason.what());
  }
  if (!config.device.dtype.empty())
    log_info("resuming {} in {}, as it was started", folder.string(), config.device.dtype);
  return config;
}

std::vector<std::string> differences(const Subject& saved, const Subject& now, const Config& config) {
  if (saved.model != now.model || saved.classes != now.classes) {
    throw UsageError(
        "the checkpoint is of {} with {} classes and this run is of {} with {}: give the same --model and "
        "--classes, or another --name",
        saved.model, saved.classes, now.model, now.classes);
  }
  if (!saved.class_names.empty() && saved.class_names != now.class_names)
    throw UsageError("the classes of the checkpoint differ from those of the data, or are in another order");
  std::vector<std::string> lines;
  if (saved.train_samples != now.train_samples) {
    lines.push_back(fmt::format("the data has {} images instead of {}: their order differs",
                                now.train_samples, saved.train_samples));
  }
  if (saved.images_per_step != now.images_per_step) {
    lines.push_back(
        fmt::format("{} images per step instead of {}: the epoch continues at its next whole step, so its "
                    "batches differ from before; --lr stays the same (--lr-scale-batch scales it)",
                    now.images_per_step, saved.images_per_step));
  }
  Config before;
  try {
    before = parse_config(saved.config, "the checkpoint's configuration");
  } catch (const Error& reason) {  // of another version: what counts was compared above
    lines.push_back(fmt::format("options cannot be compared: {}", reason.what()));
    return lines;
  }
  check_same_init(config, before);
  before.ranks = 1;
  if (const std::int64_t ranks = saved.images_per_step / images_per_step(before); ranks != config.ranks) {
    lines.push_back(fmt::format(
        "{} instead of {}", config.ranks == 1 ? "one rank" : fmt::format("{} ranks", config.ranks), ranks));
  }
  for (const Field& field : fields()) {
    if (std::ranges::find(kIrrelevant, field.path()) != kIrrelevant.end()) continue;
    const std::string old_value = value_text(field, before), new_value = value_text(field, config);
    if (old_value != new_value)
      lines.push_back(
          fmt::format("{} is {} instead of {}", field.flag(), shown(new_value), shown(old_value)));
  }
  return lines;
}

Progress position(const CheckpointState& saved, const Subject& now, const Config& config) {
  const Subject& before = saved.subject;
  Progress progress = saved.progress;
  if (before.images_per_step == now.images_per_step && before.steps_per_epoch == now.steps_per_epoch)
    return progress;
  const std::int64_t seen = progress.step_in_epoch * before.images_per_step;
  progress.step_in_epoch =
      progress.step_in_epoch >= before.steps_per_epoch
          ? now.steps_per_epoch
          : std::min((seen + now.images_per_step - 1) / now.images_per_step, now.steps_per_epoch);
  if (config.schedule.epochs)
    progress.schedule_step = progress.epoch * now.steps_per_epoch + progress.step_in_epoch;
  return progress;
}

}  // namespace redline::train
