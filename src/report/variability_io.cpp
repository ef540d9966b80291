// Tables and JSON of a variability study, in and out.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/quantity.h"
#include "base/statistics.h"
#include "report/csv.h"
#include "report/variability.h"

namespace redline::report {
namespace {

using Json = nlohmann::ordered_json;

// A column of all_data.csv: its name there, its short name in a map, and what it holds.
struct TextColumn {
  const char *name, *word;
  std::string DeviceRun::*field;
};
struct NumberColumn {
  const char *name, *word;
  double DeviceRun::*field;
};
constexpr TextColumn kTexts[] = {{"run", "run", &DeviceRun::run},
                                 {"device", "device", &DeviceRun::device},
                                 {"node", "node", &DeviceRun::node},
                                 {"cabinet", "cabinet", &DeviceRun::cabinet}};
constexpr NumberColumn kNumbers[] = {{"mean_s", "mean", &DeviceRun::mean},
                                     {"median_s", "median", &DeviceRun::median},
                                     {"min_s", "min", &DeviceRun::min},
                                     {"max_s", "max", &DeviceRun::max},
                                     {"deviation_s", "deviation", &DeviceRun::deviation},
                                     {"clock_mhz", "clock", &DeviceRun::clock_mhz},
                                     {"memory_clock_mhz", "memory_clock", &DeviceRun::memory_clock_mhz},
                                     {"temperature_c", "temperature", &DeviceRun::temperature_c},
                                     {"power_w", "power", &DeviceRun::power_w}};
// Columns of our own tables that a map cannot name.
constexpr TextColumn kOwnTexts[] = {{"change_cause", "", &DeviceRun::cause}};
constexpr NumberColumn kOwnNumbers[] = {{"together", "", &DeviceRun::together},
                                        {"change_at", "", &DeviceRun::change_at},
                                        {"change", "", &DeviceRun::change}};
constexpr const char* kThrottleColumn = "throttle";
constexpr const char* kSettings[] = {"model",      "data",          "classes", "image_size", "batch_size",
                                     "accumulate", "ranks",         "dtype",   "optimizer",  "device_kind",
                                     "version",    "deterministic", "no_fuse", "recompute"};

constexpr std::size_t kMostRuns = 1'000'000;

// The factor from a unit to that of our own column, which its name ends with: median_s, clock_mhz.
double scale_of(const std::string& unit, const std::string& word, std::string_view own) {
  struct Unit {
    std::string_view own, name;
    double scale;
  };
  constexpr Unit kUnits[] = {{"_s", "s", 1},        {"_s", "ms", 1e-3},   {"_s", "us", 1e-6},
                             {"_s", "ns", 1e-9},    {"_w", "W", 1},       {"_w", "mW", 1e-3},
                             {"_w", "kW", 1e3},     {"_mhz", "MHz", 1},   {"_mhz", "GHz", 1e3},
                             {"_mhz", "kHz", 1e-3}, {"_mhz", "Hz", 1e-6}, {"_c", "C", 1}};
  std::vector<std::string_view> known;
  for (const Unit& entry : kUnits) {
    if (!own.ends_with(entry.own)) continue;
    if (entry.name == unit) return entry.scale;
    known.push_back(entry.name);
  }
  throw UsageError("--map {}: unknown unit '{}'; {}", word, unit,
                   known.empty() ? "it has none" : fmt::format("units are {}", fmt::join(known, ", ")));
}

std::vector<std::string> known_words() {
  std::vector<std::string> words = {"duration"};
  for (const TextColumn& column : kTexts) words.emplace_back(column.word);
  for (const NumberColumn& column : kNumbers) words.emplace_back(column.word);
  return words;
}

// The index of a column in a table, and the factor of its unit.
struct Place {
  int column = -1;
  double scale = 1;
};

class Columns {
 public:
  Columns(const CsvTable& table, const ColumnMap& map, const std::string& file)
      : table_(table), map_(map), file_(file) {}

  // By the map, else by our own name.
  Place find(const std::string& word, const std::string& own) const {
    const auto mapped = map_.find(word);
    if (mapped == map_.end()) return {table_.column(own), 1};
    Place place{table_.column(mapped->second), 1};
    // A column's name may itself contain a colon.
    if (const std::size_t colon = mapped->second.rfind(':'); place.column < 0 && colon != std::string::npos) {
      place.column = table_.column(mapped->second.substr(0, colon));
      if (place.column >= 0) place.scale = scale_of(mapped->second.substr(colon + 1), word, own);
    }
    if (place.column < 0)
      throw UsageError("{}: no column '{}', given by --map {}; columns are: {}", file_, mapped->second, word,
                       fmt::join(table_.header, ", "));
    return place;
  }

 private:
  const CsvTable& table_;
  const ColumnMap& map_;
  const std::string& file_;
};

// Counts rows or cells that could not be used, and names the first.
class Skipped {
 public:
  void add(std::size_t line, const std::string& what) {
    constexpr std::size_t kNamed = 3;
    if (++count_ <= kNamed) first_.push_back(fmt::format("line {} ({})", line, what));
  }
  std::size_t count() const { return count_; }
  // "3 rows were skipped: line 2 (...), ..."
  std::string text(const char* one, const char* many) const {
    return fmt::format("{} {}: {}{}", count_, count_ == 1 ? one : many, fmt::join(first_, ", "),
                       count_ > first_.size() ? ", ..." : "");
  }

 private:
  std::size_t count_ = 0;
  std::vector<std::string> first_;
};

// Reads a table row by row.
class RowReader {
 public:
  RowReader(const CsvTable& table, const ColumnMap& map, const std::string& file)
      : table_(table), columns_(table, map, file) {
    duration_ = columns_.find(map.contains("median") ? "median" : "duration", "median_s");
    device_ = columns_.find("device", "device");
    if (duration_.column < 0)
      throw UsageError(
          "{}: no column median_s; name the one with the time of an iteration: --map duration=COLUMN:ms",
          file);
    if (device_.column < 0)
      throw UsageError("{}: no column device; name the one with the device: --map device=COLUMN", file);
    for (const TextColumn& column : kTexts) texts_.push_back(columns_.find(column.word, column.name));
    for (const NumberColumn& column : kNumbers) numbers_.push_back(columns_.find(column.word, column.name));
  }

  // Nothing for a row that cannot be used.
  std::optional<DeviceRun> read(std::size_t row) {
    DeviceRun run;
    for (std::size_t i = 0; i < texts_.size(); ++i) run.*kTexts[i].field = cell(row, texts_[i]);
    run.device = cell(row, device_);
    const std::string time = cell(row, duration_);
    const double seconds = table_.number(time) * duration_.scale;
    if (run.device.empty() || !(seconds > 0) || !std::isfinite(seconds)) {
      rows_.add(table_.lines[row], run.device.empty() ? "no device"
                                   : time.empty()     ? "no time"
                                                      : fmt::format("time '{}'", time.substr(0, 40)));
      return {};
    }
    for (std::size_t i = 0; i < numbers_.size(); ++i) run.*kNumbers[i].field = number(row, numbers_[i]);
    run.median = seconds;
    for (const NumberColumn& column : kOwnNumbers)
      run.*column.field = number(row, {table_.column(column.name), 1});
    if (!(run.together >= 1)) run.together = 1;
    // A change needs both values, and its place must be a fraction.
    if (!(run.change_at > 0 && run.change_at < 1 && run.change > -1)) run.change_at = run.change = kNaN;
    for (const TextColumn& column : kOwnTexts) run.*column.field = cell(row, {table_.column(column.name), 1});
    run.throttle = parse_throttle(cell(row, {table_.column(kThrottleColumn), 1}));
    for (const char* name : kSettings)
      if (const int column = table_.column(name); column >= 0)
        run.settings.emplace_back(name, cell(row, {column, 1}));
    if (run.run.empty()) run.run = fmt::format("row {}", table_.lines[row]);
    if (run.node.empty()) run.node = run.device;
    return run;
  }

  const Skipped& rows() const { return rows_; }
  const Skipped& cells() const { return cells_; }

 private:
  std::string cell(std::size_t row, const Place& place) const {
    return place.column < 0 ? "" : trimmed(table_.rows[row][static_cast<std::size_t>(place.column)]);
  }
  double number(std::size_t row, const Place& place) {
    const std::string text = cell(row, place);
    const double value = table_.number(text);
    if (!std::isfinite(value) && !text.empty() && text != "nan" && text != "NaN" && text != "NA" &&
        text != "N/A")
      cells_.add(table_.lines[row], fmt::format("'{}' in column '{}'", text.substr(0, 40),
                                                table_.header[static_cast<std::size_t>(place.column)]));
    return std::isfinite(value) ? value * place.scale : kNaN;
  }
  // "sw_power_cap 0.98|hw_thermal 0.4"
  static std::vector<Throttle> parse_throttle(std::string_view text) {
    std::vector<Throttle> list;
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('|'), text.size());
      const std::string_view entry = text.substr(0, end);
      const std::size_t space = std::min(entry.find(' '), entry.size());
      const double share = number_of(entry.substr(space));
      if (share > 0 && share <= 1) list.push_back({std::string(entry.substr(0, space)), share});
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    return list;
  }

  const CsvTable& table_;
  Columns columns_;
  Place duration_, device_;
  std::vector<Place> texts_, numbers_;
  Skipped rows_, cells_;
};

std::string throttle_cell(const std::vector<Throttle>& list) {
  std::vector<std::string> parts;
  for (const Throttle& entry : list) parts.push_back(fmt::format("{} {:.4g}", entry.reason, entry.share));
  return fmt::format("{}", fmt::join(parts, "|"));
}

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json box_json(const Whiskers& box) {
  return {{"q1", number(box.q1)},     {"median", number(box.median)},
          {"q3", number(box.q3)},     {"low", number(box.low)},
          {"high", number(box.high)}, {"variability", number(box.variability())}};
}

Json throttle_json(const std::vector<Throttle>& list) {
  Json array = Json::array();
  for (const Throttle& entry : list)
    array.push_back({{"reason", words_of(entry.reason)}, {"share", number(entry.share)}});
  return array;
}

Json level_json(const Level& level) {
  Json groups = Json::array();
  for (const Group& group : level.groups) {
    Json entry = {{"name", group.name},
                  {"node", group.node},
                  {"cabinet", group.cabinet},
                  {"runs", group.runs},
                  {"median_s", number(group.median)},
                  {"normalized", number(group.normalized)},
                  {"run_deviation", number(group.run_deviation)},
                  {"iteration_deviation", number(group.iteration_deviation)},
                  {"clock_mhz", number(group.clock_mhz)},
                  {"memory_clock_mhz", number(group.memory_clock_mhz)},
                  {"temperature_c", number(group.temperature_c)},
                  {"power_w", number(group.power_w)},
                  {"box", box_json(group.box)},
                  {"outlier", group.outlier},
                  {"p_value", level.tested ? number(group.p_value) : Json(nullptr)},
                  {"outlier_runs", group.outlier_runs},
                  {"changes", group.changes},
                  {"throttle", throttle_json(group.throttle)}};
    if (!group.kind.empty()) {
      entry["score"] = number(group.score);
      entry["class"] = group.kind;
      entry["why"] = group.why;
    }
    groups.push_back(std::move(entry));
  }
  return {{"tested", level.tested}, {"box", box_json(level.box)}, {"groups", std::move(groups)}};
}

Json run_json(const DeviceRun& run, const Variability& study) {
  Json row = Json::object();
  for (const TextColumn& column : kTexts) row[column.name] = run.*column.field;
  for (const NumberColumn& column : kNumbers) row[column.name] = number(run.*column.field);
  row["normalized"] = number(run.normalized);
  row["outlier"] = !study.box.holds(run.normalized);
  row["device"] = run.group;  // its name in "devices"
  row["throttle"] = throttle_json(run.throttle);
  if (std::isnan(run.change)) return row;
  Json times = Json::array();
  if (run.history)
    for (double time : run.history->stretches) times.push_back(number(time / run.median * run.normalized));
  row["change"] = {{"at", number(run.change_at)},
                   {"by", number(run.change)},
                   {"cause", run.cause},
                   {"over_time", std::move(times)}};
  return row;
}

}  // namespace

ColumnMap parse_map(const std::string& text) {
  ColumnMap map;
  const std::vector<std::string> words = known_words();
  for (std::string_view entry : split_plain_row(text)) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos || equals + 1 == entry.size())
      throw UsageError("--map: '{}' is not name=COLUMN", entry);
    const std::string word(entry.substr(0, equals));
    if (std::ranges::find(words, word) == words.end())
      throw UsageError("--map: unknown name '{}'; names are {}", word, fmt::join(words, ", "));
    map[word] = std::string(entry.substr(equals + 1));
  }
  return map;
}

std::vector<DeviceRun> read_device_runs(const std::filesystem::path& csv, const ColumnMap& map,
                                        std::vector<std::string>& problems) {
  const std::string file = csv.string();
  const CsvTable table = read_csv(csv);
  if (table.rows.size() > kMostRuns)
    throw DataError(
        "{}: {} rows are more than the {} runs of a study; a row is one run: take the median of its "
        "iterations first",
        file, format_grouped(static_cast<std::int64_t>(table.rows.size())),
        format_grouped(static_cast<std::int64_t>(kMostRuns)));
  RowReader reader(table, map, file);
  std::vector<DeviceRun> runs;
  for (std::size_t row = 0; row < table.rows.size(); ++row)
    if (std::optional<DeviceRun> run = reader.read(row)) runs.push_back(std::move(*run));
  if (runs.empty() && reader.rows().count() > 0)
    throw DataError("{}: {}; each needs a device and a time that is a positive number", file,
                    reader.rows().text("row, and it cannot be used", "rows, and none can be used"));
  if (reader.rows().count() > 0)
    problems.push_back(
        fmt::format("{}: {}", file, reader.rows().text("row was skipped", "rows were skipped")));
  if (reader.cells().count() > 0)
    problems.push_back(fmt::format("{}: {}", file,
                                   reader.cells().text("cell is not a number and counts as unknown",
                                                       "cells are not numbers and count as unknown")));
  return runs;
}

std::string to_json(const Variability& variability, std::size_t most_runs) {
  Json json = {{"schema", "redline.variability"},
               {"version", 2},
               {"program", program_facts()},
               {"generated", utc_timestamp()},
               {"problems", variability.problems},
               {"box", box_json(variability.box)},
               {"deviations",
                {{"iterations", number(variability.deviations.iterations)},
                 {"runs", number(variability.deviations.runs)},
                 {"devices", number(variability.deviations.devices)}}},
               {"devices", level_json(variability.devices)},
               {"nodes", level_json(variability.nodes)},
               {"cabinets", level_json(variability.cabinets)}};
  json["correlations"] = Json::array();
  for (const Correlation& entry : variability.correlations) {
    json["correlations"].push_back({{"with", entry.with},
                                    {"pairs", entry.pairs},
                                    {"pearson", number(entry.pearson)},
                                    {"spearman", number(entry.spearman)},
                                    {"low", number(entry.interval.low)},
                                    {"high", number(entry.interval.high)},
                                    {"coverage", entry.interval.coverage}});
  }
  const std::size_t count = variability.runs.size(), every = (count + most_runs - 1) / most_runs;
  json["run_count"] = count;
  // Runs are many: each is written as it is made.
  const auto text_of = [](const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  std::string text = text_of(json);
  text.back() = ',';
  text += "\"runs\":[";
  for (std::size_t i = 0; i < count; ++i) {
    const DeviceRun& run = variability.runs[i];
    if (i % every != 0 && !std::isfinite(run.change)) continue;
    if (text.back() == '}') text += ',';
    text += text_of(run_json(run, variability));
  }
  return text + "]}";
}

std::string all_data_csv(const Variability& variability) {
  std::vector<std::string> header;
  for (const TextColumn& column : kTexts) header.emplace_back(column.name);
  for (const NumberColumn& column : kNumbers) header.emplace_back(column.name);
  header.insert(header.end(), {"normalized", "outlier"});
  for (const NumberColumn& column : kOwnNumbers) header.emplace_back(column.name);
  for (const TextColumn& column : kOwnTexts) header.emplace_back(column.name);
  header.emplace_back(kThrottleColumn);
  header.insert(header.end(), std::begin(kSettings), std::end(kSettings));
  std::string text = fmt::format("{}\n", fmt::join(header, ","));
  for (const DeviceRun& run : variability.runs) {
    std::vector<std::string> row;
    for (const TextColumn& column : kTexts) row.push_back(csv_cell(run.*column.field));
    for (const NumberColumn& column : kNumbers) row.push_back(csv_cell(run.*column.field));
    row.push_back(csv_cell(run.normalized));
    row.emplace_back(variability.box.holds(run.normalized) ? "0" : "1");
    for (const NumberColumn& column : kOwnNumbers) row.push_back(csv_cell(run.*column.field));
    for (const TextColumn& column : kOwnTexts) row.push_back(csv_cell(run.*column.field));
    row.push_back(throttle_cell(run.throttle));
    for (const char* name : kSettings) {
      const auto found = std::ranges::find(run.settings, name, &Pairs::value_type::first);
      row.push_back(found == run.settings.end() ? "" : csv_cell(found->second));
    }
    text += fmt::format("{}\n", fmt::join(row, ","));
  }
  return text;
}

std::string aggregated_data_csv(const Variability& variability) {
  std::string text =
      "device,node,cabinet,runs,median_s,normalized,run_deviation,iteration_deviation,clock_mhz,"
      "memory_clock_mhz,temperature_c,power_w,outlier,outlier_runs,p_value,changes,throttle\n";
  for (const Group& group : variability.devices.groups) {
    text += fmt::format("{},{},{},{}", csv_cell(group.name), csv_cell(group.node), csv_cell(group.cabinet),
                        group.runs);
    for (double value : {group.median, group.normalized, group.run_deviation, group.iteration_deviation,
                         group.clock_mhz, group.memory_clock_mhz, group.temperature_c, group.power_w})
      text += "," + csv_cell(value);
    text += fmt::format(",{},{},{},{},{}\n", group.outlier ? 1 : 0, group.outlier_runs,
                        csv_cell(variability.devices.tested ? group.p_value : kNaN), group.changes,
                        throttle_cell(group.throttle));
  }
  return text;
}

std::string scores_csv(const Variability& variability) {
  std::string text = "device,node,cabinet,runs,score,class,why\n";
  for (const Group& device : variability.devices.groups)
    text +=
        fmt::format("{},{},{},{},{:.4f},{},{}\n", csv_cell(device.name), csv_cell(device.node),
                    csv_cell(device.cabinet), device.runs, device.score, device.kind, csv_cell(device.why));
  return text;
}

}  // namespace redline::report
