// An MLPerf log: ":::MLLOG {json}" lines with the keys that MLCommons' compliance checker requires of an
// image classification run. Times are by the wall clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/append_file.h"
#include "metrics/recorder.h"

namespace redline::metrics {

struct KeptLog;

struct MlperfFacts {
  // Written once, in this order: who ran what, and its hyperparameters.
  std::vector<std::pair<std::string, std::variant<std::int64_t, double, std::string>>> values;
  std::chrono::system_clock::time_point began;  // when the program started
  // Evaluations come after epochs e (from 1) with e % eval_every == eval_offset, and after the last. 0: after
  // the last only.
  std::int64_t eval_every = 1, eval_offset = 0;
};

// A block is the epochs between two evaluations. A resumed run continues its log: what was logged after that
// point is removed, and the time in between counts, as MLPerf requires.
class MlperfSink final : public Sink {
 public:
  // Throws IoError if the file cannot be opened, or if it exists and the run is new.
  MlperfSink(const std::filesystem::path& path, MlperfFacts facts, const std::optional<Resumed>& resumed);

  void begin(const RunInfo& info) override;
  void epoch(std::int64_t epoch) override;
  void step(const Step& step) override;
  void evaluating(std::int64_t done, std::int64_t total) override;
  void evaluation(const Evaluation& evaluation) override;
  void flush() override { file_.flush(); }
  // The run is a success if it reached its target, else aborted.
  void end(const End& end) override;

 private:
  MlperfSink(const std::filesystem::path& path, MlperfFacts facts, const KeptLog& kept,
             const std::optional<Resumed>& resumed);

  using Time = std::chrono::system_clock::time_point;
  struct Line;
  void write(const Line& line);
  void start_epoch(std::int64_t epoch, Time when);
  void stop_epoch();
  void stop_block();
  std::int64_t last_of_block(std::int64_t first) const;

  MlperfFacts facts_;
  AppendFile file_;
  std::int64_t steps_per_epoch_ = 1, epochs_ = 1;
  std::int64_t step_ = 0;   // of the last line
  std::int64_t epoch_ = 0;  // the last one started, from 1
  std::int64_t in_epoch_ = 0,
               in_block_ = 0;  // the open epoch, and the first epoch of the open block; 0: none
  std::optional<std::pair<std::int64_t, Time>> next_;  // an epoch whose first step is not recorded yet
};

}  // namespace redline::metrics
