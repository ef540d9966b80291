// Tables and JSON of a variability study, in and out.
#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "base/clock.h"
#include "base/error.h"
#include "report/csv.h"
#include "report/terminal.h"
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
                                     {"clock_mhz", "clock", &DeviceRun::clock_mhz},
                                     {"memory_clock_mhz", "memory_clock", &DeviceRun::memory_clock_mhz},
                                     {"temperature_c", "temperature", &DeviceRun::temperature_c},
                                     {"power_w", "power", &DeviceRun::power_w}};

double scale_of(const std::string& unit) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"W", 1}, {"mW", 1e-3}, {"MHz", 1}, {"GHz", 1e3}, {"C", 1}};
  for (const auto& [name, scale] : kUnits)
    if (name == unit) return scale;
  throw UsageError("--map: unknown unit '{}'; there are s, ms, us, W, mW, MHz, GHz, C", unit);
}

std::vector<std::string> known_words() {
  std::vector<std::string> words = {"duration"};
  for (const TextColumn& column : kTexts) words.emplace_back(column.word);
  for (const NumberColumn& column : kNumbers) words.emplace_back(column.word);
  return words;
}

// Where a column is in a table, and what its numbers are multiplied by.
struct Place {
  int column = -1;
  double scale = 1;
};

class Columns {
 public:
  Columns(const CsvTable& table, const ColumnMap& map, const std::string& file)
      : table_(table), map_(map), file_(file) {}

  // By the map, or else by our own name.
  Place find(const std::string& word, const std::string& own) const {
    const auto mapped = map_.find(word);
    if (mapped == map_.end()) return {table_.column(own), 1};
    Place place{table_.column(mapped->second), 1};
    // A column's name may have a colon in it itself.
    if (const std::size_t colon = mapped->second.rfind(':'); place.column < 0 && colon != std::string::npos) {
      place.column = table_.column(mapped->second.substr(0, colon));
      place.scale = scale_of(mapped->second.substr(colon + 1));
    }
    if (place.column < 0)
      throw UsageError("{}: no column '{}', which --map {} names; there are: {}", file_, mapped->second, word,
                       fmt::join(table_.header, ", "));
    return place;
  }

 private:
  const CsvTable& table_;
  const ColumnMap& map_;
  const std::string& file_;
};

double read_number(const CsvTable& table, std::size_t row, const Place& place, const std::string& file) {
  const std::string& cell = table.rows[row][static_cast<std::size_t>(place.column)];
  const double value = number_of(cell);
  if (std::isnan(value) && !cell.empty() && cell != "nan" && cell != "NA")
    throw DataError("{}:{}: '{}' in column '{}' is no number", file, table.lines[row], cell.substr(0, 40),
                    table.header[static_cast<std::size_t>(place.column)]);
  return value * place.scale;
}

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json box_json(const Whiskers& box) {
  return {{"q1", number(box.q1)},     {"median", number(box.median)},
          {"q3", number(box.q3)},     {"low", number(box.low)},
          {"high", number(box.high)}, {"variability", number(box.variability())}};
}

Json level_json(const Level& level) {
  Json groups = Json::array();
  for (const Group& group : level.groups) {
    groups.push_back({{"name", group.name},
                      {"node", group.node},
                      {"cabinet", group.cabinet},
                      {"runs", group.runs},
                      {"median_s", number(group.median)},
                      {"normalized", number(group.normalized)},
                      {"clock_mhz", number(group.clock_mhz)},
                      {"memory_clock_mhz", number(group.memory_clock_mhz)},
                      {"temperature_c", number(group.temperature_c)},
                      {"power_w", number(group.power_w)},
                      {"box", box_json(group.box)},
                      {"outlier", group.outlier},
                      {"outlier_runs", group.outlier_runs}});
  }
  return {{"box", box_json(level.box)}, {"groups", std::move(groups)}};
}

}  // namespace

ColumnMap parse_map(const std::string& text) {
  ColumnMap map;
  const std::vector<std::string> words = known_words();
  for (std::string_view entry : split_plain_row(text)) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos || equals + 1 == entry.size())
      throw UsageError("--map: '{}' is no name=column", entry);
    const std::string word(entry.substr(0, equals));
    if (std::ranges::find(words, word) == words.end())
      throw UsageError("--map: unknown name '{}'; there are {}", word, fmt::join(words, ", "));
    map[word] = std::string(entry.substr(equals + 1));
  }
  return map;
}

std::vector<DeviceRun> read_device_runs(const std::filesystem::path& csv, const ColumnMap& map) {
  const std::string file = csv.string();
  const CsvTable table = read_csv(csv);
  const Columns columns(table, map, file);
  const Place duration = columns.find("duration", "median_s"), device = columns.find("device", "device");
  if (duration.column < 0)
    throw UsageError(
        "{}: no column median_s; say which has the time of an iteration: --map duration=COLUMN:ms", file);
  if (device.column < 0)
    throw UsageError("{}: no column device; say which names it: --map device=COLUMN", file);
  std::vector<DeviceRun> runs;
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    DeviceRun run;
    for (const TextColumn& column : kTexts)
      if (const Place place = columns.find(column.word, column.name); place.column >= 0)
        run.*column.field = table.rows[row][static_cast<std::size_t>(place.column)];
    for (const NumberColumn& column : kNumbers) {
      const Place place = columns.find(column.word, column.name);
      run.*column.field =
          place.column >= 0 ? read_number(table, row, place, file) : std::numeric_limits<double>::quiet_NaN();
    }
    if (!map.contains("median")) run.median = read_number(table, row, duration, file);
    if (!(run.median > 0) || !std::isfinite(run.median))
      throw DataError("{}:{}: the time of an iteration must be a positive number", file, table.lines[row]);
    if (run.run.empty()) run.run = fmt::format("row {}", table.lines[row]);
    if (run.node.empty()) run.node = run.device;
    runs.push_back(std::move(run));
  }
  return runs;
}

std::string to_json(const Variability& variability) {
  const BuildInfo build = build_info();
  Json json = {{"schema", "redline.variability"},
               {"version", 1},
               {"program", {{"version", build.version}, {"commit", build.commit}}},
               {"generated", utc_timestamp()},
               {"problems", variability.problems},
               {"box", box_json(variability.box)},
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
  json["runs"] = Json::array();
  for (const DeviceRun& run : variability.runs) {
    Json row = Json::object();
    for (const TextColumn& column : kTexts) row[column.name] = run.*column.field;
    for (const NumberColumn& column : kNumbers) row[column.name] = number(run.*column.field);
    row["normalized"] = number(run.normalized);
    row["outlier"] = !variability.box.holds(run.normalized);
    json["runs"].push_back(std::move(row));
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string all_data_csv(const Variability& variability) {
  std::string text;
  for (const TextColumn& column : kTexts) text += fmt::format("{},", column.name);
  for (const NumberColumn& column : kNumbers) text += fmt::format("{},", column.name);
  text += "normalized,outlier\n";
  for (const DeviceRun& run : variability.runs) {
    for (const TextColumn& column : kTexts) text += csv_cell(run.*column.field) + ",";
    for (const NumberColumn& column : kNumbers) text += csv_cell(run.*column.field) + ",";
    text += fmt::format("{},{}\n", csv_cell(run.normalized), variability.box.holds(run.normalized) ? 0 : 1);
  }
  return text;
}

std::string aggregated_data_csv(const Variability& variability) {
  std::string text =
      "device,node,cabinet,runs,median_s,normalized,clock_mhz,memory_clock_mhz,temperature_c,power_w,outlier,"
      "outlier_runs\n";
  for (const Group& group : variability.devices.groups) {
    text += fmt::format("{},{},{},{}", csv_cell(group.name), csv_cell(group.node), csv_cell(group.cabinet),
                        group.runs);
    for (double value : {group.median, group.normalized, group.clock_mhz, group.memory_clock_mhz,
                         group.temperature_c, group.power_w})
      text += "," + csv_cell(value);
    text += fmt::format(",{},{}\n", group.outlier ? 1 : 0, group.outlier_runs);
  }
  return text;
}

std::string terminal_text(const Variability& variability) {
  const auto counted = [](std::size_t count, const char* what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
  };
  std::string text = fmt::format("{} on {} of {}\n", counted(variability.runs.size(), "run"),
                                 counted(variability.devices.groups.size(), "device"),
                                 counted(variability.nodes.groups.size(), "node"));
  const auto percent = [](const Whiskers& box) { return 100 * box.variability(); };
  text += fmt::format(
      "  variability   {:.2f}% over runs, {:.2f}% over devices (whisker to whisker, of the median)\n",
      percent(variability.box), percent(variability.devices.box));
  const auto put_level = [&](const char* name, const Level& level) {
    for (const Group& group : level.groups)
      if (group.outlier)
        text += fmt::format("  {:<14}{} {:+.2f}% of the median time\n", name, printable(group.name),
                            100 * (group.normalized - 1));
  };
  put_level("device", variability.devices);
  put_level("node", variability.nodes);
  put_level("cabinet", variability.cabinets);
  for (const Correlation& entry : variability.correlations) {
    if (std::isnan(entry.pearson)) {
      text += fmt::format("  {:<18}does not vary\n", entry.with);
      continue;
    }
    text += fmt::format("  {:<18}Pearson {:+.2f}", entry.with, entry.pearson);
    if (entry.interval.coverage > 0)
      text += fmt::format(" (95%: {:+.2f} to {:+.2f})", entry.interval.low, entry.interval.high);
    text += fmt::format(", Spearman {:+.2f}, {} runs\n", entry.spearman, entry.pairs);
  }
  for (const std::string& problem : variability.problems)
    text += fmt::format("  warning       {}\n", problem);
  return text;
}

}  // namespace redline::report
