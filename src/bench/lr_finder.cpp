#include "bench/lr_finder.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <stop_token>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/statistics.h"
#include "metrics/recorder.h"
#include "train/setup.h"
#include "train/trained_model.h"
#include "train/trainer.h"

namespace redline::bench {
namespace {

constexpr std::int64_t kFewestSteps = 20;
constexpr double kNoisePasses = 0.01;  // of sweeps in which the loss does not fall
constexpr int kBadInARow = 10;         // fewer are a loss scale that is still being found

// Steps on either side of one that its line is fitted to.
std::size_t reach_of(std::size_t count) { return std::max<std::size_t>(5, count / 10); }

// Collects the losses, and ends the sweep where they diverge.
class Losses final : public metrics::Sink {
 public:
  Losses(LrSweep& sweep, std::int64_t steps, const LrProgress& progress, std::atomic<bool>& stop)
      : sweep_(sweep), first_(std::max<std::int64_t>(5, steps / 20)), progress_(progress), stop_(stop) {}

  void step(const metrics::Step& step) override {
    if (stop_) return;  // steps that were under way
    bad_ = step.skipped ? bad_ + 1 : 0;
    if (!std::isfinite(step.loss) || bad_ >= kBadInARow) {
      end();
      return;
    }
    sweep_.points.push_back({step.learning_rate, step.loss});
    if (step.step <= first_) {
      began_ += step.loss / static_cast<double>(first_);
      running_ = began_;
    } else {
      running_ += (step.loss - running_) / static_cast<double>(first_);
      if (running_ > 2 * began_) end();
    }
    if (!progress_(step.step)) {
      sweep_.stopped = true;
      stop_ = true;
    }
  }

 private:
  void end() {
    sweep_.diverged = true;
    stop_ = true;
  }

  LrSweep& sweep_;
  std::int64_t first_;  // steps whose mean is what it began with
  const LrProgress& progress_;
  std::atomic<bool>& stop_;
  double began_ = 0, running_ = 0;
  int bad_ = 0;
};

train::Config config_of(const LrOptions& options) {
  train::Config config = options.config;
  config.schedule = {};
  config.schedule.steps = options.steps;
  config.run.max_bad_steps = options.steps + 1;
  config.run.target_accuracy = 0;
  config.run.patience = 0;
  return config;
}

train::Schedule schedule_of(const LrOptions& options) {
  train::Schedule schedule;  // step decay at every step, upwards
  schedule.peak = options.from;
  schedule.total_steps = options.steps;
  schedule.every = 1;
  schedule.gamma = std::pow(options.to / options.from, 1 / static_cast<double>(options.steps - 1));
  return schedule;
}

std::string rate_text(double rate) { return fmt::format("{:.2g}", rate); }

}  // namespace

void validate(const LrOptions& options) {
  if (!(options.from > 0) || !std::isfinite(options.to) || !(options.to / options.from >= 10))
    throw UsageError(
        "--from {} --to {}: the first must be above 0, and the second at least ten times as large",
        options.from, options.to);
  if (options.steps < kFewestSteps)
    throw UsageError("--steps {}: a sweep takes at least {}", options.steps, kFewestSteps);
  train::validate(config_of(options));
}

LrSweep sweep_rates(const LrOptions& options, const LrProgress& progress) {
  validate(options);
  const train::Setup setup = train::prepare(config_of(options), {}, options.stop);
  const train::Config& config = setup.config;
  LrSweep sweep;
  sweep.model = config.model.name;
  sweep.dtype = config.device.dtype;
  sweep.device = setup.backend->description();
  sweep.batch = images_per_step(config);
  sweep.scale = train::rate_scale(config);
  const auto batches = train::train_batches(setup);
  std::atomic<bool> stop = false;
  metrics::Recorder recorder;
  recorder.add(std::make_unique<Losses>(sweep, options.steps, progress, stop));
  const auto trainer = [&] {
    try {
      return std::make_unique<train::Trainer>(config, setup.plans, *setup.backend, *batches, nullptr,
                                              recorder);
    } catch (const OutOfMemoryError& error) {
      train::refuse_batch(setup, error.what());
    }
  }();
  if (!config.model.init.empty())
    log_info("{}", train::initialise_from(config.model.init, config.model.name, setup.class_names,
                                          trainer->state()));
  trainer->sweep(schedule_of(options));
  // The trainer knows one flag, which a diverging loss raises, too.
  const std::jthread hearing([&](const std::stop_token& over) {
    while (options.stop != nullptr && !over.stop_requested() && !stop) {
      if (options.stop->load()) stop = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  if (!trainer->run(stop) && !sweep.diverged) sweep.stopped = true;
  return sweep;
}

std::vector<LrFit> fit(const std::vector<LrPoint>& points) {
  const std::size_t count = points.size(), reach = reach_of(count);
  std::vector<LrFit> fits(count);
  for (std::size_t i = 0; i < count; ++i) {
    // At an end the line is that of the nearest step with neighbours on both sides.
    const std::size_t centre =
        count > 2 * reach ? std::clamp(i, reach, count - 1 - reach) : std::min(i, count / 2);
    const std::size_t begin = centre - std::min(centre, reach), end = std::min(count, centre + reach + 1);
    const auto n = static_cast<double>(end - begin);
    const auto x = [&](std::size_t j) { return std::log10(points[j].rate / points[i].rate); };
    double mean_x = 0, mean_y = 0, xx = 0, xy = 0, yy = 0;
    for (std::size_t j = begin; j < end; ++j) {
      mean_x += x(j) / n;
      mean_y += points[j].loss / n;
    }
    for (std::size_t j = begin; j < end; ++j) {
      const double dx = x(j) - mean_x, dy = points[j].loss - mean_y;
      xx += dx * dx;
      xy += dx * dy;
      yy += dy * dy;
    }
    LrFit& line = fits[i];
    line.slope = xx > 0 ? xy / xx : 0;
    line.smoothed = mean_y - line.slope * mean_x;
    if (centre != i || n < 2 * static_cast<double>(reach) + 1) continue;
    const double error = std::sqrt(std::max(0.0, yy - line.slope * xy) / (n - 2) / xx);
    line.t = error > 0 ? line.slope / error : line.slope * HUGE_VAL;
    if (std::isnan(line.t)) line.t = 0;  // all losses are the same
  }
  return fits;
}

LrSuggestion suggest(const LrSweep& sweep) {
  const std::vector<LrPoint>& points = sweep.points;
  const std::size_t reach = reach_of(points.size());
  LrSuggestion suggestion;
  const std::string lower = "the loss diverges before it falls: lower --from";
  if (points.size() <= 2 * reach) {
    suggestion.why_not = lower;
    return suggestion;
  }
  const std::vector<LrFit> fits = fit(points);
  const auto lowest =
      static_cast<std::size_t>(std::ranges::min_element(fits, {}, &LrFit::smoothed) - fits.begin());
  const std::size_t last = points.size() - 1 - reach;
  // Windows overlap, and each is counted as one more chance for noise to look like a fall.
  const double clear = student_quantile(1 - kNoisePasses / static_cast<double>(last - reach + 1),
                                        2 * static_cast<double>(reach) - 1);
  std::optional<std::size_t> steepest;
  for (std::size_t i = reach; i <= std::min(last, lowest); ++i)
    if (fits[i].t < -clear && (!steepest || fits[i].slope < fits[*steepest].slope)) steepest = i;
  if (!steepest) {
    suggestion.why_not = lowest < reach && sweep.diverged
                             ? lower
                             : "the loss does not fall by more than its noise: give more --steps or a larger "
                               "--batch-size, or look at the data";
  } else if (*steepest == reach) {
    suggestion.why_not = fmt::format("the loss falls fastest at the lowest rates, about {}: lower --from",
                                     rate_text(points[reach].rate));
  } else if (lowest > last && !sweep.diverged) {
    suggestion.why_not = "the loss still falls at the highest rates: raise --to";
  } else {
    suggestion.rate = points[*steepest].rate;
    suggestion.lowest = points[lowest].rate;
  }
  return suggestion;
}

Chart lr_chart(const LrSweep& sweep, const LrSuggestion& suggestion) {
  Chart chart{"loss by learning rate", "learning rate", "loss", {{"loss", {}}, {"smoothed", {}}}, false};
  const std::vector<LrFit> fits = fit(sweep.points);
  // What diverges would flatten the rest.
  const double most =
      fits.empty() ? 0 : 1.5 * std::max(fits.front().smoothed, fits[fits.size() / 2].smoothed);
  for (std::size_t i = 0; i < fits.size(); ++i) {
    const LrPoint& point = sweep.points[i];
    chart.series[0].points.emplace_back(point.rate, std::min(most, point.loss));
    chart.series[1].points.emplace_back(point.rate, std::clamp(fits[i].smoothed, 0.0, most));
    if (point.loss > most) chart.y_label = fmt::format("loss, cut at {:.3g}", most);
  }
  if (suggestion.rate) {
    chart.mark = *suggestion.rate;
    chart.title += fmt::format(", falling fastest at {}", rate_text(*suggestion.rate));
  }
  return chart;
}

std::string lr_csv(const LrSweep& sweep) {
  std::string text = "step,rate,loss,smoothed,slope\n";
  const std::vector<LrFit> fits = fit(sweep.points);
  for (std::size_t i = 0; i < fits.size(); ++i)
    text += fmt::format("{},{:.9g},{:.9g},{:.9g},{:.9g}\n", i + 1, sweep.points[i].rate, sweep.points[i].loss,
                        fits[i].smoothed, fits[i].slope);
  return text;
}

nlohmann::ordered_json lr_json(const LrSweep& sweep, const LrSuggestion& suggestion) {
  const auto or_null = [](const std::optional<double>& value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
  };
  nlohmann::ordered_json json = {{"device", sweep.device},
                                 {"model", sweep.model},
                                 {"dtype", sweep.dtype},
                                 {"images_per_step", sweep.batch},
                                 {"rate_scale", sweep.scale},
                                 {"diverged", sweep.diverged},
                                 {"suggested_rate", or_null(suggestion.rate)},
                                 {"lowest_loss_rate", or_null(suggestion.lowest)}};
  if (!suggestion.rate) json["why_not"] = suggestion.why_not;
  const std::vector<LrFit> fits = fit(sweep.points);
  json["points"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < fits.size(); ++i)
    json["points"].push_back({{"rate", sweep.points[i].rate},
                              {"loss", sweep.points[i].loss},
                              {"smoothed", fits[i].smoothed},
                              {"slope", fits[i].slope}});
  return json;
}

}  // namespace redline::bench
