// metrics.jsonl: every number of a run, one JSON object a line.
//
// The first line has "schema": "redline.metrics", "version": 1 and the run's facts; each line says its
// "kind": run, step, evaluation or end. Numbers that JSON cannot hold are null, with the value as text beside
// them:
//   "loss": null, "loss_text": "nan"
#pragma once

#include <filesystem>

#include "base/append_file.h"
#include "metrics/recorder.h"

namespace redline::metrics {

inline constexpr int kJsonlVersion = 1;

// Every record is handed to the system as it comes, so a reader following the file is never behind and a
// killed run loses nothing. Throws IoError when the file cannot be created or a line cannot be written whole;
// the file then ends with the last whole line.
class JsonlSink final : public Sink {
 public:
  explicit JsonlSink(const std::filesystem::path& path) : file_(path) {}

  void begin(const RunInfo& info) override;
  void step(const Step& step) override;
  void evaluation(const Evaluation& evaluation) override;
  void end(const End& end) override;

 private:
  AppendFile file_;
};

}  // namespace redline::metrics
