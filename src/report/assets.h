// The parts of the page that are the same in every one; made at build time from assets/ and Chart.js.
#pragma once

namespace redline::report {

extern const char* const kChartJs;
extern const char* const kStyle;
extern const char* const kScript;

}  // namespace redline::report
