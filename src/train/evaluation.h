// The accuracy of a trained network on a data set: overall, by class, and which classes it confuses.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "train/forward.h"

namespace redline::train {

struct EvaluationOptions : ForwardOptions {
  std::string data;           // a data set; for the run's own data, the images that it held out
  bool train_split = false;   // the training images, without augmentation, instead of the held-out ones
  bool ignore_names = false;  // match classes by number, not by name
};

struct EvaluationResult {
  std::string model, data, device, dtype;
  std::int64_t image_size = 0, samples = 0;
  double loss = 0, top1 = 0, top5 = 0;  // accuracies as fractions of one
  double seconds = 0;
  std::vector<std::string> classes;  // names, by the network's label where it knows them
  std::vector<std::vector<std::int64_t>>
      confusion;  // [label][what the network said]; columns: the model's classes

  std::int64_t count(std::size_t label) const;      // images of a class
  double accuracy(std::size_t label) const;         // of one class; 0 without images
  std::string class_name(std::size_t index) const;  // a number for a class of the model that the data lacks
};

using EvaluationProgress = std::function<void(std::int64_t done, std::int64_t total)>;

// Evaluates every image once. Empty if `stop` was raised before the end. Throws UsageError if data and model
// do not fit, and what opening and reading the data throws.
std::optional<EvaluationResult> evaluate(const TrainedModel& model, const EvaluationOptions& options,
                                         const std::atomic<bool>& stop, const EvaluationProgress& progress);

std::string to_json(const EvaluationResult& result);
// A row and a column per class, with names: how many images of the row's class were classified as the
// column's.
std::string confusion_csv(const EvaluationResult& result);

}  // namespace redline::train
