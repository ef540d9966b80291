#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/atomic_file.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/quantity.h"
#include "base/signals.h"
#include "cli/command.h"
#include "cli/forward_options.h"
#include "cli/progress_line.h"
#include "train/evaluation.h"

namespace redline::cli {
namespace {

struct EvalOptions {
  std::string model, json, confusion;
  bool averages = false, per_class = false;
  std::string split = "val";
  train::EvaluationOptions evaluation;
};

// The data that the network was trained on, unless other data is named.
std::string data_of(const train::TrainedModel& model, const std::string& named) {
  if (!named.empty()) return named;
  if (model.config && !model.config->data.synthetic()) return model.config->data.path;
  throw UsageError("no data: give a data set after the model");
}

void print_classes(const train::EvaluationResult& result) {
  std::size_t width = 5;
  for (const std::string& name : result.classes) width = std::max(width, printable(name).size());
  std::vector<std::size_t> order(result.classes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(
      order, [&](std::size_t a, std::size_t b) { return result.accuracy(a) < result.accuracy(b); });
  fmt::print(
      "\n"
      "  {:<{}}  images   top-1  most often mistaken for\n",
      "class", width);
  for (const std::size_t label : order) {
    if (result.count(label) == 0) continue;
    std::vector<std::int64_t> wrong = result.confusion[label];
    wrong[label] = 0;
    const auto worst = static_cast<std::size_t>(std::ranges::max_element(wrong) - wrong.begin());
    const std::string taken =
        wrong[worst] > 0 ? fmt::format("{} ({})", printable(result.class_name(worst)), wrong[worst]) : "";
    fmt::print("  {:<{}}  {:>6}  {:>5.1f}%  {}\n", printable(result.classes[label]), width,
               result.count(label), 100 * result.accuracy(label), taken);
  }
}

void print_result(const train::EvaluationResult& result, bool per_class) {
  fmt::print("  model     {}, {} px, {} on {}\n", result.model, result.image_size, result.dtype,
             result.device);
  fmt::print("  data      {}: {} images in {}\n", printable(result.data), format_grouped(result.samples),
             format_duration(result.seconds));
  fmt::print("  accuracy  top-1 {:.2f}%  top-5 {:.2f}%  loss {:.4f}\n", 100 * result.top1, 100 * result.top5,
             result.loss);
  if (per_class) print_classes(result);
}

int run_eval(EvalOptions options) {
  const StopSignals signals;
  const train::TrainedModel model = train::load_trained(options.model, options.averages);
  options.evaluation.data = data_of(model, options.evaluation.data);
  options.evaluation.train_split = options.split == "train";
  std::optional<train::EvaluationResult> result;
  {
    ProgressLine line("evaluated", "images");
    result = train::evaluate(model, options.evaluation, signals.flag(),
                             [&](std::int64_t done, std::int64_t total) { line.update(done, total); });
  }
  if (!result) return kSignalExit + signals.signal();
  if (!options.confusion.empty()) write_file_atomically(options.confusion, train::confusion_csv(*result));
  const std::string json = train::to_json(*result);
  if (!options.json.empty() && options.json != "-") write_file_atomically(options.json, json);
  if (options.json == "-")
    fmt::print("{}", json);
  else
    print_result(*result, options.per_class);
  return 0;
}

}  // namespace

void add_eval(CLI::App& app, Context& context) {
  CLI::App& command =
      add_command(app, "eval", "Measure the accuracy of a trained network",
                  {"redline eval runs/first", "redline eval runs/first/checkpoints/best flowers --per-class",
                   "redline eval flowers.safetensors flowers --confusion confusion.csv --json -"});
  const auto options = std::make_shared<EvalOptions>();
  train::EvaluationOptions& evaluation = options->evaluation;
  command
      .add_option("model", options->model,
                  "Run folder (its latest checkpoint), checkpoint, .safetensors or .pth file")
      ->type_name("PATH")
      ->required();
  command
      .add_option("data", evaluation.data, "Data set, as for train (default: the one the run was trained on)")
      ->type_name("PATH");
  command.add_option("--split", options->split, "Split to evaluate (default: val)")
      ->check(CLI::IsMember({"val", "train"}))
      ->type_name("val|train");
  command.add_flag("--ignore-names", evaluation.ignore_names,
                   "Match classes by their order instead of their names");
  command.add_flag("--ema", options->averages, "Evaluate the moving average of the weights (--model-ema)");
  command.add_flag("--per-class", options->per_class, "Print the accuracy of every class, worst first");
  command.add_option("--confusion", options->confusion, "Write the confusion matrix to this file")
      ->type_name("FILE.csv");
  command.add_option("--json", options->json, "Write the results to this file, or - for standard output")
      ->type_name("FILE");
  add_forward_options(command, evaluation);
  command
      .add_option("--max-bad", evaluation.max_bad, "Fraction of images that may be damaged (default: 0.001)")
      ->type_name("X");
  on_run(command, context, [options] { return run_eval(*options); });
}

}  // namespace redline::cli
