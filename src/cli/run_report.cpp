#include "cli/run_report.h"

#include <cstdint>
#include <exception>
#include <filesystem>

#include <fmt/format.h>

#include "base/atomic_file.h"
#include "base/log.h"
#include "report/document.h"
#include "report/page.h"
#include "report/run.h"

namespace redline::cli {
namespace fs = std::filesystem;

void write_run_report(const std::string& folder, bool interrupted) {
  constexpr std::uintmax_t kLong = 32 << 20;  // bytes, 120,000 steps: half a second of work
  if (folder.empty()) return;
  try {
    if (interrupted && fs::file_size(fs::path(folder) / "metrics.jsonl") > kLong) {
      fmt::print("  report    redline report {}\n", folder);
      return;
    }
    const report::Run run = report::read_run(folder);
    const fs::path file = fs::path(folder) / "report.html";
    write_file_atomically(file, report::page(report::document({&run}, report::Detail::page), run.name),
                          Sync::no);
    fmt::print("  report    {}\n", file.string());
  } catch (const std::exception& error) {
    log_warning("no report was written: {}", error.what());
  }
}

}  // namespace redline::cli
