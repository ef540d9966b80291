#include "profile/session.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace redline::profile {
namespace {

// The first steps compile, capture and fill caches, so their times do not count.
constexpr std::int64_t kUnsettled = 3;
// From this many events on, writing the files takes a while.
constexpr std::size_t kMany = 200'000;

}  // namespace

Session::Session(const SessionOptions& options, backend::Backend& backend)
    : options_(options), host_computes_(!backend.device_memory()), windows_(kUnsettled + 1, options.start) {
  if (options.start < 1) throw UsageError("--start {} must be at least 1", options.start);
  if (options.steps < 1) throw UsageError("--steps {} must be at least 1", options.steps);
  try {
    tracer_ = backend.make_tracer();
  } catch (const UnavailableError& reason) {
    if (!host_computes_)
      log_warning("{}; timing ops one by one instead, which does not show what overlaps", reason.what());
  }
}

Session::~Session() = default;

bool Session::sees_kernels() const { return tracer_ && tracer_->sees_kernels(); }

void Session::open() {
  recording_ = true;
  if (tracer_) dropped_before_ = tracer_->dropped();
  if (on_open_) on_open_();
  if (tracer_) tracer_->start();
}

void Session::close() {
  if (!recording_) return;
  recording_ = false;
  if (tracer_) tracer_->stop();
  if (on_close_) on_close_();
}

void Session::turn(std::int64_t number) {
  using Kind = TracingWindows::Kind;
  if (!host_computes_ && !sees_kernels()) return;  // there is no way to wait for the end of a window
  // A window begins and ends with an idle device; stop() waits for that.
  if (tracer_ && trial_ != Kind::traced) tracer_->start();
  if (tracer_) {
    tracer_->stop();
    tracer_->take();
  }
  windows_.add(trial_, 1e-9 * static_cast<double>(steady_nanoseconds() - trial_begin_));
  trial_ = windows_.at(number);
  if (tracer_ && trial_ == Kind::traced) tracer_->start();
  trial_begin_ = steady_nanoseconds();
}

void Session::begin_step(std::int64_t number) {
  if (recording_ && !steps_.empty()) steps_.back().end = steady_nanoseconds();
  if (windows_.turns(number)) turn(number);
  const bool wanted = number >= options_.start && number < options_.start + options_.steps;
  const std::size_t records = records_.size() + (tracer_ ? tracer_->count() : 0);
  const bool room = records < options_.most_records;
  if (recording_ && !(wanted && room)) close();
  if (!recording_ && wanted && steps_.empty()) open();
  if (wanted && !recording_) ++left_out_;
  if (recording_) steps_.push_back({number, steady_nanoseconds(), 0, 0, 0});
  counting_ = options_.counters && number == options_.start + options_.steps;
}

void Session::run(backend::Executable& executable, backend::Section section) {
  if (counting_ && tracer_) return count(executable, section);
  if (trial_ == TracingWindows::Kind::traced && !sees_kernels()) return executable.run(section, &times_);
  if (!recording_) return executable.run(section);
  note_run(executable, section);
  const Span span(this, HostWork::launch);
  if (sees_kernels()) return executable.run(section);
  const std::int64_t origin = steady_nanoseconds();
  executable.run(section, &times_);
  const plan::Plan& plan = executable.plan();
  for (const backend::OpTime& time : times_) {
    const plan::Group& group = plan.groups[static_cast<std::size_t>(time.group)];
    backend::Activity activity;
    activity.op = &plan.graph().ops()[static_cast<std::size_t>(plan::lead_of(plan.graph(), group))];
    activity.begin = origin + time.start.count();
    activity.end = activity.begin + time.duration.count();
    // On other devices, an op belongs to the run in which it was timed.
    activity.correlation = static_cast<std::uint32_t>(steps_.size());
    records_.push_back(activity);
  }
}

void Session::note_run(const backend::Executable& executable, backend::Section section) {
  auto known = std::ranges::find(plans_, &executable.plan(), &PlanRuns::plan);
  if (known == plans_.end()) known = plans_.insert(known, {&executable.plan(), 0, 0});
  if (section != backend::Section::update) ++known->batches;
  if (section != backend::Section::compute) ++known->updates;
}

void Session::drop_step(std::int64_t number) {
  if (!steps_.empty() && steps_.back().number == number) steps_.pop_back();
}

void Session::end_steps() {
  if (recording_ && !steps_.empty() && steps_.back().end == 0) steps_.back().end = steady_nanoseconds();
  if (tracer_ && std::exchange(trial_, TracingWindows::Kind::none) == TracingWindows::Kind::traced)
    tracer_->stop();
  close();
}

void Session::count(backend::Executable& executable, backend::Section section) {
  counting_ = false;  // only the first of several accumulated batches
  try {
    const auto counts = tracer_->count(executable, section, profile_metrics());
    counted_ = counted_kernels(counts, profile_metrics());
  } catch (const UnavailableError& reason) {
    log_warning("{}", reason.what());
    executable.run(section);
  }
}

Profile Session::finish(const Ceilings& ceilings, const TelemetrySummary& telemetry, const RunFacts& run) {
  end_steps();
  if (tracer_) {
    std::vector<backend::Activity> traced = tracer_->take();
    records_.insert(records_.end(), traced.begin(), traced.end());
  }
  // Op times of a device are taken while the host waits, so they lie within its steps, as on a CPU.
  const bool within = host_computes_ || !sees_kernels();
  Profile profile;
  profile.timeline = make_timeline(std::exchange(records_, {}), steps_, std::exchange(host_, {}), within);
  if (tracer_) profile.timeline.dropped = tracer_->dropped() - dropped_before_;
  profile.arguments = op_arguments(plans_);
  profile.summary = summarize(profile.timeline, plans_, ceilings, telemetry, run);
  profile.summary.tracing = windows_.cost();
  profile.summary.untraced = left_out_;
  profile.counted = std::exchange(counted_, {});
  return profile;
}

Span::Span(Session* session, HostWork work)
    : session_(session != nullptr && session->recording() ? session : nullptr), work_(work) {
  if (session_ != nullptr) begin_ = steady_nanoseconds();
}

Span::~Span() {
  if (session_ != nullptr) session_->add({work_, begin_, steady_nanoseconds()});
}

std::vector<std::string> write_profile(const Profile& profile, const Subject& subject,
                                       const std::vector<TelemetrySample>& samples,
                                       const std::string& facts_json, std::uint64_t most_trace_bytes,
                                       const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw IoError("cannot create {}: {}", folder.string(), error.message());
  const std::string worker = fmt::format("{}_{}", subject.host, subject.process);
  const std::string trace = fmt::format("{}.{}.pt.trace.json.gz", worker, subject.rank);
  const std::string kernels = fmt::format("resnet_{}_gpu{}.csv", worker, subject.device);
  const std::string durations = fmt::format("resnet_iterdur_{}_gpu{}.txt", worker, subject.device);
  if (profile.timeline.events.size() > kMany)
    log_info("writing the profile of {} steps", profile.timeline.steps.size());
  const TraceWritten written =
      write_trace(profile.timeline, profile.arguments, samples, subject, folder / trace, most_trace_bytes);
  if (written.steps_left_out > 0)
    log_warning("{} has only the first {} of {} steps: viewers cannot open more than {}; use fewer --steps",
                trace, written.steps, written.steps + written.steps_left_out, format_bytes(most_trace_bytes));
  const std::int64_t in_table =
      write_kernel_csv(profile.timeline, samples, subject, folder / kernels, most_trace_bytes);
  if (in_table < profile.summary.steps)
    log_warning("{} has only the first {} of {} steps, to stay under {}", kernels, in_table,
                profile.summary.steps, format_bytes(most_trace_bytes));
  write_file_atomically(folder / durations, iteration_text(profile.timeline, subject), Sync::no);
  auto json = nlohmann::ordered_json::parse(facts_json);
  json.update(to_json(profile.summary));
  const std::string summary =
      subject.rank == 0 ? "summary.json" : fmt::format("summary-rank{}.json", subject.rank);
  std::vector<std::string> files = {trace, kernels, durations, summary};
  if (!profile.counted.empty()) {
    const std::string counters = fmt::format("profiled_data_ncu/batch_{}.csv", json.value("batch", 0));
    std::filesystem::create_directories((folder / counters).parent_path());
    write_file_atomically(folder / counters, counters_csv(profile.counted, subject), Sync::no);
    files.push_back(counters);
    json["counters"] = {{"file", counters}, {"kernels_repeated", true}};
    json["counters"].update(to_json(core_utilisation(profile.counted)));
  }
  json["table"] = {{"file", kernels}, {"steps", in_table}};
  json["trace"] = {{"file", trace},
                   {"events", written.events},
                   {"steps", written.steps},
                   {"steps_left_out", written.steps_left_out}};
  write_file_atomically(folder / summary,
                        json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n", Sync::no);
  return files;
}

}  // namespace redline::profile
