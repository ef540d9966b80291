// Parses the lines of metrics.jsonl into a Run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/run.h"

namespace redline::report {

// Adds lines to a run one by one. Lines that cannot be parsed are counted and skipped.
class MetricsLines {
 public:
  explicit MetricsLines(Run& run);  // borrowed
  ~MetricsLines();

  void add(std::string_view line);
  void restart();  // drops all numbers of the run
  std::vector<std::string> problems() const;

 private:
  class Object;
  static metrics::Gap gap_of(const Object& object);
  static std::optional<metrics::Target> target_of(const Object& object);
  void add_step(const Object& object);
  void complete_gap();  // of the last step: missing causes are zero
  void forget_from(double step);
  void add_first(const Object& object);

  Run& run_;
  std::unique_ptr<Object> object_;
  std::size_t lines_ = 0, damaged_ = 0, first_damaged_ = 0, unknown_ = 0;
  double version_ = 0;  // schema version; 0 before the first line
};

}  // namespace redline::report
