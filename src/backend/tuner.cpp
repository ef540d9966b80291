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
    if (const auto known = remembered(questions[i], choices)) {
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

}  // namespace redline::backend
