#include "data/bad_samples.h"

#include <utility>

#include "base/log.h"
#include "base/printable.h"
#include "data/bad_limit.h"

namespace redline::data {
namespace {

constexpr int kLogged = 20;  // named in the log; list() has them all

}  // namespace

BadSamples::BadSamples(std::shared_ptr<const RecordSource> source, double share)
    : source_(std::move(source)), share_(share), most_(bad_limit(share, source_->count())) {}

void BadSamples::note(std::int64_t sample, const Error& reason) {
  const std::lock_guard lock(mutex_);
  if (!reasons_.emplace(sample, reason.what()).second) return;
  if (reason.code() == ExitCode::io) ++unreadable_;
  const auto count = static_cast<std::int64_t>(reasons_.size());
  const std::string name = printable(source_->name(sample));
  if (count <= kLogged) log_warning("skipped {}: {}", name, reason.what());
  if (count == kLogged) log_warning("further bad samples are counted, not named");
  if (count <= most_) return;
  const std::string which = fmt::format("more than the {} that --max-bad {} allows; the last was {}: {}",
                                        most_, share_, name, reason.what());
  // The files or their disk are gone: nothing is wrong with the data itself.
  if (2 * unreadable_ > count) {
    throw IoError(
        "{} of {} samples cannot be read, {}. Check that the data is still accessible, and try again", count,
        source_->count(), which);
  }
  throw DataError(
      "{} of {} samples are bad, {}. Remove the bad files ('redline data verify' lists them) or raise "
      "--max-bad",
      count, source_->count(), which);
}

std::vector<BadSample> BadSamples::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<BadSample> list;
  for (const auto& [sample, reason] : reasons_) list.push_back({source_->name(sample), reason});
  return list;
}

}  // namespace redline::data
