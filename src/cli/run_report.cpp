#include "cli/run_report.h"

#include <exception>
#include <filesystem>

#include <fmt/format.h>

#include "base/atomic_file.h"
#include "base/log.h"
#include "report/document.h"
#include "report/page.h"
#include "report/run.h"

namespace redline::cli {

void write_run_report(const std::string& folder) {
  if (folder.empty()) return;
  try {
    const report::Run run = report::read_run(folder);
    const std::filesystem::path file = std::filesystem::path(folder) / "report.html";
    write_file_atomically(file, report::page(report::document({&run}, report::Detail::page), run.name),
                          Sync::no);
    fmt::print("  report    {}\n", file.string());
  } catch (const std::exception& error) {
    log_warning("no report was written: {}", error.what());
  }
}

}  // namespace redline::cli
