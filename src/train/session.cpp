#include "train/session.h"

#include <algorithm>
#include <csignal>
#include <exception>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>

#include <fmt/ranges.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/quantity.h"
#include "base/signals.h"
#include "metrics/console.h"
#include "metrics/jsonl.h"
#include "metrics/tensorboard.h"
#include "profile/telemetry.h"
#include "train/checkpointer.h"
#include "train/config_file.h"
#include "train/data_agreement.h"
#include "train/interval.h"
#include "train/join.h"
#include "train/mlperf.h"
#include "train/observe.h"
#include "train/profiling.h"
#include "train/resume.h"
#include "train/run_end.h"
#include "train/run_folder.h"
#include "train/run_info.h"
#include "train/setup.h"
#include "train/trained_model.h"
#include "train/trainer.h"
#include "weights/class_names.h"

namespace redline::train {
namespace fs = std::filesystem;
namespace {

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

// Comes last, so that the other sinks have written their ends.
class EndedSink final : public metrics::Sink {
 public:
  EndedSink(std::function<void(const std::string&, bool)> ended, std::string folder)
      : ended_(std::move(ended)), folder_(std::move(folder)) {}
  void end(const metrics::End& end) override { ended_(folder_, end.reason == "interrupted"); }

 private:
  std::function<void(const std::string&, bool)> ended_;
  std::string folder_;
};

Subject subject_of(const Setup& setup, const data::BatchSource& train) {
  const Config& config = setup.config;
  return {config.model.name,
          setup.classes,
          config.model.image_size,
          images_per_step(config),
          steps_per_epoch(config, train.batches_per_epoch()),
          train.samples(),
          to_toml(config),
          setup.class_names};
}

// The folder of the run to resume; empty when a new one begins.
fs::path folder_to_resume(const Config& config, const Resume& resume) {
  if (!resume.wanted || !resume.run.empty()) return resume.run;
  const fs::path folder = config.run.name.empty() ? newest_run(config.run.output_dir, config.model.name,
                                                               fs::absolute(config.data.path).string())
                                                  : fs::path(config.run.output_dir) / config.run.name;
  if (fs::is_directory(folder)) return folder;
  log_info("there is nothing to resume in {}: starting a new run", config.run.output_dir);
  return {};
}

std::unique_ptr<RunFolder> open_folder(const Config& config, const fs::path& existing,
                                       const std::string& started) {
  if (!existing.empty()) return std::make_unique<RunFolder>(existing);
  const bool chosen = !config.run.name.empty();
  const std::string name =
      chosen ? config.run.name : default_run_name(config.model.name, config.data.path, started);
  return std::make_unique<RunFolder>(config.run.output_dir, name, chosen);
}

// Restores the newest complete checkpoint and returns its progress; none without one.
std::optional<Progress> go_on(Trainer& trainer, const RunFolder& folder, const Setup& setup,
                              const Subject& subject) {
  const auto checkpoint = newest_checkpoint(folder.checkpoints());
  if (!checkpoint) {
    log_info("{} has no checkpoint: starting over", folder.path().string());
    folder.remove_records();
    return {};
  }
  for (const std::string& line : differences(checkpoint->state.subject, subject, setup.config))
    log_warning("resuming {}: {}", folder.name(), line);
  for (const std::string& note : restore(*checkpoint, trainer.state()))
    log_warning("resuming {}: {}", checkpoint->path.string(), note);
  trainer.go_on(position(checkpoint->state, subject, setup.config));
  log_info("resuming {} after step {}", folder.path().string(), trainer.progress().step);
  return checkpoint->state.progress;
}

profile::TelemetryOptions telemetry_options(const Setup& setup, int rank) {
  profile::TelemetryOptions options;
  options.pci_address = setup.backend->pci_address();
  options.interval = profile::parse_sampling(setup.config.run.telemetry, "--telemetry");
  options.source = {rank, setup.machine.hostname, options.pci_address.empty() ? "cpu" : options.pci_address};
  return options;
}

// Samples the devices during a run: for its live line and its end, and to a file with --telemetry.
std::unique_ptr<profile::Telemetry> start_telemetry(const Setup& setup, const RunFolder& folder) {
  constexpr std::chrono::milliseconds kSeldom{1000};
  profile::TelemetryOptions options = telemetry_options(setup, 0);
  options.keep = 10'000;  // for the tables of a profile
  if (options.interval.count() > 0) {
    fs::create_directories(folder.profile());
    options.file = folder.profile() / "telemetry.csv";
  } else {
    options.interval = kSeldom;
  }
  return std::make_unique<profile::Telemetry>(std::move(options));
}

// Ranks other than 0 write their own file in rank 0's folder, if this machine can access it.
std::unique_ptr<profile::Telemetry> start_telemetry(const Setup& setup, int rank, const fs::path& folder) {
  profile::TelemetryOptions options = telemetry_options(setup, rank);
  if (options.interval.count() == 0) return nullptr;
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    log_warning("rank {} on {} records no telemetry: {} does not exist there", rank, setup.machine.hostname,
                folder.string());
    return nullptr;
  }
  fs::create_directories(folder / "profile");
  options.file = folder / "profile" / fmt::format("telemetry-rank{}.csv", rank);
  return std::make_unique<profile::Telemetry>(std::move(options));
}

// The signal that ended a run, on whichever rank it came; 0 for one that finished.
int signal_of(Ranks& ranks, const StopSignals& signals, bool finished) {
  return static_cast<int>(ranks.most(finished ? 0 : signals.signal()));
}

// Everything a rank trains with.
struct Job {
  const Setup& setup;
  const data::BatchSource& train;
  const data::BatchSource* val;  // null: nothing is evaluated
  Trainer& trainer;
  Ranks& ranks;
  metrics::Recorder& recorder;
  std::optional<Profiling>& profiled;
  StopSignals& signals;
  std::chrono::system_clock::time_point began;  // when the program did
};

// A rank other than 0: it trains, and leaves the console and most files to rank 0.
Outcome follow(Job& job) {
  Outcome outcome;
  job.trainer.follow_rank_0();
  if (job.trainer.finished()) return outcome;
  const fs::path folder = job.ranks.broadcast(std::string());
  job.ranks.keep_positions_in(folder);
  const auto telemetry = start_telemetry(job.setup, job.ranks.rank(), folder);
  if (!telemetry) job.profiled.reset();  // there is nowhere to write to
  if (job.profiled) job.profiled->attach(job.trainer, *telemetry);
  job.recorder.add(std::make_unique<OutcomeSink>(outcome));
  job.signals.end_at_once(false);
  const bool finished = job.trainer.run(job.signals.flag());
  outcome.signal = signal_of(job.ranks, job.signals, finished);
  if (outcome.signal != 0) outcome.checkpointed = job.ranks.broadcast(false);
  if (job.profiled) job.profiled->finish(job.setup, job.train, folder / "profile", *telemetry, nullptr);
  return outcome;
}

// Opens the files and the console that record a run, and writes its facts to them.
void begin_records(Job& job, const RunFolder& folder, const std::string& started, bool resumed,
                   const profile::Telemetry& telemetry, const Console& console, Outcome& outcome) {
  const RunConfig& run = job.setup.config.run;
  metrics::RunInfo info = run_info(job.setup, job.trainer, job.train, job.val);
  info.name = folder.name();
  info.folder = outcome.folder;
  info.started = started;
  const Progress progress = job.trainer.progress();
  if (resumed) info.resumed = metrics::Resumed{progress.step, progress.evaluated};
  metrics::ConsoleOptions shown{console.out, console.live, run.quiet, static_cast<int>(run.log_every)};
  shown.device = [&telemetry] { return profile::live_text(telemetry.latest()); };
  job.recorder.add(std::make_unique<metrics::JsonlSink>(folder.path() / "metrics.jsonl", info.resumed));
  job.recorder.add(std::make_unique<metrics::TensorBoardSink>(folder.path()));
  if (!run.mlperf_log.empty() && !job.profiled)
    job.recorder.add(mlperf_sink(job.setup.config, info, folder.path(), job.began));
  job.recorder.add(std::make_unique<metrics::ConsoleSink>(shown));
  job.recorder.add(std::make_unique<OutcomeSink>(outcome));
  if (console.ended && !job.profiled)
    job.recorder.add(std::make_unique<EndedSink>(console.ended, outcome.folder));
  job.recorder.begin(info);
}

// Trains, and completes the records and checkpoints whatever happens.
void train_recorded(Job& job, const RunFolder& folder, Checkpointer* checkpointer,
                    profile::Telemetry& telemetry, const Console& console, Outcome& outcome) {
  Trainer& trainer = job.trainer;
  const Sampled sampled{&telemetry, !job.setup.backend->device_memory(), job.ranks.size(),
                        trainer.progress().step, trainer.progress().samples};
  bool saved = true;
  try {
    const bool finished = trainer.run(job.signals.flag());
    saved = finish(job.recorder, trainer, checkpointer, job.signals,
                   signal_of(job.ranks, job.signals, finished), sampled, outcome);
    if (outcome.signal != 0) job.ranks.broadcast(outcome.checkpointed);
    if (job.profiled) {
      job.profiled->finish(job.setup, job.train, folder.profile(), telemetry, console.out);
      if (console.ended) console.ended(outcome.folder, outcome.signal != 0);
    }
  } catch (const std::exception& failure) {
    leave_after_failure(job.recorder, trainer, checkpointer, job.signals, sampled, failure.what());
    throw;
  }
  // If there is an earlier checkpoint, a signal loses steps, not the run.
  if (!saved && !(outcome.signal != 0 && outcome.checkpointed)) {
    const std::int64_t failed = trainer.failed_checkpoints();
    throw IoError("the checkpoint of step {}{} could not be written to {}", trainer.progress().step,
                  failed > 1 ? fmt::format(", and {} before it,", failed - 1) : "",
                  checkpointer->folder().string());
  }
}

// Rank 0, or a single process: trains in a run folder, a new one or the `existing` one.
Outcome lead(Job& job, const std::vector<std::string>& arguments, const Console& console,
             const fs::path& existing) {
  const Setup& setup = job.setup;
  const Config& config = setup.config;
  Trainer& trainer = job.trainer;
  const std::string started = utc_timestamp();
  const bool resuming = !existing.empty();
  job.signals.end_at_once(false);  // from here on there is a folder to be left in order
  const auto folder = open_folder(config, existing, started);
  Outcome outcome;
  outcome.folder = folder->path().string();
  const Subject subject = subject_of(setup, job.train);
  CheckpointerOptions checkpoints{folder->checkpoints(),
                                  parse_interval(config.run.checkpoint_every, "--checkpoint-every"),
                                  config.run.keep,
                                  subject,
                                  {}};
  if (resuming) {
    checkpoints.resumed = go_on(trainer, *folder, setup, subject);
  } else if (!config.model.init.empty()) {
    log_info("{}", initialise_from(config.model.init, config.model.name, setup.class_names, trainer.state()));
  }
  trainer.follow_rank_0();
  if (trainer.finished()) {
    const char* raise = trainer.target_reached()    ? "--target-accuracy or leave it out"
                        : trainer.out_of_patience() ? "--patience or leave it out"
                                                    : "--epochs or --steps";
    fmt::print(console.out, "{} {} after {}: nothing is left to do; raise {} to continue\n", outcome.folder,
               trainer.target_reached() ? "reached its target" : "finished",
               counted(trainer.progress().step, "step"), raise);
    return outcome;
  }
  save_config(setup, *folder, arguments, started, resuming);
  job.ranks.broadcast(fs::absolute(folder->path()).string());
  job.ranks.keep_positions_in(folder->path());
  const auto telemetry = start_telemetry(setup, *folder);
  if (job.profiled) job.profiled->attach(trainer, *telemetry);
  begin_records(job, *folder, started, checkpoints.resumed.has_value(), *telemetry, console, outcome);
  folder->keep();
  std::unique_ptr<Checkpointer> checkpointer;
  if (checkpoints.every.unit != Interval::Unit::never) {
    checkpointer = std::make_unique<Checkpointer>(std::move(checkpoints), trainer.state());
    trainer.keep_checkpoints(*checkpointer);
  }
  train_recorded(job, *folder, checkpointer.get(), *telemetry, console, outcome);
  if (outcome.signal != 0 && outcome.checkpointed)
    fmt::print(console.out, "  continue  {}redline train --resume {}\n", ranks_of(job.ranks.size()),
               outcome.folder);
  return outcome;
}

// For a run that evaluates nothing: throws UsageError if an option needs evaluations, and warns if the data
// could have had some.
void do_without_evaluation(const Config& config, const Setup& setup) {
  const RunConfig& run = config.run;
  if (run.target_accuracy > 0 || run.patience > 0)
    throw UsageError("{} needs held-out images, and {} has none",
                     run.patience > 0 ? "--patience" : "--target-accuracy", setup.data_text());
  if (const std::string& path = config.data.path; !setup.synthetic())  // as it was typed
    log_warning("{} has no val split: nothing is evaluated ({})", path, remedy_without_val(path));
}

// Trains as one rank of a job, or alone.
Outcome train(Config config, const std::vector<std::string>& arguments, const Console& console,
              const Resume& resume, const std::optional<profile::SessionOptions>& profiling,
              StopSignals& signals, const std::shared_ptr<comm::Communicator>& communicator) {
  const auto began = std::chrono::system_clock::now();
  validate(config);
  Ranks ranks(communicator);
  if (profiling && profiling->counters && !ranks.alone())
    throw UsageError(
        "--counters repeats every kernel, but an exchange between ranks cannot be repeated: leave it out");
  const fs::path existing = ranks.rank() == 0 ? folder_to_resume(config, resume) : fs::path();
  config = keep_dtype(std::move(config), existing);
  config.device.dtype = ranks.broadcast(config.device.dtype);
  const std::string names = ranks.broadcast(
      weights::class_names_text(existing.empty() ? std::vector<std::string>{} : saved_class_names(existing)));
  const Setup setup = prepare(config, communicator, &signals.flag(),
                              weights::parse_class_names(names, std::numeric_limits<std::int64_t>::max()));
  const auto train = train_batches(setup);
  const auto val = profiling ? nullptr : val_batches(setup);
  if (!val && !profiling) do_without_evaluation(config, setup);
  std::optional<Profiling> profiled;
  if (profiling) profiled.emplace(*profiling, setup, ranks.rank(), ranks.size());
  // A GPU's kernels are timed next, which reacts to signals and keeps its measurements.
  if (setup.backend->runs_ahead()) signals.end_at_once(false);
  metrics::Recorder recorder;
  const std::unique_ptr<Trainer> trainer = [&] {
    try {
      return std::make_unique<Trainer>(setup.config, setup.plans, *setup.backend, *train, val.get(), recorder,
                                       communicator);
    } catch (const OutOfMemoryError& error) {
      refuse_batch(setup, error.what());
    }
  }();
  ranks.must_agree(static_cast<double>(train->samples()), "the number of training images");
  ranks.must_agree(val ? static_cast<double>(val->samples()) : 0, "the number of held-out images");
  agree_on_data(ranks, setup);
  Job job{setup, *train, val.get(), *trainer, ranks, recorder, profiled, signals, began};
  return ranks.rank() == 0 ? lead(job, arguments, console, existing) : follow(job);
}

}  // namespace

int exit_code(const Outcome& outcome) {
  if (outcome.signal == 0) return static_cast<int>(ExitCode::ok);
  if (outcome.checkpointed && outcome.signal != SIGINT) return static_cast<int>(ExitCode::try_again);
  return 128 + outcome.signal;
}

Outcome run_training(const Config& config, const std::vector<std::string>& arguments, const Console& console,
                     const Resume& resume, const std::optional<profile::SessionOptions>& profiling,
                     const comm::World& world) {
  StopSignals signals;
  outlive_readers();  // losing the console does not stop a run
  const bool keeps =
      parse_interval(checkpoint_interval(config), "--checkpoint-every").unit != Interval::Unit::never;
  signals.end_at_once(true, keeps);
  Config shared = config;
  std::shared_ptr<comm::Communicator> communicator;
  try {
    communicator = join_ranks(shared, world, signals.flag());
    return train(shared, arguments, console, resume, profiling, signals, communicator);
  } catch (const comm::PeerError& failure) {
    // Ranks that are stopped leave each other in no order.
    const bool joined = communicator != nullptr;
    if (!(joined ? signals.signal() == SIGINT : signals.requested())) {
      if (joined) communicator->leave(failure.what());
      throw;
    }
    Outcome outcome;
    outcome.signal = signals.signal();
    return outcome;
  } catch (const std::exception& failure) {
    const auto* known = dynamic_cast<const Error*>(&failure);
    if (communicator != nullptr)  // the others then name it
      communicator->leave(failure.what(), known != nullptr ? known->code() : ExitCode::internal);
    throw;
  }
}

}  // namespace redline::train
