// The images that a conversion leaves out because they are bad: up to --max-bad of them.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "data/prepare/verify.h"

namespace redline::data {

// Any thread.
class BadImages {
 public:
  // `share` of the images may be bad (bad_limit.h).
  BadImages(double share, std::int64_t images);

  // Images are listed by `order`, and in the order of the calls where that is equal. One more than are
  // allowed throws DataError, or IoError if most of them could not be read.
  void note(std::int64_t order, Complaint complaint, ExitCode code);

  std::vector<Complaint> list() const;

 private:
  const double share_;
  const std::int64_t images_, most_;
  mutable std::mutex mutex_;
  std::int64_t unreadable_ = 0;
  std::vector<std::pair<std::int64_t, Complaint>> bad_;
};

}  // namespace redline::data
