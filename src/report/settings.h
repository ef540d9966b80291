// The settings of runs. Comparisons and studies of variability list those that differ, and use them to decide
// whether runs can be compared.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "report/run.h"

namespace redline::report {

// A fact about the work of a run, from its first line. So runs without a configuration can be compared too,
// and defaults such as "as many classes as the data has" are resolved.
struct WorkFact {
  const char* name;    // in tables of variability: "image_size"
  const char* option;  // that sets it: "model.image_size"
  std::string value;
};
// Nothing for a run without a first line.
std::vector<WorkFact> work_of(const Run& run);

// A setting and its values.
struct Setting {
  std::string name;
  std::vector<std::string> values;  // one per run; "" where a run does not have it
};

// The settings of several runs, in the order in which they first appear.
class SettingTable {
 public:
  explicit SettingTable(std::size_t runs) : runs_(runs) {}
  // The first value that a run gives to a name counts.
  void put(std::size_t run, const std::string& name, const std::string& value);
  const std::vector<Setting>& settings() const { return settings_; }

 private:
  std::size_t runs_;
  std::vector<Setting> settings_;
};

}  // namespace redline::report
