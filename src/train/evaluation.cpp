#include "train/evaluation.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "data/progress.h"
#include "data/sources/class_match.h"
#include "data/sources/hold_out.h"

namespace redline::train {
namespace {

// Opened as in training, if it is the data that the network was trained on.
std::shared_ptr<const data::RecordSource> open_records(const TrainedModel& model,
                                                       const EvaluationOptions& options,
                                                       const std::atomic<bool>& stop) {
  data::SourceOptions limits;
  limits.stop = [&] { return stop.load(); };
  const data::Split split = options.train_split ? data::Split::train : data::Split::val;
  if (!model.config) return data::open_source(options.data, split, limits);
  const DataConfig& trained = model.config->data;
  std::error_code ignored;
  // Compares paths, however they are written: as another data set, all of it would be evaluated, including
  // training images.
  const bool same = std::filesystem::equivalent(options.data, trained.path, ignored);
  if (!same || (trained.val_split == 0 && trained.val_dir.empty())) {
    auto source = data::open_source(options.data, split, limits);
    if (trained.val_split > 0 && !options.train_split && !data::has_split(options.data, data::Split::val))
      log_warning(
          "all images of {} are evaluated: the run held some out (--val-split {}), but its data was {}; if "
          "they "
          "are the same, it was trained on most of them",
          options.data, trained.val_split, trained.path);
    return source;
  }
  const std::string& path = trained.path;
  data::OpenSplits splits =
      trained.val_split > 0
          ? data::open_with_held_out(path, trained.val_split,
                                     static_cast<std::uint64_t>(model.config->run.seed), limits)
          : data::open_splits(path, trained.val_dir, limits);
  return options.train_split ? std::move(splits.train) : std::move(splits.val);
}

// The records with the network's labels: by name if it has class names.
std::shared_ptr<const data::RecordSource> with_labels(const TrainedModel& model,
                                                      std::shared_ptr<const data::RecordSource> records,
                                                      const EvaluationOptions& options) {
  const std::vector<std::string>& names = model.weights.class_names;
  if (!names.empty() && !options.ignore_names && !data::lasting_names(records->classes()).empty()) {
    std::vector<std::int32_t> labels;
    try {
      labels = data::match_classes(names, records->classes(), options.data);
    } catch (const UsageError& reason) {
      throw UsageError("{} (--ignore-names matches classes by their order)", reason.what());
    }
    return data::relabelled(std::move(records), std::move(labels), names);
  }
  const std::string& path = options.data;
  const auto present = static_cast<std::int64_t>(records->classes().size());
  if (present > model.weights.classes) {
    throw UsageError("{} has {} classes, but the network has {}: was it trained on other data?", path,
                     present, model.weights.classes);
  }
  if (present < model.weights.classes) {
    log_warning("{} has {} of the network's {} classes; they are matched to its first ones", path, present,
                model.weights.classes);
  }
  return records;
}

std::size_t largest(std::span<const float> logits) {
  return static_cast<std::size_t>(std::ranges::max_element(logits) - logits.begin());
}

std::string csv_text(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

std::int64_t EvaluationResult::count(std::size_t label) const {
  return std::accumulate(confusion[label].begin(), confusion[label].end(), std::int64_t{0});
}

double EvaluationResult::accuracy(std::size_t label) const {
  const std::int64_t images = count(label);
  return images > 0 ? static_cast<double>(confusion[label][label]) / static_cast<double>(images) : 0;
}

std::string EvaluationResult::class_name(std::size_t index) const {
  return index < classes.size() ? classes[index] : std::to_string(index);
}

std::optional<EvaluationResult> evaluate(const TrainedModel& model, const EvaluationOptions& options,
                                         const std::atomic<bool>& stop, const EvaluationProgress& progress) {
  std::shared_ptr<const data::RecordSource> records;
  try {
    records = with_labels(model, open_records(model, options, stop), options);
  } catch (const data::Stopped&) {
    return {};
  }
  ForwardPass pass(model, options, stop);
  const auto batches = pass.batches(records);
  const std::size_t columns = pass.classes();

  EvaluationResult result;
  result.model = model.weights.model;
  result.data = options.data;
  result.device = pass.device();
  result.dtype = pass.dtype();
  result.image_size = pass.image_size();
  result.classes = records->classes();
  result.confusion.assign(result.classes.size(), std::vector<std::int64_t>(columns));
  const Stopwatch watch;
  std::int64_t done = 0;
  batches->start_epoch(0);
  const auto stopped = [&] { return stop.load(); };
  for (;;) {
    if (!batches->wait(stopped)) return {};
    data::Batch batch;
    if (!batches->next(batch)) break;
    const auto logits = pass.run(batch);
    if (!logits) return {};
    for (int row = 0; row < batches->batch_size(); ++row) {
      if (batch.labels[row] < 0) continue;
      const auto label = static_cast<std::size_t>(batch.labels[row]);
      ++result.confusion.at(
          label)[largest(logits->subspan(static_cast<std::size_t>(row) * columns, columns))];
    }
    done += batch.count;
    progress(done, batches->samples());
  }
  result.samples = std::llround(pass.sums().samples());
  result.loss = pass.sums().loss();
  result.top1 = pass.sums().top1();
  result.top5 = pass.sums().top5();
  result.seconds = watch.seconds();
  return result;
}

std::string to_json(const EvaluationResult& result) {
  nlohmann::ordered_json json;
  json["schema"] = "redline.evaluation";
  json["version"] = 1;
  json["program"] = program_facts();
  json["model"] = result.model;
  json["data"] = result.data;
  json["device"] = result.device;
  json["dtype"] = result.dtype;
  json["image_size"] = result.image_size;
  json["samples"] = result.samples;
  json["loss"] = result.loss;  // what is not finite becomes null
  json["top1"] = result.top1;
  json["top5"] = result.top5;
  json["seconds"] = result.seconds;
  json["classes"] = nlohmann::ordered_json::array();
  for (std::size_t label = 0; label < result.classes.size(); ++label) {
    json["classes"].push_back({{"name", result.classes[label]},
                               {"samples", result.count(label)},
                               {"correct", result.confusion[label][label]},
                               {"accuracy", result.accuracy(label)}});
  }
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string confusion_csv(const EvaluationResult& result) {
  std::string text = "class";
  const std::size_t columns = result.confusion.empty() ? 0 : result.confusion.front().size();
  for (std::size_t i = 0; i < columns; ++i) text += "," + csv_text(result.class_name(i));
  text += "\n";
  for (std::size_t label = 0; label < result.classes.size(); ++label) {
    text += csv_text(result.classes[label]);
    for (const std::int64_t count : result.confusion[label]) text += "," + std::to_string(count);
    text += "\n";
  }
  return text;
}

}  // namespace redline::train
