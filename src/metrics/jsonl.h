// metrics.jsonl: every number of a run, one JSON object per line.
//
// The first line has "schema": "redline.metrics", "version": 2 and the run's facts; each line says its
// "kind": run, step, evaluation, checkpoint, notice, resume or end. Numbers that JSON cannot represent are
// null, followed by the value as text:
//   "loss": null, "loss_text": "nan"
//
// Times of steps are by the device's clock: "seconds" it worked on the step, "gap_seconds" it was idle before
// it, and that idle time by cause: "data_seconds", "host_seconds", "exchange_seconds", "evaluation_seconds"
// and "checkpoint_seconds", if not 0. In version 1, "seconds" was the time between two steps as seen by the
// host, including "data_seconds".
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/append_file.h"
#include "metrics/recorder.h"

namespace redline::metrics {

inline constexpr int kJsonlVersion = 2;

// Every record is passed to the operating system at once, so a reader following the file is never behind and
// a killed run loses nothing. Lines that cannot be written (a full disk) are kept and written later, as in
// AppendFile.
class JsonlSink final : public Sink {
 public:
  // Creates a file or, with `resumed`, continues the existing one, removing what was recorded after that
  // point. Throws IoError if it cannot be opened.
  explicit JsonlSink(const std::filesystem::path& path, const std::optional<Resumed>& resumed = {});

  void begin(const RunInfo& info) override;
  void step(const Step& step) override;
  void evaluation(const Evaluation& evaluation) override;
  void checkpoint(const Checkpoint& checkpoint) override;
  void notice(const Notice& notice) override;
  void flush() override { file_.flush(); }
  // Throws IoError if some lines could not be written.
  void end(const End& end) override;

 private:
  AppendFile file_;
};

// The size in bytes of the records up to that point, in whole lines.
std::uint64_t bytes_until(const std::filesystem::path& path, const Resumed& resumed);

}  // namespace redline::metrics
