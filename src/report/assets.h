// The parts that every page shares. Generated at build time from assets/ and Chart.js.
#pragma once

namespace redline::report {

extern const char* const kChartJs;
extern const char* const kStyle;
extern const char* const kScript;

}  // namespace redline::report
