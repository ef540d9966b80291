#include "report/run.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/error.h"
#include "report/line_follower.h"
#include "report/metrics_lines.h"
#include "train/config_file.h"

namespace redline::report {
namespace fs = std::filesystem;
namespace {

constexpr std::uintmax_t kLargestConfig = std::uintmax_t{1} << 20;
constexpr std::uintmax_t kLargestSummary = std::uintmax_t{4} << 20;
constexpr std::size_t kMostTelemetryFiles = 64;

// A small file that is reread when it changes.
struct Watched {
  fs::path path;
  std::uintmax_t size = 0;
  fs::file_time_type time{};
  bool there = false;

  bool changed() {
    std::error_code error;
    const bool found = fs::is_regular_file(path, error);
    const std::uintmax_t new_size = found ? fs::file_size(path, error) : 0;
    const fs::file_time_type new_time = found ? fs::last_write_time(path, error) : fs::file_time_type{};
    const bool differs = found != there || new_size != size || new_time != time;
    there = found;
    size = new_size;
    time = new_time;
    return differs;
  }
};

void read_config(const Watched& file, Run& run, std::vector<std::string>& problems) {
  run.facts.clear();
  run.options.clear();
  problems.clear();
  constexpr std::string_view kRecord = "record.";
  try {
    if (!file.there) throw DataError("config.toml is missing: machine and options are unknown");
    if (file.size > kLargestConfig)
      throw DataError("config.toml has {} bytes, too large for a configuration", file.size);
    for (auto& [key, value] : train::list_values(read_file(file.path), "config.toml")) {
      if (key.starts_with(kRecord)) {
        run.facts.emplace_back(key.substr(kRecord.size()), value);
      } else {
        run.options.emplace_back(key, value);
      }
    }
  } catch (const Error& error) {
    problems.emplace_back(error.what());
  }
}

void read_profile(const Watched& file, Run& run, std::vector<std::string>& problems) {
  run.profile.reset();
  problems.clear();
  if (!file.there) return;
  try {
    const std::string name = "profile/" + file.path.filename().string();
    if (file.size > kLargestSummary) throw DataError("{} has {} bytes: too large to show", name, file.size);
    const auto json = nlohmann::ordered_json::parse(read_file(file.path), nullptr, false);
    if (!json.is_object()) throw DataError("{} is damaged: not a JSON object", name);
    run.profile = Profile{name, json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)};
  } catch (const Error& error) {
    problems.emplace_back(error.what());
  }
}

// "telemetry.csv", and "telemetry-rank1.csv" and so on for other ranks.
std::vector<fs::path> telemetry_files(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("telemetry") && name.ends_with(".csv")) found.push_back(entry.path());
  }
  std::ranges::sort(found, {}, [](const fs::path& path) {  // rank 10 comes after rank 9
    return std::pair(path.native().size(), path.native());
  });
  if (found.size() > kMostTelemetryFiles) found.resize(kMostTelemetryFiles);
  return found;
}

}  // namespace

std::string Run::fact(const std::string& key) const {
  const auto found = std::ranges::find(facts, key, &Pairs::value_type::first);
  return found == facts.end() ? "" : found->second;
}

struct RunReader::Parts {
  Run run;
  MetricsLines lines{run};
  LineFollower metrics;
  Watched config, summary;
  std::vector<std::pair<fs::path, LineFollower>> samples;  // the files of run.telemetry
  std::vector<std::string> config_problems, profile_problems;

  explicit Parts(const fs::path& folder) : metrics(folder / "metrics.jsonl") {
    run.folder = folder;
    config.path = folder / "config.toml";
    summary.path = folder / "profile" / "summary.json";
  }

  bool read_telemetry() {
    bool changed = false;
    for (const fs::path& path : telemetry_files(run.folder / "profile")) {
      if (std::ranges::find(samples, path, &std::pair<fs::path, LineFollower>::first) != samples.end())
        continue;
      samples.emplace_back(path, LineFollower(path));
      run.telemetry.emplace_back().source = path.filename().string();
    }
    for (std::size_t i = 0; i < samples.size(); ++i) {
      Telemetry& telemetry = run.telemetry[i];
      changed |= samples[i].second.read([&] { telemetry.clear(); },
                                        [&](std::string_view line) { telemetry.add_line(line); });
    }
    return changed;
  }

  void list_problems() {
    run.problems = lines.problems();
    run.problems.insert(run.problems.end(), config_problems.begin(), config_problems.end());
    run.problems.insert(run.problems.end(), profile_problems.begin(), profile_problems.end());
    if (run.end && metrics.unfinished() > 0)
      run.problems.emplace_back("metrics.jsonl ends in the middle of a line, which was skipped");
    for (const Telemetry& telemetry : run.telemetry) {
      if (telemetry.damaged > 0)
        run.problems.push_back(
            fmt::format("profile/{}: damaged lines skipped: {}", telemetry.source, telemetry.damaged));
    }
  }
};

bool is_run_folder(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "metrics.jsonl", ignored) || fs::exists(folder / "config.toml", ignored);
}

RunReader::RunReader(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored))
    throw UsageError("{} is not a run folder: it does not exist", folder.string());
  if (!is_run_folder(folder)) {
    std::string inside;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
      if (is_run_folder(entry.path())) inside = std::max(inside, entry.path().string());
    throw UsageError("{} is not a run folder: it has neither metrics.jsonl nor config.toml{}",
                     folder.string(),
                     inside.empty() ? "" : fmt::format("; it contains runs, such as {}", inside));
  }
  parts_ = std::make_unique<Parts>(folder);
  fs::path normal = fs::absolute(folder).lexically_normal();
  if (normal.filename().empty()) normal = normal.parent_path();
  parts_->run.name = normal.filename().string();
}

RunReader::~RunReader() = default;
RunReader::RunReader(RunReader&&) noexcept = default;

const Run& RunReader::run() const { return parts_->run; }
Run RunReader::take() && { return std::move(parts_->run); }

bool RunReader::update() {
  Parts& parts = *parts_;
  bool changed = parts.metrics.read([&] { parts.lines.restart(); },
                                    [&](std::string_view line) { parts.lines.add(line); });
  if (parts.config.changed() || (!parts.config.there && parts.config_problems.empty())) {
    read_config(parts.config, parts.run, parts.config_problems);
    changed = true;
  }
  if (parts.summary.changed()) {
    read_profile(parts.summary, parts.run, parts.profile_problems);
    changed = true;
  }
  changed |= parts.read_telemetry();
  parts.list_problems();
  return changed;
}

Run read_run(const fs::path& folder) {
  RunReader reader(folder);
  reader.update();
  return std::move(reader).take();
}

std::vector<std::size_t> timed_steps(const Run& run) {
  const Steps& steps = run.steps;
  std::vector<std::size_t> timed;
  timed.reserve(steps.size());
  auto begin = steps.begins.begin();
  for (std::size_t i = 0; i < steps.size(); ++i) {
    while (begin != steps.begins.end() && *begin < i) ++begin;
    const bool warms_up = i == 0 || (begin != steps.begins.end() && *begin == i);
    if (!warms_up && std::isfinite(steps.seconds[i]) && steps.seconds[i] > 0) timed.push_back(i);
  }
  return timed;
}

std::vector<double> step_seconds(const Run& run) {
  std::vector<double> times;
  for (std::size_t i : timed_steps(run)) times.push_back(run.steps.seconds[i]);
  return times;
}

double training_seconds(const Steps& steps, std::size_t i) {
  const double gap = steps.gap_seconds[i] - steps.evaluation_seconds[i];
  return steps.seconds[i] + (std::isfinite(gap) ? std::max(0.0, gap) : 0);
}

double waiting_seconds(const Steps& steps, std::size_t i) {
  const double between = steps.exchange_seconds[i];
  return steps.communication_seconds[i] + (std::isfinite(between) ? between : 0);
}

std::string data_name(const metrics::RunInfo& info) {
  const std::filesystem::path path = std::filesystem::path(info.data).lexically_normal();
  const std::string name = (path.has_filename() ? path : path.parent_path()).filename().string();
  return name.empty() ? info.data : name;
}

}  // namespace redline::report
