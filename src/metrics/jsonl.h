// metrics.jsonl: every number of a run, one JSON object a line.
//
// The first line has "schema": "redline.metrics", "version": 2 and the run's facts; each line says its
// "kind": run, step, evaluation, checkpoint, notice, resume or end. Numbers that JSON cannot hold are null,
// with the value as text beside them:
//   "loss": null, "loss_text": "nan"
//
// Times of steps are the device's: "seconds" it worked on the step, "gap_seconds" it stood still before it,
// and by what it waited for "data_seconds", "host_seconds", "exchange_seconds", "evaluation_seconds" and
// "checkpoint_seconds", those that are not 0. In version 1, "seconds" were between two steps as the host
// heard of them, "data_seconds" among them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/append_file.h"
#include "metrics/recorder.h"

namespace redline::metrics {

inline constexpr int kJsonlVersion = 2;

// Every record is handed to the system as it comes, so a reader following the file is never behind and a
// killed run loses nothing. Lines that cannot be written (a full disk) are kept and written later, as
// AppendFile does it.
class JsonlSink final : public Sink {
 public:
  // A new file. With `resumed`, continues the existing one, removing what was recorded after that
  // point. Throws IoError when it cannot be opened.
  explicit JsonlSink(const std::filesystem::path& path, const std::optional<Resumed>& resumed = {});

  void begin(const RunInfo& info) override;
  void step(const Step& step) override;
  void evaluation(const Evaluation& evaluation) override;
  void checkpoint(const Checkpoint& checkpoint) override;
  void notice(const Notice& notice) override;
  void flush() override { file_.flush(); }
  // Throws IoError when lines are left that cannot be written.
  void end(const End& end) override;

 private:
  AppendFile file_;
};

// How many bytes of a metrics file are the records up to that point: whole lines, none after it.
std::uint64_t bytes_until(const std::filesystem::path& path, const Resumed& resumed);

}  // namespace redline::metrics
