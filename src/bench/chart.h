// Simple charts of a measurement: lines in the terminal, lines and bars as SVG or PNG.
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
  bool bytes = false;  // x is a number of bytes: 64 KiB
  double mark = 0;     // a line from bottom to top at this x; 0: none
};

// Bars one below the other, from 0, with a line across them at `mark`.
struct BarChart {
  std::string title, unit;
  std::vector<std::pair<std::string, double>> bars;  // names and values, finite and not negative
  double mark = 0;                                   // 0: none
};

// `columns` wide for `most`, in eighths of a column.
std::string text_bar(double value, double most, int columns);
// A bar a point, at most `width` columns wide.
std::string text_chart(const Chart& chart, int width);
std::string svg_chart(const Chart& chart);
std::vector<std::uint8_t> png_chart(const Chart& chart);

// Writes SVG or PNG, by the file extension. Throws UsageError for others, IoError if it cannot be written.
void write_chart(const Chart& chart, const std::string& path);
void write_chart(const BarChart& chart, const std::string& path);
void check_chart_name(const std::string& path);  // throws UsageError

}  // namespace redline::bench
