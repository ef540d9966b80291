#include "backend/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
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

// A candidate is close if it takes at most so much longer than the fastest.
constexpr double kClose = 1.1;
// So many candidates are compared in the step, if they are worth at least this share of its time.
constexpr std::size_t kMostCompared = 4;
constexpr double kLeastShare = 0.002;

std::optional<std::size_t> remembered(const Question& question, const Choices& choices) {
  const auto name = choices.find(question.key);
  if (!name) return std::nullopt;
  const auto found = std::ranges::find(question.candidates, *name);
  if (found == question.candidates.end()) return std::nullopt;
  return static_cast<std::size_t>(found - question.candidates.begin());
}

// Positions of questions, by key and in order of their common value, the largest first.
struct Asked {
  std::vector<std::size_t> questions;
  double value = 0;
};
std::vector<Asked> by_key(const std::vector<Question>& questions) {
  std::map<std::string, std::size_t> position;
  std::vector<Asked> asked;
  for (std::size_t i = 0; i < questions.size(); ++i) {
    if (questions[i].candidates.size() < 2) continue;
    const auto [found, added] = position.try_emplace(questions[i].key, asked.size());
    if (added) asked.emplace_back();
    asked[found->second].questions.push_back(i);
    asked[found->second].value += questions[i].value;
  }
  std::ranges::stable_sort(asked, std::ranges::greater{}, &Asked::value);
  return asked;
}

// Times the candidates of a question while go_on() is true. Returns whether all were timed.
bool tune_one(const Question& question, Choices& choices, const std::function<bool()>& go_on,
              Answer& answer) {
  double best = std::numeric_limits<double>::infinity();
  std::vector<double> seconds;
  for (std::size_t c = 0; c < question.candidates.size() && go_on(); ++c) {
    seconds.push_back(question.time(c, best));
    log_debug("{}, {}: {} s", question.key, question.candidates[c], seconds[c]);
    if (seconds[c] >= best) continue;
    best = seconds[c];
    answer.candidate = c;
  }
  if (seconds.size() < question.candidates.size()) return false;
  if (best == std::numeric_limits<double>::infinity()) return true;
  for (std::size_t c = 0; c < seconds.size(); ++c) {
    if (c != answer.candidate && seconds[c] <= kClose * best) answer.close.push_back(c);
  }
  std::ranges::stable_sort(answer.close, {}, [&](std::size_t c) { return seconds[c]; });
  if (question.complete) choices.put(question.key, question.candidates[answer.candidate]);
  return true;
}

}  // namespace

std::vector<Answer> tune(const std::vector<Question>& questions, Choices& choices, const TuningRules& rules) {
  std::vector<Answer> answers(questions.size());
  std::vector<Asked> open;
  for (const Asked& asked : by_key(questions)) {
    const auto known = remembered(questions[asked.questions.front()], choices);
    if (!known || rules.again) open.push_back(asked);
    for (const std::size_t i : asked.questions) answers[i].candidate = known.value_or(0);
  }
  if (open.empty() || *rules.seconds <= 0) return answers;
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
  for (const Asked& asked : open) {
    Answer answer = answers[asked.questions.front()];
    const bool timed = tune_one(questions[asked.questions.front()], choices, go_on, answer);
    for (const std::size_t i : asked.questions) answers[i] = answer;
    if (!timed) break;
    ++answered;
    tell();
  }
  *rules.seconds = std::max(0.0, end - rules.clock());
  choices.save();
  return answers;
}

std::vector<Alternatives> alternatives_of(const std::vector<Question>& questions,
                                          const std::vector<Answer>& answers) {
  double step = 0;
  for (const Question& question : questions) step += question.value;
  std::vector<Alternatives> found;
  for (const Asked& asked : by_key(questions)) {
    const Question& question = questions[asked.questions.front()];
    const Answer& answer = answers[asked.questions.front()];
    if (answer.close.empty() || asked.value < kLeastShare * step) continue;
    Alternatives& one = found.emplace_back(Alternatives{question.key, asked.questions, {answer.candidate}});
    for (const std::size_t c : answer.close) {
      if (one.candidates.size() < kMostCompared) one.candidates.push_back(c);
    }
    for (const std::size_t c : one.candidates) one.names.push_back(question.candidates[c]);
  }
  return found;
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

}  // namespace

StepComparison compare_in_step(const std::vector<Alternatives>& all, Choices& choices,
                               const StepRules& rules) {
  StepComparison found{std::vector<std::size_t>(all.size(), 0)};
  const double end = rules.clock() + rules.seconds;
  const auto not_stopped = [&] { return !(found.stopped = found.stopped || (rules.stop && rules.stop())); };
  const auto go_on = [&] { return not_stopped() && rules.clock() < end; };
  const TimedStep first = rules.build(found.choice);
  if (first() * 2 * kPairs > rules.seconds) return found;  // no time for even one comparison
  TimedStep present = first;
  bool changed = false;
  std::int64_t compared = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t c = 1; c < all[i].names.size() && go_on(); ++c) {
      std::vector<std::size_t> choice = found.choice;
      choice[i] = c;
      const TimedStep next = rules.build(choice);
      Pairs pairs;
      if (!pairs.measure(present, next, go_on)) break;
      const Change change = pairs.change();
      log_debug("{}, {}: {} s a step, {} s with {}", all[i].key, all[i].names[c], pairs.second(),
                pairs.first(), all[i].names[found.choice[i]]);
      if (!change.beyond_noise() || change.change > 0) continue;
      found.choice = std::move(choice);
      present = next;
      changed = true;
    }
    const bool ended = !go_on();
    // What was taken is remembered even if not all of its rivals were compared.
    if (!ended || found.choice[i] > 0) choices.put(all[i].key, all[i].names[found.choice[i]]);
    if (ended) break;
    if (rules.progress) rules.progress(++compared, static_cast<std::int64_t>(all.size()));
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
