#include "backend/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <utility>

#include "base/atomic_file.h"
#include "base/log.h"

namespace redline::backend {

// A line is a key, a space, and a name, which may have spaces in it.
Choices::Choices(std::string file) : file_(std::move(file)) {
  std::ifstream in(file_);
  std::string key, name;
  while (in >> key && std::getline(in >> std::ws, name)) names_[key] = name;
}

std::optional<std::string> Choices::find(const std::string& key) const {
  const auto it = names_.find(key);
  return it == names_.end() ? std::nullopt : std::optional(it->second);
}

void Choices::put(const std::string& key, std::string name) {
  names_[key] = std::move(name);
  changed_ = true;
}

void Choices::save() {
  if (!std::exchange(changed_, false) || file_.empty()) return;
  try {
    std::filesystem::create_directories(std::filesystem::path(file_).parent_path());
    AtomicFile out(file_, Sync::no);
    for (const auto& [key, name] : names_) out.write(fmt::format("{} {}\n", key, name));
    out.commit();
  } catch (const std::exception& error) {
    log_warning("cannot save the choice of kernels: {}", error.what());
  }
}

namespace {

std::optional<std::size_t> remembered(const Question& question, const Choices& choices) {
  const auto name = choices.find(question.key);
  if (!name) return std::nullopt;
  const auto found = std::ranges::find(question.candidates, *name);
  if (found == question.candidates.end()) return std::nullopt;
  return static_cast<std::size_t>(found - question.candidates.begin());
}

}  // namespace

std::vector<std::size_t> tune(const std::vector<Question>& questions, Choices& choices,
                              const TuningRules& rules) {
  std::vector<std::size_t> answers(questions.size(), 0), open;
  for (std::size_t i = 0; i < questions.size(); ++i) {
    if (const auto known = remembered(questions[i], choices); known && !rules.again) {
      answers[i] = *known;
    } else if (questions[i].candidates.size() > 1) {
      open.push_back(i);
    }
  }
  if (open.empty() || *rules.seconds <= 0) return answers;
  std::ranges::stable_sort(open, std::ranges::greater{}, [&](std::size_t i) { return questions[i].value; });
  const double end = rules.clock() + *rules.seconds;
  bool stopped = false;
  std::int64_t answered = 0;
  const auto go_on = [&] {
    stopped = stopped || rules.clock() >= end || (rules.stop && rules.stop());
    return !stopped;
  };
  const auto tell = [&] {
    if (rules.progress) rules.progress(answered, static_cast<std::int64_t>(open.size()));
  };
  tell();
  for (const std::size_t i : open) {
    const Question& question = questions[i];
    double best = std::numeric_limits<double>::infinity();
    bool runs = false;
    for (std::size_t c = 0; c < question.candidates.size() && go_on(); ++c) {
      const double seconds = question.time(c, best);
      log_debug("{}, {}: {} s", question.key, question.candidates[c], seconds);
      if (seconds >= best) continue;
      best = seconds;
      answers[i] = c;
      runs = true;
    }
    if (stopped) break;
    if (runs && question.complete) choices.put(question.key, question.candidates[answers[i]]);
    ++answered;
    tell();
  }
  *rules.seconds = std::max(0.0, end - rules.clock());
  choices.save();
  return answers;
}

namespace {

// As many pairs as show a difference at all times. Of so many, two losses are the most for a claim.
constexpr int kPairs = 8, kMostLosses = 2;

// Two steps measured in turns.
class Pairs {
 public:
  // Returns false if stopped. Ends early when the second step cannot turn out faster any more.
  bool measure(const TimedStep& first, const TimedStep& second, const std::function<bool()>& go_on) {
    for (int pair = 0, losses = 0; pair < kPairs && losses <= kMostLosses; ++pair) {
      if (!go_on()) return false;
      // Clocks and temperatures drift, so the order alternates.
      if (pair % 2 == 0) first_.push_back(first());
      second_.push_back(second());
      if (pair % 2 != 0) first_.push_back(first());
      losses += second_.back() >= first_.back() ? 1 : 0;
    }
    return true;
  }
  Change change() const { return compare_paired(first_, second_); }
  double first() const { return median(first_); }
  double second() const { return median(second_); }

 private:
  std::vector<double> first_, second_;
};

std::vector<std::size_t> by_value(const std::vector<Alternatives>& questions) {
  std::vector<std::size_t> order(questions.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::size_t i) { return questions[i].value; });
  return order;
}

}  // namespace

StepComparison compare_in_step(const std::vector<Alternatives>& questions, Choices& choices,
                               const StepRules& rules) {
  StepComparison found{std::vector<std::size_t>(questions.size(), 0)};
  const double end = rules.clock() + rules.seconds;
  const auto not_stopped = [&] { return !(found.stopped = found.stopped || (rules.stop && rules.stop())); };
  const auto go_on = [&] { return not_stopped() && rules.clock() < end; };
  const TimedStep first = rules.build(found.positions);
  if (first() * 2 * kPairs > rules.seconds) return found;  // no time for even one comparison
  TimedStep present = first;
  bool changed = false;
  std::int64_t compared = 0;
  for (const std::size_t i : by_value(questions)) {
    for (std::size_t c = 1; c < questions[i].candidates.size() && go_on(); ++c) {
      std::vector<std::size_t> positions = found.positions;
      positions[i] = c;
      const TimedStep next = rules.build(positions);
      Pairs pairs;
      if (!pairs.measure(present, next, go_on)) break;
      const Change change = pairs.change();
      log_debug("{}, {}: {} s a step, {} s with {}", questions[i].key, questions[i].candidates[c],
                pairs.second(), pairs.first(), questions[i].candidates[found.positions[i]]);
      if (!change.beyond_noise() || change.change > 0) continue;
      found.positions = std::move(positions);
      present = next;
      changed = true;
    }
    if (!go_on()) break;
    choices.put(questions[i].key, questions[i].candidates[found.positions[i]]);
    if (rules.progress) rules.progress(++compared, static_cast<std::int64_t>(questions.size()));
  }
  Pairs pairs;
  if (changed && pairs.measure(first, present, not_stopped)) {
    found.change = pairs.change();
    found.before = pairs.first();
    found.after = pairs.second();
  }
  choices.save();
  return found;
}

}  // namespace redline::backend
