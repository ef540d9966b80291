// The samples that a loader could not read or decode: named in the log and counted; too many end the run.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/sources/record_source.h"

namespace redline::data {

struct BadSample {
  std::string name;
  std::string reason;
};

// Any thread.
class BadSamples {
 public:
  // `share` of the samples may be bad (bad_limit.h).
  BadSamples(std::shared_ptr<const RecordSource> source, double share);

  // A sample counts once. More than allowed throw DataError, or IoError when most of them could not be read.
  void note(std::int64_t sample, const Error& reason);

  // In the order of the data set.
  std::vector<BadSample> list() const;

 private:
  const std::shared_ptr<const RecordSource> source_;
  const double share_;
  const std::int64_t most_;
  mutable std::mutex mutex_;
  std::map<std::int64_t, std::string> reasons_;  // by sample
  std::int64_t unreadable_ = 0;                  // of these, those that could not be read
};

}  // namespace redline::data
