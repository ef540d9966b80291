// redline coreutil: core utilisation of kernels, from tables of counters.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/build_info.h"
#include "base/error.h"
#include "cli/command.h"
#include "profile/counters.h"
#include "report/counters.h"
#include "report/csv.h"

namespace redline::cli {
namespace {

struct CoreutilOptions {
  std::vector<std::string> files;
  std::string csv, json;
};

// The tables in a run's profile; any other path as is.
std::vector<std::string> tables_of(const std::vector<std::string>& inputs) {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  for (const std::string& input : inputs) {
    if (!fs::is_directory(input)) {
      files.push_back(input);
      continue;
    }
    std::error_code ignored;
    const std::size_t before = files.size();
    for (const auto& entry :
         fs::directory_iterator(fs::path(input) / "profile" / "profiled_data_ncu", ignored))
      if (entry.path().extension() == ".csv") files.push_back(entry.path().string());
    if (files.size() == before)
      throw UsageError("{} has no counters: `redline profile --counters` writes them to a run's folder",
                       input);
    std::ranges::sort(files.begin() + static_cast<std::ptrdiff_t>(before), files.end());
  }
  return files;
}

int run_coreutil(const CoreutilOptions& options) {
  const std::vector<std::string> files = tables_of(options.files);
  std::string csv =
      "file,fma_pct,fp16_pct,tensor_pct,sfu_pct,tensor_active_pct,cycles,dram_bytes,kernels,left_out\n";
  auto json = nlohmann::ordered_json::array();
  const auto percent = [](const std::optional<double>& share) {
    return share ? fmt::format("{:.2f}%", *share) : std::string("-");
  };
  const auto cell = [](const std::optional<double>& value) {
    return value ? fmt::format("{}", *value) : std::string();
  };
  std::string table = fmt::format("{:>7} {:>7} {:>7} {:>7} {:>13} {:>9} {:>9}  {}\n", "FMA", "FP16", "tensor",
                                  "SFU", "tensor active", "kernels", "skipped", "file");
  for (const std::string& file : files) {
    const profile::CoreUtilisation use = profile::core_utilisation(report::read_counters(file));
    if (use.kernels == 0)
      throw DataError(
          "{}: no kernel has both gpc__cycles_elapsed.max and one of "
          "sm__inst_executed_pipe_{{fma,fp16,tensor,xu}}.avg.pct_of_peak_sustained_elapsed: give them to "
          "--metrics",
          file);
    table += fmt::format("{:>7} {:>7} {:>7} {:>7} {:>13} {:>9} {:>9}  {}\n", percent(use.fma),
                         percent(use.fp16), percent(use.tensor), percent(use.sfu), percent(use.tensor_active),
                         use.kernels, use.left_out, file);
    csv += fmt::format("{},{},{},{},{},{},{},{},{},{}\n", report::csv_cell(file), cell(use.fma),
                       cell(use.fp16), cell(use.tensor), cell(use.sfu), cell(use.tensor_active), use.cycles,
                       cell(use.dram_bytes), use.kernels, use.left_out);
    nlohmann::ordered_json row = {{"file", file}, {"program", program_facts()}};
    row.update(profile::to_json(use));
    row["kernels"] = use.kernels;
    row["left_out"] = use.left_out;
    json.push_back(std::move(row));
  }
  fmt::print("{}", table);
  if (!options.csv.empty()) write_file_atomically(options.csv, csv);
  if (!options.json.empty())
    write_file_atomically(options.json,
                          json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  return 0;
}

}  // namespace

void add_coreutil(CLI::App& app, Context& context) {
  CLI::App& command = add_command(
      app, "coreutil", "Show how much of a GPU's cores was used, from tables of counters",
      {"redline coreutil runs/first", "redline coreutil profiled_data_ncu/*.csv --csv core_utilisation.csv"});
  const auto options = std::make_shared<CoreutilOptions>();
  command
      .add_option("files", options->files,
                  "Runs of `redline profile --counters`, or their CSV files, or those of `ncu --csv`")
      ->required();
  command.add_option("--csv", options->csv, "Also write a table to this file")->type_name("FILE");
  command.add_option("--json", options->json, "Also write the figures to this file")->type_name("FILE");
  on_run(command, context, [options] { return run_coreutil(*options); });
}

}  // namespace redline::cli
