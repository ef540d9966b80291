// Runs in Prometheus' text format.
#pragma once

#include <string>
#include <vector>

#include "report/run.h"

namespace redline::report {

inline constexpr const char* kPrometheusType = "text/plain; version=0.0.4; charset=utf-8";

// Progress, speed, loss, accuracy and the latest telemetry of each run, labelled with its name (its folder
// where names repeat). In base units; unknown values are left out. docs/reports.md lists the metrics.
std::string prometheus_text(const std::vector<const Run*>& runs);

}  // namespace redline::report
