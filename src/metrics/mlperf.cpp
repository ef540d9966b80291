#include "metrics/mlperf.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "base/error.h"

namespace redline::metrics {

// The state of a log up to a point: its bytes, and what is still open there.
struct KeptLog {
  std::uint64_t bytes = 0;
  std::int64_t epoch = 0, in_epoch = 0, in_block = 0;
};

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kToken = ":::MLLOG ";

std::int64_t milliseconds(std::chrono::system_clock::time_point when) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(when.time_since_epoch()).count();
}

// False for a line that is not of this point or before it.
bool keep(const std::string& line, const Resumed& resumed, KeptLog& kept) {
  try {
    const Json json = Json::parse(line.substr(std::min(line.size(), kToken.size())));
    const auto key = json.at("key").get<std::string>();
    const Json& metadata = json.at("metadata");
    const auto step = metadata.value("step_num", std::int64_t{0});
    const bool of_evaluation = key.starts_with("eval_") || key == "block_stop";
    if (key == "run_stop" || step > resumed.step) return false;
    if (key.ends_with("_samples")) return true;  // eval_samples is a fact of the run
    if (step == resumed.step && step > 0 && of_evaluation && !resumed.evaluated) return false;
    if (key == "epoch_start") kept.epoch = kept.in_epoch = metadata.at("epoch_num").get<std::int64_t>();
    if (key == "epoch_stop") kept.in_epoch = 0;
    if (key == "block_start") kept.in_block = metadata.at("first_epoch_num").get<std::int64_t>();
    if (key == "block_stop") kept.in_block = 0;
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;  // incomplete
  }
}

KeptLog read(const std::filesystem::path& path, const Resumed& resumed) {
  KeptLog kept;
  std::ifstream file(path, std::ios::binary);
  for (std::string line; std::getline(file, line) && !file.eof();) {
    if (!keep(line, resumed, kept)) break;
    kept.bytes += line.size() + 1;
  }
  return kept;
}

// Truncates the log to the point where a run resumes, and returns its state there.
KeptLog cut_back(const std::filesystem::path& path, const Resumed& resumed) {
  const KeptLog kept = read(path, resumed);
  std::error_code error;
  if (std::filesystem::exists(path)) std::filesystem::resize_file(path, kept.bytes, error);
  if (error) throw IoError("cannot shorten {}: {}", path.string(), error.message());
  return kept;
}

}  // namespace

struct MlperfSink::Line {
  std::string key;
  Json value = nullptr;
  Json metadata = Json::object();
  std::optional<Time> when = {};  // unset: now
};

MlperfSink::MlperfSink(const std::filesystem::path& path, MlperfFacts facts,
                       const std::optional<Resumed>& resumed)
    : MlperfSink(path, std::move(facts), resumed ? cut_back(path, *resumed) : KeptLog(), resumed) {}

MlperfSink::MlperfSink(const std::filesystem::path& path, MlperfFacts facts, const KeptLog& kept,
                       const std::optional<Resumed>& resumed)
    : facts_(std::move(facts)),
      file_(path, resumed ? Existing::append : Existing::refuse),
      step_(resumed ? resumed->step : 0),
      epoch_(kept.epoch),
      in_epoch_(kept.in_epoch),
      in_block_(kept.in_block) {}

void MlperfSink::write(const Line& line) {
  const std::string_view key = line.key;
  Json json;
  json["namespace"] = "";
  json["time_ms"] = milliseconds(line.when.value_or(std::chrono::system_clock::now()));
  json["event_type"] = key.ends_with("_start")  ? "INTERVAL_START"
                       : key.ends_with("_stop") ? "INTERVAL_END"
                                                : "POINT_IN_TIME";
  json["key"] = line.key;
  json["value"] = line.value;
  json["metadata"] = line.metadata;
  if (step_ > 0) json["metadata"]["step_num"] = step_;
  file_.append(std::string(kToken) + json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

void MlperfSink::begin(const RunInfo& info) {
  steps_per_epoch_ = std::max<std::int64_t>(1, info.steps_per_epoch);
  epochs_ = (info.total_steps + steps_per_epoch_ - 1) / steps_per_epoch_;
  if (!file_.empty()) {
    write({"resumed", info.started, {{"program", program_text()}}});
    return;
  }
  // The caches of the system are not Redline's to clear.
  write({"cache_clear", false, Json::object(), facts_.began});
  write({"init_start", nullptr, {{"program", program_text()}}, facts_.began});
  for (const auto& [key, value] : facts_.values)
    write({key, std::visit([](const auto& held) { return Json(held); }, value)});
  write({"train_samples", info.train_samples});
  write({"eval_samples", info.val_samples});
  write({"init_stop"});
  write({"run_start"});
}

std::int64_t MlperfSink::last_of_block(std::int64_t first) const {
  const std::int64_t every = facts_.eval_every;
  if (every == 0) return std::max(first, epochs_);
  const std::int64_t wait = ((facts_.eval_offset - first) % every + every) % every;
  return std::clamp(first + wait, first, std::max(first, epochs_));
}

void MlperfSink::epoch(std::int64_t epoch) { next_ = {epoch + 1, std::chrono::system_clock::now()}; }

void MlperfSink::start_epoch(std::int64_t epoch, Time when) {
  epoch_ = epoch;
  if (in_epoch_ == epoch) return;  // what is left of it
  stop_epoch();
  if (in_block_ == 0) {
    in_block_ = epoch;
    write({"block_start",
           nullptr,
           {{"first_epoch_num", epoch}, {"epoch_count", last_of_block(epoch) - epoch + 1}},
           when});
  }
  in_epoch_ = epoch;
  write({"epoch_start", nullptr, {{"epoch_num", epoch}}, when});
}

void MlperfSink::stop_epoch() {
  // The last steps of an epoch may be recorded after the next has started.
  const std::optional<Time> when = next_ ? std::optional(next_->second) : std::nullopt;
  if (in_epoch_ > 0) write({"epoch_stop", nullptr, {{"epoch_num", in_epoch_}}, when});
  in_epoch_ = 0;
}

void MlperfSink::stop_block() {
  stop_epoch();
  if (in_block_ > 0) write({"block_stop", nullptr, {{"first_epoch_num", in_block_}}});
  in_block_ = 0;
}

void MlperfSink::step(const Step& step) {
  // Steps are recorded late: an epoch may start before the last steps of the one before are recorded.
  if (next_ && next_->first == step.epoch + 1) {
    start_epoch(next_->first, next_->second);
    next_.reset();
  }
  step_ = step.step;
  if (step.step_in_epoch + 1 == steps_per_epoch_) stop_epoch();
}

void MlperfSink::evaluating(std::int64_t done, std::int64_t) {
  if (done > 0) return;
  stop_epoch();
  write({"eval_start", nullptr, {{"epoch_num", epoch_}}});
}

void MlperfSink::evaluation(const Evaluation& evaluation) {
  Json metadata{{"epoch_num", evaluation.epoch}};
  if (evaluation.weights != "model") metadata["weights"] = evaluation.weights;
  write({"eval_accuracy", evaluation.top1, metadata});
  write({"eval_stop", nullptr, {{"epoch_num", evaluation.epoch}}});
  stop_block();
}

void MlperfSink::end(const End& end) {
  stop_block();
  const bool success = end.reason == "finished" && end.target && end.target->reached();
  write({"run_stop", nullptr, {{"status", success ? "success" : "aborted"}, {"epoch_num", epoch_}}});
  file_.finish();
}

}  // namespace redline::metrics
