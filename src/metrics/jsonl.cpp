#include "metrics/jsonl.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

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

// A path or a data set's name may hold bytes that are not UTF-8; those are replaced, never fatal.
std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

JsonlSink::JsonlSink(const std::filesystem::path& path) : path_(path) {
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (descriptor_ < 0) throw IoError("cannot create {}: {}", path.string(), std::strerror(errno));
}

JsonlSink::~JsonlSink() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void JsonlSink::write_line(std::string line) {
  line += '\n';
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t written = ::write(descriptor_, line.data() + done, line.size() - done);
    if (written >= 0) {
      done += static_cast<std::size_t>(written);
      continue;
    }
    if (errno == EINTR) continue;
    const int reason = errno;
    // A torn line would spoil the file for its readers. If even this fails there is nothing left to try.
    [[maybe_unused]] const int cut = ::ftruncate(descriptor_, whole_bytes_);
    throw IoError("cannot write {}: {}; free some space or choose another --output-dir", path_.string(),
                  std::strerror(reason));
  }
  whole_bytes_ += static_cast<long long>(line.size());
}

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
  write_line(text_of(json));
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
  write_line(text_of(json));
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
  write_line(text_of(json));
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
  write_line(text_of(json));
}

}  // namespace redline::metrics
