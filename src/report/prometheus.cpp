#include "report/prometheus.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "report/summary.h"

namespace redline::report {
namespace {

using Labels = std::vector<std::pair<std::string, std::string>>;

constexpr std::size_t kRecentSteps = 100;  // over which speed is averaged

// A label's value in quotes. JSON writes strings as Prometheus reads them, once control characters are gone.
std::string quoted(std::string text) {
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < 0x20; }, ' ');
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Metrics in the order they are first used. The lines of each stay together, as the format requires.
class Exposition {
 public:
  enum class Kind { gauge, counter };

  void add(const std::string& name, Kind kind, const char* help, const Labels& labels, double value) {
    if (!std::isfinite(value)) return;
    const auto [place, is_new] = index_.try_emplace(name, blocks_.size());
    if (is_new)
      blocks_.push_back(fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name,
                                    kind == Kind::counter ? "counter" : "gauge"));
    std::string text;
    for (const auto& [key, label] : labels)
      text += fmt::format("{}{}={}", text.empty() ? "" : ",", key, quoted(label));
    blocks_[place->second] += fmt::format("{}{{{}}} {}\n", name, text, value);
  }
  void gauge(const std::string& name, const char* help, const Labels& labels, double value) {
    add(name, Kind::gauge, help, labels, value);
  }
  void counter(const std::string& name, const char* help, const Labels& labels, double value) {
    add(name, Kind::counter, help, labels, value);
  }

  std::string text() const { return fmt::format("{}", fmt::join(blocks_, "")); }

 private:
  std::map<std::string, std::size_t> index_;
  std::vector<std::string> blocks_;
};

double sum_of(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values)
    if (std::isfinite(value)) sum += value;
  return sum;
}

double last_of(const std::vector<double>& values) {
  return values.empty() ? std::numeric_limits<double>::quiet_NaN() : values.back();
}

void add_state(Exposition& out, const Run& run, const Labels& labels) {
  const metrics::RunInfo& info = run.info;
  Labels all = labels;
  for (const auto& [key, value] : Labels{{"model", info.model},
                                         {"data", info.data},
                                         {"device", info.device},
                                         {"dtype", info.dtype},
                                         {"version", info.version}})
    all.emplace_back(key, value);
  out.gauge("redline_run_info", "What is trained; always 1.", all, 1);
  for (State state : {State::finished, State::interrupted, State::failed, State::unfinished}) {
    all = labels;
    all.emplace_back("state", name_of(state));
    out.gauge("redline_run_state", "1 for the state that the run is in.", all, state_of(run) == state);
  }
  out.gauge("redline_run_ranks", "Processes that train together.", labels, static_cast<double>(info.ranks));
}

void add_steps(Exposition& out, const Run& run, const Labels& labels) {
  const Steps& steps = run.steps;
  out.gauge("redline_planned_steps", "Steps planned.", labels, static_cast<double>(run.info.total_steps));
  out.counter("redline_steps_total", "Steps done.", labels, steps.size() == 0 ? 0 : steps.step.back());
  out.counter("redline_images_total", "Images trained on.", labels, sum_of(steps.samples));
  out.counter("redline_skipped_steps_total", "Steps skipped because a gradient was not finite.", labels,
              static_cast<double>(steps.skipped));
  for (const TimeShare& share : kTimeShares) {
    Labels all = labels;
    if (share.gap != nullptr) all.emplace_back("cause", share.name);
    out.counter(share.gap == nullptr ? "redline_step_seconds_total" : "redline_gap_seconds_total",
                share.gap == nullptr ? "Time in which the device worked on steps."
                                     : "Time between steps, by what the device waited for.",
                all, total_seconds(run, share));
  }
  if (steps.size() == 0) return;
  const std::vector<std::size_t> timed = timed_steps(run);
  double seconds = 0, images = 0;
  for (std::size_t i = timed.size() - std::min(kRecentSteps, timed.size()); i < timed.size(); ++i) {
    if (!(steps.samples[timed[i]] > 0)) continue;
    seconds += training_seconds(steps, timed[i]);
    images += steps.samples[timed[i]];
  }
  if (seconds > 0)
    out.gauge("redline_images_per_second",
              "Images per second over the last 100 steps, without warm-up steps and evaluations.", labels,
              images / seconds);
  out.gauge("redline_epoch", "Epoch of the last step, from 0.", labels, last_of(steps.epoch));
  out.gauge("redline_train_loss", "Training loss of the last step.", labels, last_of(steps.loss));
  out.gauge("redline_train_top1_ratio", "Training top-1 accuracy of the last step.", labels,
            last_of(steps.top1));
  out.gauge("redline_learning_rate", "Learning rate of the last step.", labels, last_of(steps.learning_rate));
  out.gauge("redline_gradient_norm", "Gradient norm of the last step.", labels, last_of(steps.gradient_norm));
  out.gauge("redline_loss_scale", "Loss scale of the last step.", labels, last_of(steps.loss_scale));
}

void add_records(Exposition& out, const Run& run, const Labels& labels) {
  std::map<std::string, const metrics::Evaluation*> last;  // by the weights evaluated
  for (const metrics::Evaluation& evaluation : run.evaluations) last[evaluation.weights] = &evaluation;
  for (const auto& [weights, evaluation] : last) {
    Labels all = labels;
    all.emplace_back("weights", weights);
    out.gauge("redline_validation_top1_ratio", "Top-1 accuracy of the last evaluation.", all,
              evaluation->top1);
    out.gauge("redline_validation_top5_ratio", "Top-5 accuracy of the last evaluation.", all,
              evaluation->top5);
    out.gauge("redline_validation_loss", "Loss of the last evaluation.", all, evaluation->loss);
  }
  out.counter("redline_checkpoints_total", "Checkpoints written.", labels,
              static_cast<double>(std::ranges::count_if(
                  run.checkpoints, [](const auto& checkpoint) { return checkpoint.error.empty(); })));
  out.counter("redline_failed_checkpoints_total", "Checkpoints that could not be written.", labels,
              static_cast<double>(std::ranges::count_if(
                  run.checkpoints, [](const auto& checkpoint) { return !checkpoint.error.empty(); })));
  out.counter("redline_notices_total", "Warnings of the run, such as loss spikes.", labels,
              static_cast<double>(run.notices.size()));
}

struct Sensor {
  const char* column;
  const char* name;
  const char* help;
  double scale;
};
constexpr Sensor kSensors[] = {
    {"gpu_power_mw", "redline_gpu_power_watts", "Power of the GPU.", 1e-3},
    {"gpu_temperature_c", "redline_gpu_temperature_celsius", "Temperature of the GPU.", 1},
    {"gpu_sm_clock_mhz", "redline_gpu_clock_hertz", "Clock of the GPU's multiprocessors.", 1e6},
    {"gpu_use_pct", "redline_gpu_use_ratio", "Share of time in which the GPU had work.", 1e-2},
    {"gpu_memory_used_bytes", "redline_gpu_memory_used_bytes", "GPU memory in use.", 1},
    {"cpu_power_mw", "redline_cpu_power_watts", "Power of the CPU.", 1e-3},
    {"cpu_use", "redline_cpu_busy_cores", "Processors kept busy.", 1},
    {"memory_resident_bytes", "redline_memory_resident_bytes", "Main memory of the process.", 1},
};

void add_telemetry(Exposition& out, const Run& run, const Labels& labels) {
  for (const Telemetry& telemetry : run.telemetry) {
    Labels all = labels;
    all.emplace_back("source", telemetry.source);
    all.emplace_back("rank", telemetry.rank);
    all.emplace_back("host", telemetry.host);
    all.emplace_back("device", telemetry.device);
    for (const Sensor& sensor : kSensors) {
      const Telemetry::Column* column = telemetry.column(sensor.column);
      if (column != nullptr && !column->values.empty())
        out.gauge(sensor.name, sensor.help, all, sensor.scale * static_cast<double>(column->values.back()));
    }
  }
}

}  // namespace

std::string prometheus_text(const std::vector<const Run*>& runs) {
  Exposition out;
  std::map<std::string, int> names;
  for (const Run* run : runs) ++names[run->name];
  std::set<std::string> written;
  for (const Run* run : runs) {
    const std::string label = names[run->name] > 1 ? run->folder.string() : run->name;
    if (!written.insert(label).second) continue;  // a folder given twice
    const Labels labels = {{"run", label}};
    add_state(out, *run, labels);
    add_steps(out, *run, labels);
    add_records(out, *run, labels);
    add_telemetry(out, *run, labels);
  }
  return out.text();
}

}  // namespace redline::report
