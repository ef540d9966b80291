// redline bench ab: which of two training commands is faster.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/live_line.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/quantity.h"
#include "base/signals.h"
#include "bench/ab.h"
#include "cli/bench.h"
#include "cli/bench_ab_side.h"
#include "cli/command.h"
#include "report/comparison.h"
#include "train/interval.h"

namespace redline::cli {
namespace {

namespace fs = std::filesystem;
using bench::Side;

constexpr std::int64_t kPilotSteps = 5;  // timed in the first run of each side
constexpr std::int64_t kFewestSteps = 10, kMostSteps = 100'000;
constexpr double kMuchElse = 0.1;  // of a core, used by other processes: worth reporting

struct AbFlags {
  std::string precision = "1%", margin, time = "5m", run_time = "5s", data = "synthetic", json;
  std::array<std::string, 2> binaries;
  std::int64_t warmup = 5;
  std::uint64_t order_seed = 0;
  CLI::Option* order_seed_option = nullptr;
};

// The command line after `bench ab`, cut at each --.
struct Words {
  std::vector<std::string> common, a, b;
};

Words split(const std::vector<std::string>& arguments, CLI::App& command) {
  const auto group = std::ranges::find(arguments, "bench");
  auto at = std::find(group, arguments.end(), command.get_name());
  check(at != arguments.end(), "the command line of bench ab does not contain it");
  Words words;
  for (++at; at != arguments.end() && *at != "--"; ++at) {
    const CLI::Option* own = command.get_option_no_throw(at->substr(0, at->find('=')));
    if (own == nullptr) {
      words.common.push_back(*at);
    } else if (own->get_expected_min() > 0 && at->find('=') == at->npos && std::next(at) != arguments.end()) {
      ++at;  // skip its value
    }
  }
  std::vector<std::string>* side = nullptr;
  int marks = 0;
  for (; at != arguments.end(); ++at) {
    if (*at == "--") {
      side = ++marks == 1 ? &words.a : &words.b;
    } else {
      side->push_back(*at);
    }
  }
  if (marks != 2)
    throw UsageError(
        "bench ab takes two lists of options, each after a --: redline bench ab -- --dtype fp32 -- --dtype "
        "bf16");
  return words;
}

// "1%"
double parse_percent(const std::string& text, const char* flag) {
  char* rest = nullptr;
  const double number = std::strtod(text.c_str(), &rest);
  if (rest == text.c_str() || std::string_view(rest) != "%" || !std::isfinite(number))
    throw UsageError("{} '{}' is not a percentage: write 1% or 0.5%", flag, text);
  return number / 100;
}

double parse_seconds(const std::string& text, const char* flag) {
  std::optional<train::Interval> interval;
  try {
    interval = train::parse_interval(text, flag);
  } catch (const UsageError&) {  // it would suggest steps and epochs
  }
  if (!interval || interval->unit != train::Interval::Unit::seconds)
    throw UsageError("{} '{}' is not a whole number of seconds, minutes or hours: write 90s, 5m or 1h", flag,
                     text);
  return static_cast<double>(interval->count);
}

// A folder that is removed with this object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "redline-ab-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      throw IoError("cannot create a folder in {}: {}; set TMPDIR to another place",
                    fs::temp_directory_path().string(), std::generic_category().message(errno));
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

struct Measured {
  std::size_t pair = 0;  // from 0
  Side side = Side::a;
  SideRun run;
};

// The request and its results.
struct Study {
  bench::AbOptions options;
  std::array<SideCommand, 2> sides;
  std::array<std::optional<std::int64_t>, 2> steps;  // per run, warm-up included
  std::vector<report::Difference> differences;
  std::vector<Measured> runs;
  bool same_batch = true;
  bench::AbResult result;               // of images over time
  std::optional<bench::AbResult> step;  // of steps per second, for the same pairs at the same confidence
  bench::AbEnd end = bench::AbEnd::stopped;
  double seconds = 0;
};

std::size_t index(Side side) { return static_cast<std::size_t>(side); }

std::vector<double> values(const Study& study, Side side, double (*of)(const SideRun&)) {
  std::vector<double> found;
  for (std::size_t i = 0; i < study.runs.size(); ++i)
    if (study.runs[i].side == side && study.runs[i].pair < study.result.pairs)
      found.push_back(of(study.runs[i].run));
  return found;
}

double speed(const SideRun& run) { return run.images_per_second; }
double step_rate(const SideRun& run) { return 1 / run.step_seconds; }

// The first run of each side warms the machine up and shows how many steps a run needs and which settings
// differ. False when stopped.
bool pilot(Study& study, const AbFlags& flags, const SideOptions& base, const StopSignals& signals) {
  const double run_seconds = parse_seconds(flags.run_time, "--run-time");
  std::array<report::Run, 2> records;
  for (const Side side : {Side::a, Side::b}) {
    SideOptions options = base;
    options.steps = flags.warmup + kPilotSteps;
    const auto run = run_side(side, study.sides[index(side)], options, signals.flag(), &records[index(side)]);
    if (!run) return false;
    const double steps =
        std::ceil(run_seconds * run->images_per_second /
                  std::max<double>(1, static_cast<double>(records[index(side)].info.batch_size *
                                                          records[index(side)].info.accumulate)));
    if (!study.sides[index(side)].sets_length)
      study.steps[index(side)] =
          flags.warmup + static_cast<std::int64_t>(std::clamp(steps, static_cast<double>(kFewestSteps),
                                                              static_cast<double>(kMostSteps)));
  }
  study.differences = report::differences({&records[0], &records[1]});
  const auto images = [](const report::Run& run) {
    return run.info.batch_size * run.info.accumulate * run.info.ranks;
  };
  study.same_batch = images(records[0]) == images(records[1]);
  return true;
}

void measure(Study& study, const AbFlags& flags, const fs::path& folder, const StopSignals& signals) {
  SideOptions options{folder, {}, flags.warmup};
  LiveLine line(stderr);
  const bool terminal = ::isatty(STDERR_FILENO) == 1 && log_shown(LogKind::info);
  const auto show = [&](const std::string& text) {
    if (terminal)
      line.draw(text);
    else
      log_info("{}", text);
  };
  show("first run of each side, not counted");
  const Stopwatch watch;
  if (!pilot(study, flags, options, signals)) return;
  line.clear();
  for (const report::Difference& difference : study.differences)
    fmt::print("differs: {}: {} | {}\n", difference.name, difference.values[0], difference.values[1]);
  std::fflush(stdout);
  bench::AbExperiment experiment(study.options);
  study.end = bench::run_experiment(
      experiment, study.options,
      [&](Side side) -> std::optional<double> {
        options.steps = study.steps[index(side)];
        const auto run = run_side(side, study.sides[index(side)], options, signals.flag());
        if (!run) return {};
        study.runs.push_back({experiment.pairs(), side, *run});
        return run->images_per_second;
      },
      [&] { return watch.seconds(); },
      [&](const bench::AbExperiment& now) {
        // Shows only the width: people who see the change might stop when they like it.
        const auto& look = now.last_look();
        show(
            fmt::format("{} pair{} in {} of {}{}", now.pairs(), now.pairs() == 1 ? "" : "s",
                        format_duration(watch.seconds()), format_duration(study.options.seconds),
                        look && look->interval.coverage > 0
                            ? fmt::format(", +-{:.2f}% after {} pairs", 100 * look->half_width(), look->pairs)
                            : ""));
      });
  study.seconds = watch.seconds();
  study.result = experiment.result();
  if (study.same_batch && study.result.interval.coverage > 0)
    study.step = bench::judge(values(study, Side::a, step_rate), values(study, Side::b, step_rate),
                              1 - study.result.interval.coverage, study.options.margin);
}

std::string percent(double part) { return format_signed(100 * part, 2) + "%"; }

std::string interval_text(const ConfidenceInterval& interval) {
  return fmt::format("{} to {}", percent(interval.low), percent(interval.high));
}

void print_sides(const Study& study) {
  fmt::print("\n{:<4} {:>12} {:>14} {:>10}\n", "", "images/s", "median step", "start-up");
  for (const Side side : {Side::a, Side::b}) {
    const auto of = [&](double (*value)(const SideRun&)) { return median(values(study, side, value)); };
    fmt::print("{:<4} {:>12.2f} {:>11.3f} ms {:>8.2f} s\n", letter(side), of(speed), 1e3 / of(step_rate),
               of([](const SideRun& run) { return run.startup_seconds; }));
  }
}

void print_disturbance(const Study& study) {
  double cores = 0, steal = 0;
  std::size_t noticed = 0;
  std::string example;
  for (const Measured& run : study.runs) {
    cores = std::max(cores, run.run.disturbance.other_cores.value_or(0));
    steal = std::max(steal, run.run.disturbance.steal.value_or(0));
    if (run.run.notices.empty()) continue;
    ++noticed;
    example = run.run.notices.front();
  }
  if (noticed > 0) fmt::print("noticed in {} of {} runs, last: {}\n", noticed, study.runs.size(), example);
  if (cores < kMuchElse && steal < 0.01) return;
  fmt::print("disturbed: other processes kept up to {:.1f} of {} cores busy", cores,
             inspect_machine().cores_total);
  if (steal >= 0.01) fmt::print(", {:.0f}% of the processors' time went to other machines", 100 * steal);
  fmt::print("\n");
}

std::string verdict_text(const Study& study) {
  const bench::AbResult& result = study.result;
  const double margin = 100 * study.options.margin;
  switch (result.verdict) {
    case bench::Verdict::faster:
      return "B is faster than A";
    case bench::Verdict::slower:
      return "B is slower than A";
    case bench::Verdict::same:
      return fmt::format("same: any change is within +-{:g}%", margin);
    case bench::Verdict::undecided:
      break;
  }
  if (result.interval.coverage <= 0)
    return fmt::format("undecided: {} pair{} too few to tell; raise --time", result.pairs,
                       result.pairs == 1 ? " is" : "s are");
  return fmt::format("undecided: both no change and a change of more than {:g}% are possible; raise --time",
                     margin);
}

void print(const Study& study) {
  if (study.result.pairs == 0) {
    fmt::print("no pair was measured\n");
    return;
  }
  print_sides(study);
  print_disturbance(study);
  const bench::AbResult& result = study.result;
  const char* why = study.end == bench::AbEnd::precise ? "as precise as requested"
                    : study.end == bench::AbEnd::time  ? "the time is up"
                                                       : "stopped";
  fmt::print("{} pair{} in {}: {}\n", result.pairs, result.pairs == 1 ? "" : "s",
             format_duration(study.seconds), why);
  fmt::print("images/s of B against A: {}", percent(result.change));
  if (result.interval.coverage > 0) fmt::print(", 95% interval {}", interval_text(result.interval));
  fmt::print("\n");
  if (study.step && study.step->interval.coverage > 0)
    fmt::print("steps/s by the median step: {}, {}\n", percent(study.step->change),
               interval_text(study.step->interval));
  fmt::print("{}\n", verdict_text(study));
}

nlohmann::ordered_json json_of(const bench::AbResult& result) {
  nlohmann::ordered_json json = {{"change", result.change}, {"interval", nullptr}};
  if (result.interval.coverage > 0)
    json["interval"] = {
        {"low", result.interval.low}, {"high", result.interval.high}, {"coverage", result.interval.coverage}};
  return json;
}

nlohmann::ordered_json record_of(const Study& study, const AbFlags& flags, int signal) {
  nlohmann::ordered_json json = bench_record("bench ab");
  json["design"] = {
      {"pairs", "one run of each side, their order by a fair coin"},
      {"test", "Wilcoxon's signed ranks of log ratios of images/s"},
      {"stopping",
       "at looks after 8, 12, 18, 27, … pairs, when the interval is as narrow as asked; each look spends a "
       "third of what is left of 5% error, the end all of it"},
      {"precision", study.options.precision},
      {"margin", study.options.margin},
      {"time", study.options.seconds},
      {"warmup", flags.warmup},
      {"order_seed", study.options.seed}};
  for (const Side side : {Side::a, Side::b}) {
    const SideCommand& command = study.sides[index(side)];
    nlohmann::ordered_json environment = nlohmann::ordered_json::object();
    for (const auto& [name, value] : command.environment) environment[name] = value;
    const auto& steps = study.steps[index(side)];
    json[side == Side::a ? "a" : "b"] = {{"command", command.text()},
                                         {"environment", std::move(environment)},
                                         {"steps", steps ? nlohmann::ordered_json(*steps) : nullptr}};
  }
  json["differences"] = nlohmann::ordered_json::array();
  for (const report::Difference& difference : study.differences)
    json["differences"].push_back(
        {{"name", difference.name}, {"a", difference.values[0]}, {"b", difference.values[1]}});
  json["runs"] = nlohmann::ordered_json::array();
  for (const Measured& run : study.runs) {
    nlohmann::ordered_json row = {{"pair", run.pair + 1}, {"side", run.side == Side::a ? "a" : "b"}};
    row.update(to_json(run.run));
    json["runs"].push_back(std::move(row));
  }
  json["pairs"] = study.result.pairs;
  json["seconds"] = study.seconds;
  json["ended"] = name_of(study.end);
  if (signal != 0) json["signal"] = signal;
  json["images_per_second"] = json_of(study.result);
  if (study.step) json["steps_per_second"] = json_of(*study.step);
  json["verdict"] = name_of(study.result.verdict);
  return json;
}

int run_ab(const AbFlags& flags, CLI::App& command, const Context& context) {
  require_optimised_build();
  const Words words = split(context.arguments, command);
  Study study;
  study.options.precision = parse_percent(flags.precision, "--precision");
  study.options.margin =
      flags.margin.empty() ? 2 * study.options.precision : parse_percent(flags.margin, "--margin");
  study.options.seconds = parse_seconds(flags.time, "--time");
  study.options.seed = flags.order_seed_option->count() > 0 ? flags.order_seed : std::random_device{}();
  if (flags.warmup < 0) throw UsageError("--warmup {} is negative", flags.warmup);
  parse_seconds(flags.run_time, "--run-time");
  bench::validate(study.options);
  study.sides = {parse_side(Side::a, flags.binaries[0], flags.data, words.common, words.a),
                 parse_side(Side::b, flags.binaries[1], flags.data, words.common, words.b)};
  ResultFile json(flags.json);
  for (const Side side : {Side::a, Side::b})
    fmt::print("{}  {}\n", letter(side), study.sides[index(side)].text());
  std::fflush(stdout);
  const TemporaryFolder folder;
  const StopSignals signals;
  measure(study, flags, folder.path(), signals);
  print(study);
  json.write(record_of(study, flags, signals.signal()));
  return signals.requested() ? kSignalExit + signals.signal() : 0;
}

}  // namespace

void add_bench_ab(CLI::App& group, Context& context) {
  CLI::App& command = add_command(
      group, "ab",
      "Find out which of two commands is faster, in pairs of short runs: common options, then -- A's -- B's",
      {"redline bench ab -b 64 -- --dtype fp32 -- --dtype bf16", "redline bench ab --time 2m -- --no-fuse --",
       "redline bench ab --model resnet18 --binary-a before/redline --binary-b after/redline -- --",
       "redline bench ab --data imagenet --precision 0.5% --time 20m -- -j 8 -- -j 16",
       "redline bench ab -- -- OMP_PROC_BIND=close --threads 8"});
  // Options of train may come before the first --: they apply to both sides and are not checked here.
  command.allow_extras();
  command.fallthrough(false);
  context.read_rest.push_back({"bench", "ab"});
  const auto flags = std::make_shared<AbFlags>();
  command.add_option("--precision", flags->precision, "End when the 95% interval of the change is +- this")
      ->capture_default_str()
      ->type_name("X%");
  command
      .add_option("--margin", flags->margin,
                  "Call it 'same' if the interval lies within +- this (default: twice the precision)")
      ->type_name("X%");
  command.add_option("--time", flags->time, "End after this time: 90s, 5m, 1h")->capture_default_str();
  command.add_option("--run-time", flags->run_time, "Length of a run without --steps or --epochs")
      ->capture_default_str();
  command.add_option("--warmup", flags->warmup, "Steps at the start of each run that are not timed")
      ->capture_default_str();
  command.add_option("--data", flags->data, "A data set, or synthetic")->capture_default_str();
  command.add_option("--binary-a", flags->binaries[0], "Program of side A (default: this one)")
      ->type_name("PATH");
  command.add_option("--binary-b", flags->binaries[1], "Program of side B (default: this one)")
      ->type_name("PATH");
  command.add_option("--json", flags->json, "Also write the result, with every run, to this file")
      ->type_name("FILE");
  flags->order_seed_option = command.add_option("--order-seed", flags->order_seed,
                                                "Seed of the coin flips that decide which side goes first");
  on_run(command, context, [flags, &command, &context] { return run_ab(*flags, command, context); });
}

}  // namespace redline::cli
