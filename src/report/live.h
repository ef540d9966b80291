// A run's page while it trains.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "report/server.h"

namespace redline::report {

// Answers / with the page, /data.json with its document and /metrics with what Prometheus scrapes, read from
// the run folders at most once a second; everything else is not there. Returns when stop is set. Throws
// UsageError for a folder that is not a run's.
void serve_live(Server& server, const std::vector<std::filesystem::path>& folders,
                const std::atomic<bool>& stop);

}  // namespace redline::report
