#include "metrics/jsonl.h"

#include <cmath>
#include <fstream>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "base/error.h"

namespace redline::metrics {
namespace {

using Json = nlohmann::ordered_json;

void put(Json& json, const std::string& key, double value) {
  if (std::isfinite(value)) {
    json[key] = value;
    return;
  }
  json[key] = nullptr;
  json[key + "_text"] = std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

// The total, and the causes that are not 0.
void put(Json& json, const Gap& gap) {
  put(json, "gap_seconds", gap.total());
  for (const auto& [key, seconds] :
       {std::pair{"data_seconds", gap.data}, std::pair{"host_seconds", gap.host},
        std::pair{"exchange_seconds", gap.exchange}, std::pair{"evaluation_seconds", gap.evaluation},
        std::pair{"checkpoint_seconds", gap.checkpoint}}) {
    if (seconds != 0) put(json, key, seconds);
  }
}

// A path or a data set's name may hold invalid UTF-8, which is replaced.
std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

enum class Place { before, after, unknown /* damaged: kept when good lines follow */ };

Place place_of(const std::string& line, const Resumed& resumed) {
  try {
    const Json json = Json::parse(line);
    const auto kind = json.at("kind").get<std::string>();
    if (kind == "run") return Place::before;
    if (kind == "end") return Place::after;
    const auto step = json.at("step").get<std::int64_t>();
    if (step != resumed.step) return step < resumed.step ? Place::before : Place::after;
    return kind == "evaluation" && !resumed.evaluated ? Place::after : Place::before;
  } catch (const nlohmann::json::exception&) {
    return Place::unknown;
  }
}

}  // namespace

std::uint64_t bytes_until(const std::filesystem::path& path, const Resumed& resumed) {
  std::ifstream file(path, std::ios::binary);
  std::uint64_t at = 0, kept = 0;
  for (std::string line;
       std::getline(file, line) && !file.eof();) {  // a last line without a line end is incomplete
    at += line.size() + 1;
    const Place place = place_of(line, resumed);
    if (place == Place::after) break;
    if (place == Place::before) kept = at;
  }
  return kept;
}

namespace {

// Removes what will be repeated, and returns how to open the file.
Existing cut_back(const std::filesystem::path& path, const std::optional<Resumed>& resumed) {
  if (!resumed) return Existing::refuse;
  std::error_code error;
  if (std::filesystem::exists(path)) std::filesystem::resize_file(path, bytes_until(path, *resumed), error);
  if (error) throw IoError("cannot shorten {}: {}", path.string(), error.message());
  return Existing::append;
}

Json program_json(const RunInfo& info) {
  return {{"version", info.version}, {"commit", info.commit}, {"build", build_info().build_type}};
}

}  // namespace

JsonlSink::JsonlSink(const std::filesystem::path& path, const std::optional<Resumed>& resumed)
    : file_(path, cut_back(path, resumed)) {}

void JsonlSink::begin(const RunInfo& info) {
  Json json;
  if (info.resumed && !file_.empty()) {  // the first line exists
    json["kind"] = "resume";
    json["step"] = info.resumed->step;
    json["started"] = info.started;
    json["program"] = program_json(info);
    json["device"] = info.device;
    json["batch_size"] = info.batch_size;
    json["accumulate"] = info.accumulate;
    json["total_steps"] = info.total_steps;
    file_.append(line_of(json));
    return;
  }
  json["schema"] = "redline.metrics";
  json["version"] = kJsonlVersion;
  json["kind"] = "run";
  json["name"] = info.name;
  json["started"] = info.started;
  json["program"] = program_json(info);
  json["model"] = info.model;
  json["data"] = info.data;
  json["device"] = info.device;
  json["dtype"] = info.dtype;
  json["optimizer"] = info.optimizer;
  json["classes"] = info.classes;
  if (!info.class_names.empty()) json["class_names"] = info.class_names;
  json["image_size"] = info.image_size;
  json["batch_size"] = info.batch_size;
  json["accumulate"] = info.accumulate;
  if (info.ranks > 1) json["ranks"] = info.ranks;
  json["parameters"] = info.parameters;
  json["train_samples"] = info.train_samples;
  json["val_samples"] = info.val_samples;
  json["steps_per_epoch"] = info.steps_per_epoch;
  json["total_steps"] = info.total_steps;
  json["seed"] = info.seed;
  if (info.label_smoothing > 0) json["label_smoothing"] = info.label_smoothing;
  file_.append(line_of(json));
}

void JsonlSink::step(const Step& step) {
  Json json;
  json["kind"] = "step";
  json["step"] = step.step;
  json["epoch"] = step.epoch;
  json["step_in_epoch"] = step.step_in_epoch;
  put(json, "loss", step.loss);
  put(json, "top1", step.top1);
  put(json, "top5", step.top5);
  put(json, "lr", step.learning_rate);
  put(json, "gradient_norm", step.gradient_norm);
  put(json, "loss_scale", step.loss_scale);
  json["samples"] = step.samples;
  put(json, "seconds", step.seconds);
  put(json, step.gap);
  put(json, "images_per_second", step.images_per_second());
  put(json, "elapsed", step.elapsed);
  if (step.skipped) json["skipped"] = true;
  if (step.ranks > 1) {
    put(json, "communication_seconds", step.communication_seconds);
    json["slowest_rank"] = step.slowest_rank;
    put(json, "slowest_seconds", step.slowest_seconds);
  }
  file_.append(line_of(json));
}

void JsonlSink::evaluation(const Evaluation& evaluation) {
  Json json;
  json["kind"] = "evaluation";
  json["step"] = evaluation.step;
  json["epoch"] = evaluation.epoch;
  json["weights"] = evaluation.weights;
  put(json, "loss", evaluation.loss);
  put(json, "top1", evaluation.top1);
  put(json, "top5", evaluation.top5);
  json["samples"] = evaluation.samples;
  put(json, "seconds", evaluation.seconds);
  put(json, "elapsed", evaluation.elapsed);
  file_.append(line_of(json));
}

void JsonlSink::checkpoint(const Checkpoint& checkpoint) {
  Json json;
  json["kind"] = "checkpoint";
  json["step"] = checkpoint.step;
  json["name"] = checkpoint.name;
  json["bytes"] = checkpoint.bytes;
  if (checkpoint.best) json["best"] = true;
  put(json, "stall_seconds", checkpoint.stall_seconds);
  put(json, "interval_seconds", checkpoint.interval_seconds);
  put(json, "write_seconds", checkpoint.write_seconds);
  put(json, "elapsed", checkpoint.elapsed);
  if (!checkpoint.error.empty()) json["error"] = checkpoint.error;
  file_.append(line_of(json));
}

void JsonlSink::notice(const Notice& notice) {
  Json json;
  json["kind"] = "notice";
  json["step"] = notice.step;
  json["what"] = notice.what;
  json["text"] = notice.text;
  file_.append(line_of(json));
}

void JsonlSink::end(const End& end) {
  Json json;
  json["kind"] = "end";
  json["reason"] = end.reason;
  if (!end.detail.empty()) json["detail"] = end.detail;
  json["steps"] = end.steps;
  json["samples"] = end.samples;
  json["skipped_steps"] = end.skipped_steps;
  put(json, "seconds", end.seconds);
  put(json, "train_seconds", end.train_seconds());
  put(json, "step_seconds", end.step_seconds);
  put(json, end.gap);
  if (!end.ranks.empty()) {
    put(json, "communication_seconds", end.communication_seconds);
    json["ranks"] = end.ranks;
  }
  if (end.energy_j) {
    put(json, "energy_j", *end.energy_j);
    json["energy_steps"] = end.energy_steps;
    json["energy_samples"] = end.energy_samples;
  }
  if (end.target) {
    put(json, "target_accuracy", end.target->top1);
    json["target_reached"] = end.target->reached();
    json["best_step"] = end.target->step;
    if (end.target->epoch > 0) {
      json["best_epoch"] = end.target->epoch;
      put(json, "best_elapsed", end.target->seconds);
    }
    put(json, "best_top1", end.target->best);
  }
  file_.append(line_of(json));
  file_.finish();
}

}  // namespace redline::metrics
