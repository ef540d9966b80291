// redline variability: how much devices of one kind differ.
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "cli/command.h"
#include "report/page.h"
#include "report/run.h"
#include "report/variability.h"

namespace redline::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostDrawn = 20'000;  // runs in the page: a browser can show these

struct VariabilityOptions {
  std::vector<std::string> inputs;
  std::string map, cabinet, folder = "variability", scores;
  bool unlike = false;
};

// Reads folders and tables. A run that cannot be measured is skipped and named; the others are kept.
std::vector<report::DeviceRun> read_all(const VariabilityOptions& options,
                                        std::vector<std::string>& problems) {
  const report::ColumnMap map = options.map.empty() ? report::ColumnMap() : report::parse_map(options.map);
  std::vector<report::DeviceRun> runs;
  for (const std::string& input : options.inputs) {
    try {
      auto found = fs::is_directory(input) ? report::device_runs(report::read_run(input))
                                           : report::read_device_runs(input, map, problems);
      std::ranges::move(found, std::back_inserter(runs));
    } catch (const DataError& error) {
      problems.emplace_back(error.what());
      if (options.inputs.size() == 1) throw;
    } catch (const UsageError& error) {  // runs/* may match other things
      const bool table = fs::is_regular_file(input) && fs::path(input).extension() == ".csv";
      if (options.inputs.size() == 1 || table) throw;
      problems.emplace_back(error.what());
    }
  }
  return runs;
}

void put_into_cabinets(std::vector<report::DeviceRun>& runs, const std::string& pattern,
                       std::vector<std::string>& problems) {
  const std::vector<std::string> without = report::assign_cabinets(runs, pattern);
  if (!without.empty())
    problems.push_back(fmt::format("--cabinet does not match the name{} of {} node{}, such as {}",
                                   without.size() == 1 ? "" : "s", without.size(),
                                   without.size() == 1 ? "" : "s", without.front()));
}

// Refuses to compare devices by runs that did different work.
void check_alike(const std::vector<report::DeviceRun>& runs, bool allowed,
                 std::vector<std::string>& problems) {
  const std::vector<report::Unlike> unlike = report::unlike_settings(runs);
  if (unlike.empty()) return;
  std::string list;
  for (const report::Unlike& entry : unlike) list += "\n  " + report::text_of(entry);
  if (!allowed)
    throw UsageError(
        "these runs did not measure the same thing, so their times cannot be compared:{}\n"
        "Leave out the runs that differ, or compare them anyway with --unlike",
        list);
  for (const report::Unlike& entry : unlike) problems.push_back("unlike runs: " + report::text_of(entry));
}

int run_variability(const VariabilityOptions& options) {
  std::vector<std::string> problems;
  std::vector<report::DeviceRun> runs = read_all(options, problems);
  if (!options.cabinet.empty()) put_into_cabinets(runs, options.cabinet, problems);
  check_alike(runs, options.unlike, problems);
  report::Variability result = report::analyze(std::move(runs));
  result.problems.insert(result.problems.end(), problems.begin(), problems.end());
  const fs::path folder = options.folder;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw IoError("cannot create {}: {}; choose another --output", folder.string(), error.message());
  const fs::path scores = options.scores.empty() ? folder / "scores.csv" : fs::path(options.scores);
  write_file_atomically(folder / "all_data.csv", report::all_data_csv(result), Sync::no);
  write_file_atomically(folder / "aggregated_data.csv", report::aggregated_data_csv(result), Sync::no);
  write_file_atomically(scores, report::scores_csv(result), Sync::no);
  write_file_atomically(folder / "variability.json", report::to_json(result) + "\n", Sync::no);
  write_file_atomically(folder / "variability.html",
                        report::page(report::to_json(result, kMostDrawn), "Variability between devices"),
                        Sync::no);
  fmt::print("{}  scores        {}\n  page          {}\n", report::terminal_text(result), scores.string(),
             (folder / "variability.html").string());
  return 0;
}

}  // namespace

void add_variability(CLI::App& app, Context& context) {
  CLI::App& command = add_command(
      app, "variability", "Show how much devices of one kind differ, and which stand out",
      {"redline variability runs/node*", "redline variability runs/* --cabinet 'c([0-9]+)-' -o study",
       "redline variability runs/* --scores /etc/slurm/gpu-scores.csv",
       "redline variability theirs.csv --map 'duration=Iter Time:ms,device=GPU,node=Host,power=Power:mW'"});
  const auto options = std::make_shared<VariabilityOptions>();
  command.add_option("run", options->inputs, "Run folders, or CSV tables with one run per row")->required();
  command
      .add_option(
          "--map", options->map,
          "Columns of a table: name=COLUMN[:unit], separated by commas; names are duration, device, node, "
          "cabinet, run, deviation, clock, memory_clock, temperature, power, mean, median, min, max")
      ->type_name("MAP");
  command
      .add_option("--cabinet", options->cabinet,
                  "Regular expression for the cabinet in a node's name (its first group, if it has one)")
      ->type_name("REGEX");
  command.add_flag("--unlike", options->unlike,
                   "Compare runs that were set up differently (model, batch, dtype, GPU, ...)");
  command
      .add_option("--scores", options->scores,
                  "File for the scores of devices, for schedulers (default: scores.csv in --output)")
      ->type_name("FILE");
  command.add_option("--output,-o", options->folder, "Folder for tables, JSON and page")
      ->type_name("DIR")
      ->capture_default_str();
  on_run(command, context, [options] { return run_variability(*options); });
}

}  // namespace redline::cli
