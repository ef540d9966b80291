// A profile of some steps of a run: the trainer tells it what it is at, it has the device recorded, and at
// the end it writes the files. A run without one pays nothing.
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
  // The first step that is traced; those before warm up, and show what tracing costs.
  std::int64_t start = 21;
  std::int64_t steps = 10;                     // how many
  bool counters = false;                       // count in the step after them, with every kernel repeated
  std::size_t most_records = 2'000'000;        // a window that would have more ends early, with a whole step
  std::uint64_t most_trace_bytes = 400 << 20;  // of the trace before compression
};

// What was made of it.
struct Profile {
  Timeline timeline;
  OpArguments arguments;
  Summary summary;
  std::vector<CountedKernel> counted;  // empty without counters
};

// One thread, the one that trains.
class Session {
 public:
  // Before the plans that it is to see are compiled. A device that cannot record itself is a warning; its op
  // times are taken instead.
  Session(const SessionOptions& options, backend::Backend& backend);
  ~Session();

  // Called when the window opens, and when it has closed.
  void on_window(std::function<void()> opens, std::function<void()> closed) {
    on_open_ = std::move(opens);
    on_close_ = std::move(closed);
  }
  // At the beginning of every step: opens and closes the window.
  void begin_step(std::int64_t number);
  // Runs a section, recording it when the window is open.
  void run(backend::Executable& executable, backend::Section section);
  // Whether a step is being recorded now.
  bool recording() const { return recording_; }
  void add(const HostSpan& span) { host_.push_back(span); }

  // After the last step: closes the window if it is still open.
  void end_steps();

  // After end_steps(). The plans of what ran are still there.
  Profile finish(const Ceilings& ceilings, const TelemetrySummary& telemetry, const RunFacts& run);

 private:
  void open();
  void close();
  void turn(std::int64_t number);  // from one window of trial_ to the next
  bool sees_kernels() const;
  void count(backend::Executable& executable, backend::Section section);
  void note_run(const backend::Executable& executable, backend::Section section);

  SessionOptions options_;
  std::function<void()> on_open_, on_close_;
  std::shared_ptr<backend::Tracer> tracer_;  // null: none
  bool host_computes_;
  bool recording_ = false, counting_ = false;
  std::vector<CountedKernel> counted_;
  TracingWindows windows_;
  TracingWindows::Kind trial_ = TracingWindows::Kind::none;  // the window that is under way
  std::int64_t trial_begin_ = 0;
  std::uint64_t dropped_before_ = 0;  // by trials
  std::int64_t left_out_ = 0;
  std::vector<StepSpan> steps_;
  std::vector<PlanRuns> plans_;
  std::vector<HostSpan> host_;
  std::vector<backend::Activity> records_;  // of ops that an executable timed
  std::vector<backend::OpTime> times_;
};

// Notes what the trainer is at, from construction to destruction, when a session records.
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

std::int64_t steady_nanoseconds();

// Writes every file of a profile into a folder, which is made; gives their names.
std::vector<std::string> write_profile(const Profile& profile, const Subject& subject,
                                       const std::vector<TelemetrySample>& samples,
                                       const std::string& facts_json, std::uint64_t most_trace_bytes,
                                       const std::filesystem::path& folder);

}  // namespace redline::profile
