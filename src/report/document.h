// A whole report as one JSON document: the page draws it, and --json writes it.
//
//     {"schema": "redline.report", "version": 2, "program": …, "generated": UTC, "thinned": true or false,
//      "runs": [{"name", "state", "facts", "options", "summary", "series", "step_time", "evaluations", …}],
//      "groups": [...], "comparison": [...], "differences": [...]}
// Numbers that JSON cannot represent are null. docs/reports.md lists the fields.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "report/run.h"

namespace redline::report {

inline constexpr int kDocumentVersion = 2;

// How much of each series to include.
enum class Detail { page, full };

// Invalid UTF-8 is replaced. For a page, series are thinned so that all runs together stay well below a
// megabyte, and numbers are rounded to six digits. `judge_unlike` as in compare().
std::string document(const std::vector<const Run*>& runs, Detail detail, bool judge_unlike = false);

}  // namespace redline::report
