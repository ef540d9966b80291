// A line chart of a few series: in the terminal, as SVG, or as PNG. For a look at a measurement, not for
// a page of them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace redline::bench {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x and y, finite and not negative
};

// x is drawn as the points come, at even distances by value of its logarithm; y from 0.
struct Chart {
  std::string title, x_label, y_label;
  std::vector<Series> series;
};

// A bar a point, at most `width` columns wide.
std::string text_chart(const Chart& chart, int width);
std::string svg_chart(const Chart& chart);
std::vector<std::uint8_t> png_chart(const Chart& chart);

// Writes SVG or PNG by the ending of the name. Throws UsageError for others, IoError when it cannot be
// written.
void write_chart(const Chart& chart, const std::string& path);
void check_chart_name(const std::string& path);  // throws UsageError

}  // namespace redline::bench
