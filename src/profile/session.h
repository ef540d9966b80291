// Profiles some steps of a run: the trainer reports what it does, the session records the device, and the
// files are written at the end. A run without a session pays nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/tracer.h"
#include "profile/counters.h"
#include "profile/files.h"
#include "profile/summary.h"
#include "profile/timeline.h"
#include "profile/tracing_windows.h"

namespace redline::profile {

struct SessionOptions {
  // The first traced step. The steps before it warm up and measure the cost of tracing.
  std::int64_t start = 21;
  std::int64_t steps = 10;                     // how many
  bool counters = false;                       // count in the step after them, repeating every kernel
  std::size_t most_records = 2'000'000;        // a larger window ends early, with a whole step
  std::uint64_t most_trace_bytes = 400 << 20;  // of the trace before compression

  // Whether something that happens after every so many steps (0: never) happens in the traced ones.
  bool covers(std::int64_t every) const {
    return every > 0 && (start + steps - 1) / every > (start - 1) / every;
  }
};

// The result.
struct Profile {
  Timeline timeline;
  OpArguments arguments;
  Summary summary;
  std::vector<CountedKernel> counted;  // empty without counters
};

// Used by the training thread only.
class Session {
 public:
  // Construct it before compiling the plans to be profiled. If the device cannot be traced, warns and times
  // ops instead.
  Session(const SessionOptions& options, backend::Backend& backend);
  ~Session();

  // Called when the window opens and after it closed.
  void on_window(std::function<void()> opens, std::function<void()> closed) {
    on_open_ = std::move(opens);
    on_close_ = std::move(closed);
  }
  // Call at the start of every step: opens and closes the window.
  void begin_step(std::int64_t number);
  // Runs a section, recording it if the window is open.
  void run(backend::Executable& executable, backend::Section section);
  // Whether a step is being recorded now.
  bool recording() const { return recording_; }
  void add(const HostSpan& span) { host_.push_back(span); }

  // The step of this number, the last that began, was abandoned: it is not part of the profile.
  void drop_step(std::int64_t number);

  // Call after the last step: closes the window if it is still open.
  void end_steps();

  // Call after end_steps(), while the plans still exist.
  Profile finish(const Ceilings& ceilings, const TelemetrySummary& telemetry, const RunFacts& run);

 private:
  void open();
  void close();
  void turn(std::int64_t number);  // from one trial window to the next
  bool sees_kernels() const;
  void count(backend::Executable& executable, backend::Section section);
  void note_run(const backend::Executable& executable, backend::Section section);

  SessionOptions options_;
  std::function<void()> on_open_, on_close_;
  std::shared_ptr<backend::Tracer> tracer_;  // null if none
  bool host_computes_;
  bool recording_ = false, counting_ = false;
  std::vector<CountedKernel> counted_;
  TracingWindows windows_;
  TracingWindows::Kind trial_ = TracingWindows::Kind::none;  // the current window
  std::int64_t trial_begin_ = 0;
  std::uint64_t dropped_before_ = 0;  // by trials
  std::int64_t left_out_ = 0;
  std::vector<StepSpan> steps_;
  std::vector<PlanRuns> plans_;
  std::vector<HostSpan> host_;
  std::vector<backend::Activity> records_;  // of ops that an executable timed
  std::vector<backend::OpTime> times_;
};

// Reports what the trainer does, from construction to destruction, while a session records.
class Span {
 public:
  Span(Session* session, HostWork work);
  ~Span();
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  Session* session_;
  HostWork work_;
  std::int64_t begin_ = 0;
};

// Creates the folder and writes all files of a profile; returns their names.
std::vector<std::string> write_profile(const Profile& profile, const Subject& subject,
                                       const std::vector<TelemetrySample>& samples,
                                       const std::string& facts_json, std::uint64_t most_trace_bytes,
                                       const std::filesystem::path& folder);

}  // namespace redline::profile
