#include "train/evaluation.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "train/batch_input.h"
#include "train/setup.h"

namespace redline::train {
namespace {

constexpr std::int64_t kDefaultImageSize = 224;

// The configuration that the pieces of training take, with what matters to a forward pass.
Config forward_config(const TrainedModel& model, const EvaluationOptions& options) {
  Config config;
  config.model.name = model.weights.model;
  config.model.classes = model.weights.classes;
  config.model.image_size = options.image_size.value_or(model.image_size.value_or(kDefaultImageSize));
  config.data.path = options.data;
  config.data.workers = options.workers;
  config.data.crop_pct = options.crop_pct.value_or(model.crop_pct);
  config.data.max_bad = options.max_bad;
  config.optimizer.batch_size = options.batch_size;
  config.device = options.device;
  return config;
}

void check_classes(const TrainedModel& model, const data::RecordSource& records, const std::string& path) {
  const auto present = static_cast<std::int64_t>(records.classes().size());
  if (present > model.weights.classes) {
    throw UsageError("{} has {} classes, and the network tells {} apart: was it trained on other data?", path,
                     present, model.weights.classes);
  }
  if (present < model.weights.classes) {
    log_warning("{} has {} of the network's {} classes; they are taken for its first ones", path, present,
                model.weights.classes);
  }
}

std::size_t largest(std::span<const float> logits) {
  return static_cast<std::size_t>(std::ranges::max_element(logits) - logits.begin());
}

// Runs batches through a compiled plan and keeps count.
class Counter {
 public:
  Counter(backend::Executable& executable, EvaluationResult& result)
      : executable_(executable), result_(result), logits_(static_cast<std::size_t>(shape().elements())) {
    result_.confusion.assign(result.classes.size(), std::vector<std::int64_t>(columns()));
  }

  void add(const data::Batch& batch) {
    const graph::Model& model = executable_.plan().model;
    write_batch(executable_, batch);
    executable_.run(backend::Section::compute);
    executable_.request_metrics();
    const auto metrics = executable_.take_metrics(/*wait=*/true);
    check(metrics.has_value(), "a batch gave no numbers");
    sums_ += metrics->sums;
    executable_.read(model.logits, logits_);
    for (std::size_t row = 0; row < static_cast<std::size_t>(shape()[0]); ++row) {
      if (batch.labels[row] < 0) continue;
      const auto label = static_cast<std::size_t>(batch.labels[row]);
      ++result_.confusion.at(label)[largest(std::span(logits_).subspan(row * columns(), columns()))];
    }
  }

  void finish() const {
    result_.samples = std::llround(sums_.samples());
    result_.loss = sums_.loss();
    result_.top1 = sums_.top1();
    result_.top5 = sums_.top5();
  }

 private:
  const graph::Shape& shape() const {
    const graph::Model& model = executable_.plan().model;
    return model.graph.tensor(model.logits).shape;
  }
  std::size_t columns() const { return static_cast<std::size_t>(shape()[1]); }

  backend::Executable& executable_;
  EvaluationResult& result_;
  graph::LossSums sums_;
  std::vector<float> logits_;  // [batch, classes]
};

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
  const Config config = forward_config(model, options);
  validate(config);
  const data::Split split = options.train_split ? data::Split::train : data::Split::val;
  const std::shared_ptr<const data::RecordSource> records = data::open_source(options.data, split);
  check_classes(model, *records, options.data);
  const auto backend = open_device(config);
  const graph::DType dtype = resolve_dtype(config, *backend).dtype;
  const auto plan = std::make_shared<plan::Plan>(
      make_plan(eval_plan_options(config, dtype, model.weights.classes, options.batch_size), *backend));
  const auto state = backend->make_state();
  const auto executable = backend->compile(plan, state);
  write_weights(model.weights, *state);
  const auto batches = evaluation_batches(config, *backend, records);

  EvaluationResult result;
  result.model = model.weights.model;
  result.data = options.data;
  result.device = backend->description();
  result.dtype = graph::name_of(dtype);
  result.image_size = config.model.image_size;
  result.classes = records->classes();
  Counter counter(*executable, result);
  const Stopwatch watch;
  std::int64_t done = 0;
  batches->start_epoch(0);
  for (data::Batch batch; batches->next(batch);) {
    if (stop.load(std::memory_order_relaxed)) return {};
    counter.add(batch);
    done += batch.count;
    progress(done, batches->samples());
  }
  counter.finish();
  result.seconds = watch.seconds();
  return result;
}

std::string to_json(const EvaluationResult& result) {
  nlohmann::ordered_json json;
  json["schema"] = "redline.evaluation";
  json["version"] = 1;
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
