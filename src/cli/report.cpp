// redline report: reports of runs, as a page, tables, text, or live.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"
#include "cli/command.h"
#include "report/document.h"
#include "report/export.h"
#include "report/live.h"
#include "report/page.h"
#include "report/run.h"
#include "report/terminal.h"

namespace redline::cli {
namespace {

namespace fs = std::filesystem;

struct ReportOptions {
  std::vector<std::string> runs;
  std::string page, csv, json, address = "127.0.0.1";
  bool text = false, live = false, unlike = false;
  std::uint16_t port = 8321;
  CLI::Option* port_option = nullptr;
};

std::unique_ptr<report::Server> listen(const ReportOptions& options) {
  try {
    return std::make_unique<report::Server>(options.address, options.port);
  } catch (const UnavailableError&) {
    if (options.port_option->count() > 0) throw;
    return std::make_unique<report::Server>(options.address, 0);  // the usual port is taken: use any
  }
}

// The run folders among the paths. `runs/*` may match other things, so they are skipped with a warning,
// unless nothing is left. A path that does not exist is an error.
std::vector<fs::path> run_folders(const std::vector<std::string>& named) {
  std::vector<fs::path> folders, others;
  std::error_code ignored;
  for (const fs::path path : named)
    (named.size() == 1 || report::is_run_folder(path) || !fs::exists(path, ignored) ? folders : others)
        .push_back(path);
  if (folders.empty())
    throw UsageError("none of the {} paths is a run folder: none has metrics.jsonl or config.toml",
                     named.size());
  for (const fs::path& path : others) log_warning("skipped {}: not a run folder", path.string());
  return folders;
}

int serve(const ReportOptions& options, const std::vector<fs::path>& folders) {
  const StopSignals signals;
  const auto server = listen(options);
  for (const fs::path& folder : folders)
    report::RunReader reader(folder);  // report a bad one before serving anything
  fmt::print("serving {} until Ctrl-C\n", server->url());
  if (!server->loopback())
    fmt::print("anyone who can reach this machine can read it; there is no password\n");
  std::fflush(stdout);
  report::serve_live(*server, folders, signals.flag());
  return 0;
}

void write_page(const std::vector<const report::Run*>& runs, bool unlike, const fs::path& file) {
  const std::string title = runs.size() == 1 ? runs.front()->name : fmt::format("{} runs", runs.size());
  write_file_atomically(file, report::page(report::document(runs, report::Detail::page, unlike), title),
                        Sync::no);
}

int run_report(const ReportOptions& options) {
  if (options.live) {
    if (!options.page.empty() || !options.csv.empty() || !options.json.empty() || options.text ||
        options.unlike)
      throw UsageError("--live writes nothing: leave out --output, --csv, --json, --text and --unlike");
    return serve(options, run_folders(options.runs));
  }
  std::vector<report::Run> read;
  for (const fs::path& folder : run_folders(options.runs)) read.push_back(report::read_run(folder));
  std::vector<const report::Run*> runs;
  for (const report::Run& run : read) runs.push_back(&run);

  const bool only_others = !options.csv.empty() || !options.json.empty() || options.text;
  if (!options.csv.empty()) {
    for (const std::string& name : report::write_csv(runs, options.csv, options.unlike))
      print_stderr("{}\n", (fs::path(options.csv) / name).string());
  }
  if (options.json == "-") {
    fmt::print("{}\n", report::document(runs, report::Detail::full, options.unlike));
  } else if (!options.json.empty()) {
    write_file_atomically(options.json, report::document(runs, report::Detail::full, options.unlike) + "\n",
                          Sync::no);
  }
  if (options.text) fmt::print("{}", report::terminal_text(runs, options.unlike));
  if (!options.page.empty() || !only_others) {
    const fs::path file = !options.page.empty() ? fs::path(options.page)
                          : runs.size() == 1    ? runs.front()->folder / "report.html"
                                                : fs::path("report.html");
    write_page(runs, options.unlike, file);
    fmt::print("{}\n", file.string());
  }
  return 0;
}

}  // namespace

void add_report(CLI::App& app, Context& context) {
  CLI::App& command =
      add_command(app, "report", "Report on runs and compare them: a page, tables, text, or live",
                  {"redline report runs/first", "redline report runs/first runs/second -o comparison.html",
                   "redline report --live runs/first", "redline report runs/* --csv tables --json all.json",
                   "redline report runs/first --text"});
  const auto options = std::make_shared<ReportOptions>();
  command
      .add_option(
          "run", options->runs,
          "Run folders; all are compared with the first, repeats as one. Anything else is skipped, so runs/* "
          "works")
      ->required();
  command
      .add_option(
          "--output,-o", options->page,
          "Page to write (default: report.html in the run folder; in the current folder for several runs)")
      ->type_name("FILE.html");
  command.add_option("--csv", options->csv, "Write all numbers as CSV tables to this folder")
      ->type_name("DIR");
  command.add_option("--json", options->json, "Write all numbers to this file, or - for standard output")
      ->type_name("FILE");
  command.add_flag("--text", options->text, "Print a summary");
  command.add_flag("--unlike", options->unlike,
                   "Compare runs even if model, image size, classes or data differ");
  command.add_flag("--live", options->live, "Serve the page during training, and /metrics for Prometheus");
  options->port_option =
      command
          .add_option("--port", options->port, "Port of --live (default: 8321, or another if that is taken)")
          ->type_name("N");
  command.add_option("--bind", options->address, "Address that --live listens on")
      ->type_name("IP")
      ->capture_default_str();
  on_run(command, context, [options] { return run_report(*options); });
}

}  // namespace redline::cli
