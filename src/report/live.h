// A run's page while it trains.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "report/server.h"

namespace redline::report {

// Serves the page at /, its document at /data.json and Prometheus metrics at /metrics; anything else is 404.
// Run folders are read at most once a second. Returns when stop is set. Throws UsageError for a folder that
// is not a run folder.
void serve_live(Server& server, const std::vector<std::filesystem::path>& folders,
                const std::atomic<bool>& stop);

}  // namespace redline::report
