// redline variability: how much devices of one kind differ.
#include <filesystem>
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

struct Options {
  std::vector<std::string> inputs;
  std::string map, cabinet, folder = "variability";
};

// Of folders and tables. A run that cannot be measured is left out and named; others are worth keeping.
std::vector<report::DeviceRun> read_all(const Options& options, std::vector<std::string>& problems) {
  const report::ColumnMap map = options.map.empty() ? report::ColumnMap() : report::parse_map(options.map);
  std::vector<report::DeviceRun> runs;
  for (const std::string& input : options.inputs) {
    if (!fs::is_directory(input)) {
      const auto rows = report::read_device_runs(input, map);
      runs.insert(runs.end(), rows.begin(), rows.end());
      continue;
    }
    try {
      const auto devices = report::device_runs(report::read_run(input), options.cabinet);
      runs.insert(runs.end(), devices.begin(), devices.end());
    } catch (const DataError& error) {
      problems.emplace_back(error.what());
    }
  }
  return runs;
}

int run_variability(const Options& options) {
  std::vector<std::string> problems;
  report::Variability result = report::analyze(read_all(options, problems));
  result.problems.insert(result.problems.end(), problems.begin(), problems.end());
  const fs::path folder = options.folder;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw IoError("cannot make {}: {}; choose another --output", folder.string(), error.message());
  const std::string json = report::to_json(result);
  write_file_atomically(folder / "all_data.csv", report::all_data_csv(result), Sync::no);
  write_file_atomically(folder / "aggregated_data.csv", report::aggregated_data_csv(result), Sync::no);
  write_file_atomically(folder / "variability.json", json + "\n", Sync::no);
  write_file_atomically(folder / "variability.html", report::page(json, "Variability between devices"),
                        Sync::no);
  fmt::print("{}  page          {}\n", report::terminal_text(result), (folder / "variability.html").string());
  return 0;
}

}  // namespace

void add_variability(CLI::App& app, Context& context) {
  CLI::App& command = add_command(
      app, "variability", "Tell how much devices of one kind differ, and which stand out",
      {"redline variability runs/node*", "redline variability runs/* --cabinet 'c([0-9]+)-' -o study",
       "redline variability theirs.csv --map 'duration=Iter Time:ms,device=GPU,node=Host,power=Power:mW'"});
  const auto options = std::make_shared<Options>();
  command.add_option("run", options->inputs, "Run folders, or CSV tables with a run a row")->required();
  command
      .add_option(
          "--map", options->map,
          "Where a table has what: name=COLUMN[:unit], with commas; names are duration, device, node, "
          "cabinet, run, clock, memory_clock, temperature, power, mean, median, min, max")
      ->type_name("MAP");
  command
      .add_option("--cabinet", options->cabinet, "Regular expression that finds the cabinet in a node's name")
      ->type_name("REGEX");
  command.add_option("--output,-o", options->folder, "Folder for tables, JSON and page")
      ->type_name("DIR")
      ->capture_default_str();
  on_run(command, context, [options] { return run_variability(*options); });
}

}  // namespace redline::cli
