#include "train/ranks.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/statistics.h"

namespace redline::train {
namespace {

// A rank is a straggler if the median of this many of its steps is this much longer than the others', this
// many deviations off theirs, and this many standard errors off chance: one long step, ranks that all differ,
// or steps that vary do not count.
constexpr double kSlow = 1.15, kDeviations = 5, kErrors = 4;
constexpr std::size_t kWindow = 50;

// Of most of the values, whatever the few others are; for a normal law the standard deviation.
double robust_deviation(const std::vector<double>& values, double middle) {
  std::vector<double> distances;
  for (const double value : values) distances.push_back(std::abs(value - middle));
  return 1.4826 * median(std::move(distances));
}

// How far the median of values may be off by chance: its standard error, for a normal law.
double error_of_median(const std::vector<double>& values, double middle) {
  return 1.2533 * robust_deviation(values, middle) / std::sqrt(static_cast<double>(values.size()));
}

bool is_averaged_statistic(const backend::State& state, const std::string& name) {
  const graph::Tensor& tensor = state.tensor(name);
  if (tensor.kind != graph::TensorKind::average) return false;
  return name.find("running_") != std::string::npos;
}

std::vector<float> values_of(const backend::State& state, const std::string& name) {
  std::vector<float> values(static_cast<std::size_t>(state.tensor(name).shape.elements()));
  state.read(name, values);
  return values;
}

}  // namespace

Ranks::Ranks(std::shared_ptr<comm::Communicator> communicator)
    : communicator_(communicator != nullptr ? std::move(communicator) : comm::make_single()),
      work_(static_cast<std::size_t>(size())),
      window_(work_.size()) {}

std::string Ranks::name(int rank) const {
  return fmt::format("rank {} ({})", rank, communicator_->member(rank).host);
}

bool Ranks::any(bool mine) {
  double votes = mine ? 1 : 0;
  add_up({&votes, 1});
  return votes > 0;
}

std::int64_t Ranks::most(std::int64_t mine) {
  return static_cast<std::int64_t>(std::ranges::max(communicator_->gather(static_cast<double>(mine))));
}

void Ranks::exchange(Step& step) {
  constexpr std::size_t kStop = graph::kLossMetrics, kAbandoned = kStop + 1, kExposed = kAbandoned + 1,
                        kWork = kExposed + 1;
  std::vector<double> values(kWork + work_.size());
  std::ranges::copy(step.sums.values, values.begin());
  values[kStop] = step.stop ? 1 : 0;
  values[kAbandoned] = step.abandoned ? 1 : 0;
  values[kExposed] = step.exposed;
  values[kWork + static_cast<std::size_t>(rank())] = step.work;
  add_up(values);
  std::copy_n(values.begin(), step.sums.values.size(), step.sums.values.begin());
  step.stop = values[kStop] > 0;
  step.abandoned = values[kAbandoned] > 0;
  step.exposed = values[kExposed] / size();
  const auto work = std::span(values).subspan(kWork);
  const auto slowest = std::ranges::max_element(work);
  step.slowest = static_cast<int>(slowest - work.begin());
  step.most_work = *slowest;
  ++steps_;
  for (std::size_t i = 0; i < work_.size(); ++i) {
    work_[i] += work[i];
    window_[i].push_back(work[i]);
  }
}

std::optional<std::string> Ranks::straggler() {
  if (alone() || window_[0].size() < kWindow) return {};
  std::vector<double> others, errors;  // medians by rank, and how far they may be off
  for (std::vector<double>& steps : window_) {
    others.push_back(median(steps));
    errors.push_back(error_of_median(std::exchange(steps, {}), others.back()));
  }
  const auto slowest = std::ranges::max_element(others);
  const int rank = static_cast<int>(slowest - others.begin());
  const double most = *slowest, error = errors[static_cast<std::size_t>(rank)];
  others.erase(slowest);
  errors.erase(errors.begin() + rank);
  const double typical = median(others);
  const double chance =
      std::max(kDeviations * robust_deviation(others, typical), kErrors * std::hypot(error, median(errors)));
  if (most < kSlow * typical || most < typical + chance) {
    named_ = -1;
    return {};
  }
  if (std::exchange(named_, rank) == rank) return {};
  return fmt::format("{} is slow: its part of a step takes {:.3g} s, {:.0f}% more than the others' {:.3g} s",
                     name(rank), most, 100 * (most / typical - 1), typical);
}

std::string Ranks::speeds() const {
  if (alone() || steps_ == 0) return {};
  const auto [least, most] = std::ranges::minmax_element(work_);
  const auto per_step = [&](double seconds) { return seconds / static_cast<double>(steps_); };
  return fmt::format("{} ranks: the fastest is {} with {:.3g} s of work a step, the slowest {} with {:.3g} s",
                     size(), name(static_cast<int>(least - work_.begin())), per_step(*least),
                     name(static_cast<int>(most - work_.begin())), per_step(*most));
}

void Ranks::broadcast_state(backend::State& state) {
  if (alone()) return;
  for (const std::string& tensor : state.names()) {
    std::vector<float> values = values_of(state, tensor);
    communicator_->broadcast(std::as_writable_bytes(std::span(values)), 0);
    if (rank() != 0) state.write(tensor, values);
  }
}

void Ranks::broadcast_statistics(backend::State& state) {
  if (alone()) return;
  std::vector<float> all;
  std::vector<std::string> names;
  for (const std::string& tensor : state.names()) {
    if (state.tensor(tensor).kind != graph::TensorKind::statistic && !is_averaged_statistic(state, tensor))
      continue;
    names.push_back(tensor);
    const std::vector<float> values = values_of(state, tensor);
    all.insert(all.end(), values.begin(), values.end());
  }
  communicator_->broadcast(std::as_writable_bytes(std::span(all)), 0);
  if (rank() == 0) return;
  std::size_t at = 0;
  for (const std::string& tensor : names) {
    const auto elements = static_cast<std::size_t>(state.tensor(tensor).shape.elements());
    state.write(tensor, std::span(all).subspan(at, elements));
    at += elements;
  }
}

void Ranks::check_state(const backend::State& state, std::int64_t step) {
  if (alone()) return;
  // One checksum per tensor, by rank: a sum over ranks in which each has its own part.
  std::vector<std::string> names;
  for (const std::string& tensor : state.names()) {
    const graph::TensorKind kind = state.tensor(tensor).kind;
    if (kind == graph::TensorKind::parameter || kind == graph::TensorKind::momentum) names.push_back(tensor);
  }
  std::vector<double> checksums(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::vector<float> values = values_of(state, names[i]);
    checksums[i] =
        crc32c({reinterpret_cast<const std::uint8_t*>(values.data()), values.size() * sizeof(float)});
  }
  std::vector<double> first = checksums;
  communicator_->broadcast(std::as_writable_bytes(std::span(first)), 0);
  const auto differs = std::ranges::mismatch(checksums, first).in1;
  const double position = differs == checksums.end() ? -1 : static_cast<double>(differs - checksums.begin());
  const std::vector<double> all = communicator_->gather(position);
  const auto bad = std::ranges::find_if(all, [](double p) { return p >= 0; });
  if (bad == all.end()) return;
  throw comm::PeerError(
      fmt::format("after step {}, {} of {} differs from rank 0: the memory or network of that machine "
                  "damaged it, or its program differs; --resume continues from the last checkpoint",
                  step, names[static_cast<std::size_t>(*bad)], name(static_cast<int>(bad - all.begin()))));
}

void Ranks::broadcast(Progress& progress) {
  if (alone()) return;
  const Best best = progress.best.value_or(Best{});
  std::array<double, 21> values{static_cast<double>(progress.step),
                                static_cast<double>(progress.epoch),
                                static_cast<double>(progress.step_in_epoch),
                                static_cast<double>(progress.schedule_step),
                                progress.evaluated ? 1.0 : 0.0,
                                static_cast<double>(progress.samples),
                                static_cast<double>(progress.skipped_steps),
                                static_cast<double>(progress.bad_in_a_row),
                                progress.best ? 1.0 : 0.0,
                                static_cast<double>(best.step),
                                best.top1,
                                best.weights == "ema" ? 1.0 : 0.0,
                                progress.epoch_seconds,
                                progress.step_seconds,
                                progress.gap.data,
                                progress.gap.host,
                                progress.gap.exchange,
                                progress.gap.evaluation,
                                progress.gap.checkpoint,
                                static_cast<double>(best.epoch),
                                best.elapsed};
  communicator_->broadcast(std::as_writable_bytes(std::span(values)), 0);
  const auto whole = [&](std::size_t i) { return static_cast<std::int64_t>(std::llround(values[i])); };
  progress.step = whole(0);
  progress.epoch = whole(1);
  progress.step_in_epoch = whole(2);
  progress.schedule_step = whole(3);
  progress.evaluated = values[4] > 0;
  progress.samples = whole(5);
  progress.skipped_steps = whole(6);
  progress.bad_in_a_row = whole(7);
  progress.best.reset();
  if (values[8] > 0)
    progress.best = Best{whole(9), values[10], values[11] > 0 ? "ema" : "model", whole(19), values[20]};
  progress.epoch_seconds = values[12];
  progress.step_seconds = values[13];
  progress.gap = {values[14], values[15], values[16], values[17], values[18]};
}

bool Ranks::broadcast(bool value) {
  communicator_->broadcast(std::as_writable_bytes(std::span(&value, 1)), 0);
  return value;
}

std::string Ranks::broadcast(std::string text) {
  std::uint64_t size = text.size();
  communicator_->broadcast(std::as_writable_bytes(std::span(&size, 1)), 0);
  constexpr std::uint64_t kMost = 1 << 20;
  check(size <= kMost, "rank 0 sends a text of {} bytes", size);
  text.resize(size);
  if (size > 0) communicator_->broadcast(std::as_writable_bytes(std::span(text)), 0);
  return text;
}

void Ranks::must_agree(double value, const std::string& what, Shown shown) {
  const std::vector<double> all = communicator_->gather(value);
  const auto other = std::ranges::find_if(all, [&](double v) { return v != all[0]; });
  if (other == all.end()) return;
  const std::string first = name(0), second = name(static_cast<int>(other - all.begin()));
  const std::string difference = shown == Shown::yes
                                     ? fmt::format("is {} on {} and {} on {}", all[0], first, *other, second)
                                     : fmt::format("differ between {} and {}", first, second);
  throw UsageError("{} {}: every rank needs the same data", what, difference);
}

}  // namespace redline::train
