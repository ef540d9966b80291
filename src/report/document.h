// Everything a report knows as one JSON document: what the page draws, and what --json writes.
//
//     {"schema": "redline.report", "version": 2, "program": …, "generated": UTC, "thinned": true or false,
//      "runs": [{"name", "state", "facts", "options", "summary", "series", "step_time", "evaluations", …}],
//      "groups": [...], "comparison": [...], "differences": [...]}
// Numbers that JSON cannot hold are null. docs/reports.md lists the fields.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "report/run.h"

namespace redline::report {

inline constexpr int kDocumentVersion = 2;

// How much of each series goes in.
enum class Detail { page, full };

// Bytes that are not UTF-8 are replaced. For a page, series are thinned so that all runs together stay far
// below a megabyte, and numbers are rounded to six digits. `judge_unlike`: as compare() has it.
std::string document(const std::vector<const Run*>& runs, Detail detail, bool judge_unlike = false);

}  // namespace redline::report
