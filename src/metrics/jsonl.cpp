#include "metrics/jsonl.h"

#include <cmath>
#include <string>

#include <nlohmann/json.hpp>

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

// A path or a data set's name may hold bytes that are not UTF-8; those are replaced, never fatal.
std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

void JsonlSink::begin(const RunInfo& info) {
  Json json;
  json["schema"] = "redline.metrics";
  json["version"] = kJsonlVersion;
  json["kind"] = "run";
  json["name"] = info.name;
  json["started"] = info.started;
  json["program"] = {{"version", info.version}, {"commit", info.commit}};
  json["model"] = info.model;
  json["data"] = info.data;
  json["device"] = info.device;
  json["dtype"] = info.dtype;
  json["optimizer"] = info.optimizer;
  json["classes"] = info.classes;
  json["image_size"] = info.image_size;
  json["batch_size"] = info.batch_size;
  json["accumulate"] = info.accumulate;
  json["parameters"] = info.parameters;
  json["train_samples"] = info.train_samples;
  json["val_samples"] = info.val_samples;
  json["steps_per_epoch"] = info.steps_per_epoch;
  json["total_steps"] = info.total_steps;
  json["seed"] = info.seed;
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
  put(json, "data_seconds", step.data_seconds);
  put(json, "images_per_second", step.seconds > 0 ? static_cast<double>(step.samples) / step.seconds : 0.0);
  put(json, "elapsed", step.elapsed);
  if (step.skipped) json["skipped"] = true;
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

void JsonlSink::end(const End& end) {
  Json json;
  json["kind"] = "end";
  json["reason"] = end.reason;
  if (!end.detail.empty()) json["detail"] = end.detail;
  json["steps"] = end.steps;
  json["samples"] = end.samples;
  json["skipped_steps"] = end.skipped_steps;
  put(json, "seconds", end.seconds);
  put(json, "train_seconds", end.train_seconds);
  put(json, "data_seconds", end.data_seconds);
  file_.append(line_of(json));
}

}  // namespace redline::metrics
