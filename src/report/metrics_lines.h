// The lines of metrics.jsonl as a Run has them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/run.h"

namespace redline::report {

// Puts lines into a run, one after the other. A line that cannot be understood is counted and left out.
class MetricsLines {
 public:
  explicit MetricsLines(Run& run);  // borrowed
  ~MetricsLines();

  void add(std::string_view line);
  void restart();  // the run's numbers are forgotten
  std::vector<std::string> problems() const;

 private:
  class Object;
  static metrics::Gap gap_of(const Object& object);
  static std::optional<metrics::Target> target_of(const Object& object);
  void add_step(const Object& object);
  void complete_gap();  // of the last step: causes that were not written took nothing
  void forget_from(double step);
  void add_first(const Object& object);

  Run& run_;
  std::unique_ptr<Object> object_;
  std::size_t lines_ = 0, damaged_ = 0, first_damaged_ = 0, unknown_ = 0;
  double version_ = 0;  // of the schema; 0 before the first line
};

}  // namespace redline::report
