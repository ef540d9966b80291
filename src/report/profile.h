// The measurements beside a run's numbers: telemetry and profiles, as they lie in its profile/ folder.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace redline::report {

// Samples of clocks, power, temperature and use, from one CSV file. Columns are named by its header;
// "seconds" is not among them but the axis.
class Telemetry {
 public:
  struct Column {
    std::string name;           // "gpu_power_mw"
    std::vector<float> values;  // NaN where a row has none
  };
  struct Mark {
    double seconds = 0;
    std::string text;  // "sw_power_cap"
  };

  std::string source;              // the file's name, "telemetry.csv"
  std::string rank, host, device;  // whose they are; empty in files of old
  std::vector<double> seconds;     // since the first sample; rising
  std::vector<Column> columns;
  // When the reason that holds the clocks down changed; "none" ends one. The first kMostMarks of them.
  std::vector<Mark> throttle;
  static constexpr std::size_t kMostMarks = 2000;
  std::size_t damaged = 0;  // lines left out
  std::size_t stride = 1;   // only one row in so many is kept: a long run's samples are many

  void clear();
  void add_line(std::string_view line);               // of the file, its header first
  const Column* column(std::string_view name) const;  // null when there is none

 private:
  void halve();

  std::vector<int> place_;  // of the header's cells in columns; negative: the kinds below
  double first_ = 0, last_ = 0;
  std::size_t rows_ = 0;
  bool has_header_ = false;
};

// What `redline profile` summed up: its JSON, checked to be an object and no larger than a page can take.
struct Profile {
  std::string source;
  std::string json;
};

}  // namespace redline::report
