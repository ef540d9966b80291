#include "train/session.h"

#include <algorithm>
#include <exception>
#include <memory>

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include "base/atomic_file.h"
#include "base/build_info.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/signals.h"
#include "base/text.h"
#include "metrics/console.h"
#include "metrics/jsonl.h"
#include "metrics/tensorboard.h"
#include "train/config_file.h"
#include "train/observe.h"
#include "train/run_folder.h"
#include "train/setup.h"
#include "train/trainer.h"

namespace redline::train {
namespace {

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
      {"decoder", setup.decoder ? setup.decoder->description() : "cpu"},
      {"hostname", machine.hostname},
      {"os", machine.os},
      {"kernel", machine.kernel},
      {"cpu", machine.cpu},
      {"cpu_features", describe(machine.features)},
      {"cores", std::to_string(machine.cores_allowed)},
      {"memory", format_bytes(machine.memory_total)},
  };
}

metrics::RunInfo run_info(const Setup& setup, const Trainer& trainer, const data::BatchSource& train,
                          const data::BatchSource* val) {
  const Config& config = setup.config;
  metrics::RunInfo info;
  info.model = config.model.name;
  info.data = setup.data_text();
  info.device = setup.backend->description();
  info.dtype = graph::name_of(setup.dtype);
  info.optimizer = config.optimizer.name;
  info.classes = setup.classes;
  info.image_size = config.model.image_size;
  info.batch_size = config.optimizer.batch_size;
  info.accumulate = config.optimizer.accumulate;
  info.parameters = trainer.parameters();
  info.train_samples = train.samples();
  info.val_samples = val != nullptr ? val->samples() : 0;
  info.steps_per_epoch = trainer.steps_per_epoch();
  info.total_steps = trainer.total_steps();
  info.seed = static_cast<std::uint64_t>(config.run.seed);
  info.version = build_info().version;
  info.commit = build_info().commit;
  info.config = to_toml(config);
  info.hyperparameters = hyperparameters(config);
  return info;
}

// Keeps the last evaluations for the outcome.
class OutcomeSink final : public metrics::Sink {
 public:
  explicit OutcomeSink(Outcome& outcome) : outcome_(outcome) {}
  void evaluation(const metrics::Evaluation& evaluation) override {
    if (evaluation.weights != "model" && evaluation.top1 < outcome_.top1) return;
    outcome_.top1 = evaluation.top1;
    outcome_.top5 = evaluation.top5;
    outcome_.evaluated = true;
  }

 private:
  Outcome& outcome_;
};

const char* signal_name(int signal) { return signal == SIGINT ? "SIGINT" : "SIGTERM"; }

// The end is told even when the run failed; a second failure on the way must not hide the first.
void tell_failure(metrics::Recorder& recorder, const Trainer& trainer, const char* what) {
  try {
    recorder.end(trainer.summary("failed", what));
  } catch (const std::exception& second) {
    spdlog::warn("{}", second.what());
  }
}

}  // namespace

Outcome run_training(const Config& config, const std::vector<std::string>& arguments,
                     const Console& console) {
  StopSignals signals;
  const Setup setup = prepare(config);
  const auto train = train_batches(setup);
  const auto val = val_batches(setup);
  Outcome outcome;
  metrics::Recorder recorder;
  Trainer trainer(setup.config, setup.plans, *setup.backend, *train, val.get(), recorder);

  const std::string started = utc_timestamp();
  const std::string name = config.run.name.empty()
                               ? default_run_name(config.model.name, setup.config.data.path, started)
                               : config.run.name;
  RunFolder folder(config.run.output_dir, name, !config.run.name.empty());
  write_file_atomically(folder.path() / "config.toml",
                        to_toml(setup.config, facts_of(setup, arguments, folder.name(), started)));
  recorder.add(std::make_unique<metrics::JsonlSink>(folder.path() / "metrics.jsonl"));
  recorder.add(std::make_unique<metrics::TensorBoardSink>(folder.path()));
  recorder.add(std::make_unique<metrics::ConsoleSink>(metrics::ConsoleOptions{
      console.out, console.live, config.run.quiet, static_cast<int>(config.run.log_every)}));
  recorder.add(std::make_unique<OutcomeSink>(outcome));

  metrics::RunInfo info = run_info(setup, trainer, *train, val.get());
  info.name = folder.name();
  info.folder = folder.path().string();
  info.started = started;
  recorder.begin(info);
  folder.keep();
  outcome.folder = info.folder;
  try {
    const bool finished = trainer.run(signals.flag());
    outcome.signal = finished ? 0 : signals.signal();
    recorder.end(finished ? trainer.summary("finished", "")
                          : trainer.summary("interrupted", signal_name(outcome.signal)));
  } catch (const std::exception& failure) {
    tell_failure(recorder, trainer, failure.what());
    throw;
  }
  return outcome;
}

}  // namespace redline::train
