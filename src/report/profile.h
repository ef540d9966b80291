// Telemetry and profiles, as stored in a run's profile/ folder.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace redline::report {

// Samples of clocks, power, temperature and use from one CSV file. The header names the columns; "seconds" is
// the axis, not a column.
class Telemetry {
 public:
  struct Column {
    std::string name;  // "gpu_power_mw"
    // NaN where a row has none. Of gpu_energy_mj, which grows for as long as the driver is loaded, what was
    // added since the first: a float would lose hundreds of joules of the whole.
    std::vector<float> values;
  };
  struct Mark {
    double seconds = 0;
    std::string text;  // "sw_power_cap"
  };

  std::string source;              // the file's name, "telemetry.csv"
  std::string rank, host, device;  // where they were taken; empty in old files
  std::vector<double> seconds;     // since the first sample; ascending
  std::vector<Column> columns;
  // When the throttle reason changed; "none" ends one. At most the first kMostMarks.
  std::vector<Mark> throttle;
  static constexpr std::size_t kMostMarks = 2000;
  std::size_t damaged = 0;  // lines skipped
  std::size_t stride = 1;   // one row in this many is kept: a long run has many samples

  void clear();
  void add_line(std::string_view line);               // the file's lines in order, the header first
  const Column* column(std::string_view name) const;  // null if there is none

 private:
  void halve();

  std::vector<int> place_;  // index in `columns` for each header cell; negative for special cells
  double first_ = 0, last_ = 0;
  std::optional<double> first_energy_;
  std::size_t rows_ = 0;
  bool has_header_ = false;
};

// The summary that `redline profile` wrote, checked to be a JSON object small enough for a page.
struct Profile {
  std::string source;
  std::string json;
};

}  // namespace redline::report
