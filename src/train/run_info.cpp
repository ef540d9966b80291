#include "train/run_info.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "base/atomic_file.h"
#include "base/build_info.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "data/sources/class_list.h"
#include "data/sources/class_words.h"
#include "train/config_file.h"
#include "train/observe.h"

namespace redline::train {
namespace {

// "daisy, rose, tulip": enough of them to know the data by.
std::string some_names(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 20;
  const std::size_t shown = std::min(kShown, names.size());
  const std::string text =
      fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  return names.size() > shown ? fmt::format("{} and {} more", text, names.size() - shown) : text;
}

Facts facts_of(const Setup& setup, const std::vector<std::string>& arguments, const std::string& name,
               const std::string& started) {
  const BuildInfo build = build_info();
  const Machine& machine = setup.machine;
  return {
      {"name", name},
      {"started", started},
      {"command", fmt::format("{}", fmt::join(arguments, " "))},
      {"version", build.version},
      {"commit", build.commit},
      {"build", build.build_type},
      {"compiler", build.compiler},
      {"device", setup.backend->description()},
      {"device_address", setup.backend->pci_address()},
      {"decoder", setup.decoding.decoder ? setup.decoding.decoder->description() : "cpu"},
      {"hostname", machine.hostname},
      {"os", machine.os},
      {"kernel", machine.kernel},
      {"cpu", machine.cpu},
      {"cpu_features", describe(machine.features)},
      {"cores", std::to_string(machine.cores_allowed)},
      {"memory", format_bytes(machine.memory_total)},
      {"ranks", std::to_string(setup.config.ranks)},
      {"class_names", some_names(setup.class_names)},
  };
}

}  // namespace

metrics::RunInfo run_info(const Setup& setup, const Trainer& trainer, const data::BatchSource& train,
                          const data::BatchSource* val) {
  const Config& config = setup.config;
  metrics::RunInfo info;
  info.model = config.model.name;
  info.data = setup.data_text();
  info.device = setup.backend->description();
  info.dtype = config.device.dtype;
  info.why_dtype = setup.why_dtype;
  info.optimizer = config.optimizer.name;
  info.classes = setup.classes;
  info.class_names = setup.class_names;
  info.image_size = config.model.image_size;
  info.batch_size = config.optimizer.batch_size;
  info.accumulate = config.optimizer.accumulate;
  info.ranks = config.ranks;
  info.parameters = trainer.parameters();
  info.train_samples = train.samples();
  info.val_samples = val != nullptr ? val->samples() : 0;
  info.steps_per_epoch = trainer.steps_per_epoch();
  info.total_steps = trainer.total_steps();
  info.seed = static_cast<std::uint64_t>(config.run.seed);
  info.label_smoothing = config.optimizer.label_smoothing;
  info.version = build_info().version;
  info.commit = build_info().commit;
  info.config = to_toml(config);
  info.hyperparameters = hyperparameters(config);
  return info;
}

void save_config(const Setup& setup, const RunFolder& folder, const std::vector<std::string>& arguments,
                 const std::string& started, bool resuming) {
  try {
    write_file_atomically(
        folder.path() / "config.toml",
        to_toml(before_sharing(setup.config), facts_of(setup, arguments, folder.name(), started)));
    if (std::ranges::all_of(setup.class_names, data::is_plain_name) && !setup.class_names.empty())
      write_file_atomically(folder.path() / data::kClassesFile, data::class_list_text(setup.class_names));
    const std::string words =
        data::words_text(setup.class_names, data::read_words(setup.config.data.path, setup.class_names));
    if (!words.empty()) write_file_atomically(folder.path() / data::kWordsFile, words);
  } catch (const IoError& reason) {
    if (!resuming) throw;
    log_warning("{}; it stays as it was", reason.what());
  }
}

}  // namespace redline::train
