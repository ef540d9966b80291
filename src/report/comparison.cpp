#include "report/comparison.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "report/settings.h"

namespace redline::report {
namespace {

using Optional = std::optional<double>;
using Better = Comparison::Better;
using Kind = Comparison::Kind;

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

// Options that only name a run and do not affect it.
bool names_a_run(std::string_view name) {
  return is_one_of(name, {"name", "started", "command", "run.name", "run.output_dir"});
}

bool makes_speed_unlike(std::string_view name) {
  return is_one_of(name, {"model.name", "data", "model.image_size", "model.classes", "schedule.train_sizes"});
}
bool makes_step_unlike(std::string_view name) {
  return is_one_of(name, {"optimizer.batch_size", "optimizer.accumulate"});
}
bool makes_loss_unlike(std::string_view name) {
  return is_one_of(name, {"data", "model.classes", "optimizer.label_smoothing", "augment.mixup_alpha",
                          "augment.cutmix_alpha"});
}
bool makes_accuracy_unlike(std::string_view name) {
  return is_one_of(name, {"data", "model.classes", "validation images"});
}

std::vector<double> values_in(const Comparison& row, const RunGroup& group) {
  std::vector<double> values;
  for (std::size_t i : group.runs)
    if (row.values[i]) values.push_back(*row.values[i]);
  return values;
}

// A quantity that is one number per run.
template <typename Value>
Comparison row_of(std::string name, std::string unit, Better better, Kind kind,
                  const std::vector<RunSummary>& summaries, Value value) {
  Comparison row{std::move(name), std::move(unit), better, kind, {}, {}, {}};
  for (const RunSummary& summary : summaries) row.values.push_back(value(summary));
  return row;
}

std::vector<Comparison> rows_of(const std::vector<const Run*>& runs, const std::vector<RunSummary>& all) {
  std::vector<Comparison> rows;
  const auto add = [&](const char* name, const char* unit, Better better, auto value, Kind kind = Kind::other,
                       Kind likeness = Kind::other) {
    rows.push_back(row_of(name, unit, better, kind, all, value));
    if (likeness != Kind::other) rows.back().likeness = likeness;
  };
  const auto of_steps = [](double Summary::*field) {
    return [field](const RunSummary& run) {
      return run.step_seconds ? Optional((*run.step_seconds).*field) : Optional();
    };
  };
  const auto of_energy = [](auto field) {
    return
        [field](const RunSummary& run) { return run.energy ? Optional((*run.energy).*field) : Optional(); };
  };
  add(
      "images per second", "1/s", Better::higher, [](const auto& run) { return run.images_per_second; },
      Kind::speed);
  if (std::ranges::any_of(runs, [](const Run* run) { return run->info.ranks > 1; })) {
    add(
        "images per second a rank", "1/s", Better::higher,
        [](const auto& run) { return run.images_per_second; }, Kind::other, Kind::speed);
    for (std::size_t i = 0; i < runs.size(); ++i)
      if (rows.back().values[i]) *rows.back().values[i] /= static_cast<double>(runs[i]->info.ranks);
  }
  add("median step", "s", Better::lower, of_steps(&Summary::median), Kind::step);
  add("99th percentile step", "s", Better::lower, of_steps(&Summary::p99), Kind::other, Kind::step);
  add(
      "waiting for data", "part", Better::lower, [](const auto& run) { return run.data_wait; }, Kind::other,
      Kind::speed);
  add(
      "best top-1", "part", Better::higher,
      [](const RunSummary& run) { return run.best ? Optional(run.best->top1) : Optional(); }, Kind::accuracy);
  add(
      "final training loss", "", Better::lower, [](const auto& run) { return run.final_loss; }, Kind::loss);
  add("mean power", "W", Better::lower, of_energy(&Energy::power_w));
  add("energy", "J", Better::lower, of_energy(&Energy::joules), Kind::other, Kind::speed);
  add("energy a step", "J", Better::lower, of_energy(&Energy::joules_per_step), Kind::other, Kind::step);
  add("images per joule", "1/J", Better::higher, of_energy(&Energy::images_per_joule), Kind::other,
      Kind::speed);
  add("median clock", "MHz", Better::neither, [](const auto& run) { return run.clock_mhz; });
  add("highest temperature", "°C", Better::neither, [](const auto& run) { return run.temperature_c; });
  add("most memory", "B", Better::lower, [](const auto& run) { return run.memory_bytes; });
  add(
      "duration", "s", Better::lower,
      [](const RunSummary& run) { return run.seconds > 0 ? Optional(run.seconds) : Optional(); }, Kind::other,
      Kind::speed);
  std::erase_if(rows,
                [](const Comparison& row) { return std::ranges::none_of(row.values, &Optional::has_value); });
  return rows;
}

Change inverse(const Change& change) {
  const auto turned = [](const ConfidenceInterval& interval) {
    return ConfidenceInterval{1 / (1 + interval.high) - 1, 1 / (1 + interval.low) - 1, interval.coverage};
  };
  Change result = change;
  result.change = 1 / (1 + change.change) - 1;
  result.interval = turned(change.interval);
  if (change.within) result.within = turned(*change.within);
  return result;
}

// Both accuracies are fractions of the evaluated samples, so their noise is binomial. This leaves out the
// effect of the seed, so it is not a confidence interval of the change.
Change compare_accuracies(const metrics::Evaluation& before, const metrics::Evaluation& after) {
  const auto variance = [](const metrics::Evaluation& evaluation) {
    return evaluation.top1 * (1 - evaluation.top1) /
           static_cast<double>(std::max<std::int64_t>(1, evaluation.samples));
  };
  Change change;
  change.count = 1;
  change.change = after.top1 - before.top1;
  change.evidence = Evidence::two_runs;
  change.interval = {change.change, change.change, 0};
  const double reach =
      normal_quantile(0.5 + kClaimConfidence / 2) * std::sqrt(variance(before) + variance(after));
  change.within = {change.change - reach, change.change + reach, kClaimConfidence};
  return change;
}

// One run per side.
std::optional<Change> compare_runs(const Comparison& row, const Run& before, const RunSummary& old_summary,
                                   const Run& after, const RunSummary& new_summary) {
  if (row.kind == Kind::accuracy && old_summary.best && new_summary.best &&
      std::isfinite(old_summary.best->top1) && std::isfinite(new_summary.best->top1))
    return compare_accuracies(*old_summary.best, *new_summary.best);
  if (!row.timed()) return {};
  const bool of_step = row.kind == Kind::step;
  const std::vector<double> old_seconds = of_step ? step_seconds(before) : seconds_per_image(before);
  const std::vector<double> new_seconds = of_step ? step_seconds(after) : seconds_per_image(after);
  if (old_seconds.empty() || new_seconds.empty()) return {};
  return of_step ? compare_medians(old_seconds, new_seconds)
                 : inverse(compare_means(old_seconds, new_seconds));
}

std::optional<Change> compare_groups(const Comparison& row, const RunGroup& first, const RunGroup& other) {
  const std::vector<double> before = values_in(row, first), after = values_in(row, other);
  if (before.empty() || after.empty()) return {};
  const auto finite = [](double value) { return std::isfinite(value); };
  if (!std::ranges::all_of(before, finite) || !std::ranges::all_of(after, finite)) return {};
  if (row.by_difference()) return compare_repeats_by_difference(before, after);
  const auto positive = [](double value) { return value > 0; };
  if (!std::ranges::all_of(before, positive) || !std::ranges::all_of(after, positive)) return {};
  return compare_repeats(before, after);
}

std::string verdict_of(const Comparison& row, const std::optional<Change>& change, bool comparable) {
  if (!comparable) return "unlike";
  if (!row.judged() || !change) return "";
  const Verdict verdict = change->verdict(row.kind == Kind::accuracy ? kSameAccuracy : kSameWithin);
  if (verdict == Verdict::same || verdict == Verdict::undecided) return redline::name_of(verdict);
  const bool good = (verdict == Verdict::more) == (row.better == Better::higher);
  if (row.kind == Kind::accuracy) return good ? "better" : "worse";
  return good ? "faster" : "slower";
}

// What of a group is not comparable with the first group, and why.
struct FirstUnlike {
  bool speed = false, step = false, accuracy = false, loss = false;
  std::vector<std::string> reasons;

  bool comparable(const Comparison& row) const {
    switch (row.likeness) {
      case Kind::speed:
        return !speed;
      case Kind::step:
        return !speed && !step;
      case Kind::accuracy:
        return !accuracy;
      case Kind::loss:
        return !loss;
      case Kind::other:
        break;
    }
    return true;
  }
};

FirstUnlike unlike_first(const std::vector<Difference>& rows, const std::vector<RunSummary>& summaries,
                         const RunGroup& first, const RunGroup& other) {
  FirstUnlike unlike;
  for (const Difference& row : rows) {
    const std::string &before = row.values[first.runs.front()], &after = row.values[other.runs.front()];
    if (before == after || before.empty() || after.empty()) continue;
    unlike.speed |= row.unlike_speed;
    unlike.step |= row.unlike_step;
    unlike.accuracy |= row.unlike_accuracy;
    unlike.loss |= row.unlike_loss;
    const char* what = row.unlike_speed && row.unlike_accuracy ? "speed and accuracy are"
                       : row.unlike_speed                      ? "speed is"
                       : row.unlike_accuracy                   ? "accuracy is"
                       : row.unlike_step                       ? "the time of a step is"
                       : row.unlike_loss                       ? "the training loss is"
                                                               : nullptr;
    if (what != nullptr)
      unlike.reasons.push_back(
          fmt::format("{} {} against {}: {} not comparable", row.name, after, before, what));
  }
  for (const RunGroup* group : {&first, &other}) {
    const auto done = [&](std::size_t i) { return summaries[i].state == State::finished; };
    if (std::ranges::all_of(group->runs, done) || !summaries[group->runs.front()].best) continue;
    unlike.accuracy = true;
    unlike.reasons.push_back(fmt::format("{} did not finish: accuracy is not comparable", group->name));
  }
  return unlike;
}

std::vector<std::string> advice_for(const std::vector<Comparison>& rows, std::size_t group, bool repeated) {
  std::vector<std::string> advice;
  // Whether a timed row has a verdict, or else an accuracy, and of which kind.
  const auto judged = [&](bool timed, std::string_view only = "") {
    return std::ranges::any_of(rows, [&](const Comparison& row) {
      const std::string& verdict = row.verdicts[group];
      return row.judged() && row.timed() == timed && !verdict.empty() && verdict != "unlike" &&
             (only.empty() || verdict == only);
    });
  };
  const auto untold = [&](const Comparison& row) {
    const std::optional<Change>& change = row.changes[group];
    return row.timed() && row.verdicts[group] == "undecided" && change->interval.coverage <= 0;
  };
  if (!repeated && std::ranges::any_of(rows, untold))
    advice.push_back(
        "too few steps, or too uneven, to compare speeds: use longer runs on a quiet machine, or 'redline "
        "bench ab', which alternates repeats of both");
  else if (!repeated && judged(/*timed=*/true))
    advice.push_back(
        "one run per side: this compares these two runs only, and assumes a spread of at least 1% between "
        "runs; 'redline bench ab', which alternates repeats of both, settles it");
  if (repeated && judged(/*timed=*/true, "undecided"))
    advice.emplace_back("the runs vary too much to tell; more repeats narrow the interval");
  if (!repeated && judged(/*timed=*/false))
    advice.emplace_back(
        "one seed per side: the effect of the seed is unknown; repeat both with other values of --seed");
  if (repeated && judged(/*timed=*/false, "undecided"))
    advice.emplace_back("accuracies vary too much between seeds to tell; more seeds narrow the interval");
  return advice;
}

}  // namespace

std::vector<Difference> differences(const std::vector<const Run*>& runs) {
  SettingTable table(runs.size());
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (const WorkFact& fact : work_of(*runs[i])) table.put(i, fact.option, fact.value);
    if (!runs[i]->info.model.empty())
      table.put(i, "validation images", std::to_string(runs[i]->info.val_samples));
  }
  for (const Pairs Run::*list : {&Run::options, &Run::facts})
    for (std::size_t i = 0; i < runs.size(); ++i)
      for (const auto& [name, value] : runs[i]->*list) table.put(i, name, value);
  std::vector<Difference> found;
  for (const Setting& row : table.settings()) {
    const bool same = std::ranges::all_of(
        row.values, [&](const std::string& value) { return value == row.values.front(); });
    if (!same && !names_a_run(row.name))
      found.push_back({row.name, row.values, makes_speed_unlike(row.name), makes_step_unlike(row.name),
                       makes_accuracy_unlike(row.name), makes_loss_unlike(row.name)});
  }
  return found;
}

std::vector<RunGroup> groups_of(const std::vector<const Run*>& runs) {
  std::vector<Difference> settings = differences(runs);
  std::erase_if(settings, [](const Difference& row) { return row.name == "run.seed"; });
  std::vector<RunGroup> groups;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto same = [&](const RunGroup& group) {
      return std::ranges::all_of(
          settings, [&](const Difference& row) { return row.values[i] == row.values[group.runs.front()]; });
    };
    const auto at = std::ranges::find_if(groups, same);
    if (at == groups.end()) {
      groups.push_back({runs[i]->name, {i}});
    } else {
      at->runs.push_back(i);
    }
  }
  // If all runs are alike, they are compared with each other: each is a separate group.
  if (groups.size() == 1) {
    groups.clear();
    for (std::size_t i = 0; i < runs.size(); ++i) groups.push_back({runs[i]->name, {i}});
  }
  for (RunGroup& group : groups)
    if (const std::size_t more = group.runs.size() - 1; more > 0)
      group.name += fmt::format(" and {} {}", more, more == 1 ? "repeat" : "repeats");
  return groups;
}

std::optional<double> value_of(const Comparison& row, const RunGroup& group) {
  const std::vector<double> values = values_in(row, group);
  if (values.empty()) return {};
  const bool ratio =
      !row.by_difference() && std::ranges::all_of(values, [](double value) { return value > 0; });
  return ratio ? geometric_mean(values) : mean(values);
}

Compared compare(const std::vector<const Run*>& runs, const std::vector<RunSummary>& summaries,
                 bool judge_unlike) {
  Compared result;
  result.groups = groups_of(runs);
  result.differences = differences(runs);
  result.rows = rows_of(runs, summaries);
  const std::size_t count = result.groups.size();
  result.unlike.resize(count);
  result.advice.resize(count);
  for (Comparison& row : result.rows) {
    row.changes.resize(count);
    row.verdicts.resize(count);
  }
  for (std::size_t g = 1; g < count; ++g) {
    const RunGroup &first = result.groups.front(), &other = result.groups[g];
    const FirstUnlike unlike = unlike_first(result.differences, summaries, first, other);
    result.unlike[g] = unlike.reasons;
    if (judge_unlike) {
      for (std::string& reason : result.unlike[g]) reason += ", and compared all the same";
    }
    const bool repeated = first.runs.size() > 1 || other.runs.size() > 1;
    for (Comparison& row : result.rows) {
      const std::size_t a = first.runs.front(), b = other.runs.front();
      row.changes[g] = repeated ? compare_groups(row, first, other)
                                : compare_runs(row, *runs[a], summaries[a], *runs[b], summaries[b]);
      row.verdicts[g] = verdict_of(row, row.changes[g], unlike.comparable(row) || judge_unlike);
    }
    result.advice[g] = advice_for(result.rows, g, repeated);
  }
  return result;
}

}  // namespace redline::report
