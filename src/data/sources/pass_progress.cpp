#include "data/sources/pass_progress.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "data/progress.h"

namespace redline::data {

PassProgress::PassProgress(std::string what, std::uint64_t bytes, std::function<bool()> stop)
    : what_(std::move(what)), total_(bytes), stop_(std::move(stop)) {}

void PassProgress::add(std::uint64_t bytes) {
  constexpr double kEvery = 5;  // seconds
  const std::lock_guard lock(mutex_);
  done_ = std::min(done_ + bytes, total_);
  if (stop_ && stop_()) throw Stopped{};
  const double now = watch_.seconds();
  if (now - last_ < kEvery || done_ == 0) return;
  last_ = now;
  const double share = static_cast<double>(done_) / static_cast<double>(total_);
  log_info("{}: {:.0f}% of {}, {} left", what_, std::floor(100 * share), format_bytes(total_),
           format_duration(now / share - now));
}

}  // namespace redline::data
