#include "data/sources/hold_out.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/random.h"

namespace redline::data {
namespace {

// Some samples of another source, in its order.
class Subset final : public RecordSource {
 public:
  Subset(std::shared_ptr<const RecordSource> source, std::vector<std::int64_t> samples)
      : source_(std::move(source)), samples_(std::move(samples)) {}

  std::int64_t count() const override { return static_cast<std::int64_t>(samples_.size()); }
  std::int32_t label(std::int64_t index) const override { return source_->label(at(index)); }
  std::string name(std::int64_t index) const override { return source_->name(at(index)); }
  const std::vector<std::string>& classes() const override { return source_->classes(); }
  const char* kind() const override { return source_->kind(); }
  std::vector<std::string> damage() const override { return source_->damage(); }
  std::vector<LeftOut> left_out() const override { return source_->left_out(); }
  std::int64_t encoded_bytes(std::int64_t index) const override { return source_->encoded_bytes(at(index)); }
  bool sizes_known() const override { return source_->sizes_known(); }
  std::span<const std::uint8_t> read(std::int64_t index, FileBytes& memory) const override {
    return source_->read(at(index), memory);
  }
  DetailedSample read_detailed(std::int64_t index, FileBytes& memory) const override {
    return source_->read_detailed(at(index), memory);
  }

 private:
  std::int64_t at(std::int64_t index) const { return samples_.at(static_cast<std::size_t>(index)); }

  std::shared_ptr<const RecordSource> source_;
  std::vector<std::int64_t> samples_;
};

}  // namespace

OpenSplits hold_out(std::unique_ptr<RecordSource> all, double share, std::uint64_t seed) {
  constexpr std::uint64_t kStream = 0x686f6c64;  // apart from what else the seed decides
  const std::shared_ptr<const RecordSource> source = std::move(all);
  std::vector<std::vector<std::int64_t>> by_class(source->classes().size());
  for (std::int64_t i = 0; i < source->count(); ++i)
    by_class.at(static_cast<std::size_t>(source->label(i))).push_back(i);
  std::vector<std::int64_t> train, val;
  for (std::size_t label = 0; label < by_class.size(); ++label) {
    std::vector<std::int64_t>& samples = by_class[label];
    if (samples.empty()) continue;
    Random random(seed ^ kStream, label);
    for (std::size_t i = samples.size(); i-- > 1;) std::swap(samples[i], samples[random.below(i + 1)]);
    const auto wanted = static_cast<std::size_t>(std::lround(share * static_cast<double>(samples.size())));
    const auto taken = static_cast<std::ptrdiff_t>(std::min(wanted, samples.size() - 1));
    val.insert(val.end(), samples.begin(), samples.begin() + taken);
    train.insert(train.end(), samples.begin() + taken, samples.end());
  }
  if (val.empty())
    throw UsageError(
        "--val-split {} of {} images in {} classes holds out none of them: use a larger fraction", share,
        source->count(), source->classes().size());
  std::ranges::sort(train);
  std::ranges::sort(val);
  OpenSplits splits;
  splits.train = std::make_unique<Subset>(source, std::move(train));
  splits.val = std::make_unique<Subset>(source, std::move(val));
  return splits;
}

}  // namespace redline::data
