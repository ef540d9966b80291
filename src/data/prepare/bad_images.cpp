#include "data/prepare/bad_images.h"

#include <algorithm>
#include <iterator>

#include "base/printable.h"
#include "data/bad_limit.h"

namespace redline::data {

BadImages::BadImages(double share, std::int64_t images)
    : share_(share), images_(images), most_(bad_limit(share, images)) {}

void BadImages::note(std::int64_t order, Complaint complaint, ExitCode code) {
  const std::lock_guard lock(mutex_);
  if (code == ExitCode::io) ++unreadable_;
  bad_.emplace_back(order, std::move(complaint));
  const std::int64_t count = std::ssize(bad_);
  if (count <= most_) return;
  const Complaint& last = bad_.back().second;
  const std::string which = fmt::format("more than the {} that --max-bad {} allows; the last was {}: {}",
                                        most_, share_, printable(last.name), last.reason);
  // The files or their disk are gone: nothing is wrong with the data itself.
  if (2 * unreadable_ > count)
    throw IoError(
        "{} of {} images cannot be read, {}. Check that the data is still accessible, and try again", count,
        images_, which);
  throw DataError("{} of {} images are bad, {}. 'redline data verify' lists them", count, images_, which);
}

std::vector<Complaint> BadImages::list() const {
  const std::lock_guard lock(mutex_);
  auto sorted = bad_;
  std::ranges::stable_sort(sorted, {}, [](const auto& one) { return one.first; });
  std::vector<Complaint> list;
  for (auto& [order, complaint] : sorted) list.push_back(std::move(complaint));
  return list;
}

}  // namespace redline::data
