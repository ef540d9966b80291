#include "report/metrics_lines.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/statistics.h"
#include "metrics/jsonl.h"

namespace redline::report {
namespace {

constexpr std::size_t kMostText =
    4096;  // bytes of one name or message: nobody reads more, and it must fit in a page

std::int64_t whole(double value) {
  return std::isfinite(value) && std::abs(value) < 9e15 ? static_cast<std::int64_t>(value) : 0;
}

}  // namespace

// One line as a flat list of names and values; nested ones are named "outer.inner". Filled by the JSON
// parser's events. Its memory is reused, since a long run has a million lines.
class MetricsLines::Object final : public nlohmann::json::json_sax_t {
 public:
  struct Field {
    std::string key, text;
    double number = kNaN;
    bool is_text = false;
  };

  bool parse(std::string_view line) {
    count_ = 0;
    depth_ = 0;
    prefix_.clear();
    return nlohmann::json::sax_parse(line.begin(), line.end(), this) && count_ > 0;
  }

  std::size_t size() const { return count_; }
  const Field& field(std::size_t i) const { return fields_[i]; }

  const Field* find(std::string_view key) const {
    for (std::size_t i = 0; i < count_; ++i)
      if (fields_[i].key == key) return &fields_[i];
    return nullptr;
  }
  double number(std::string_view key) const {
    const Field* found = find(key);
    return found == nullptr ? kNaN : found->number;
  }
  std::int64_t integer(std::string_view key) const { return whole(number(key)); }
  std::string text(std::string_view key) const {
    const Field* found = find(key);
    return found == nullptr ? "" : found->text;
  }

  // The parser's events.
  bool null() override { return put(kNaN); }
  bool boolean(bool value) override { return put(value ? 1 : 0); }
  bool number_integer(std::int64_t value) override { return put(static_cast<double>(value)); }
  bool number_unsigned(std::uint64_t value) override { return put(static_cast<double>(value)); }
  bool number_float(double value, const std::string&) override { return put(value); }
  bool binary(nlohmann::json::binary_t&) override { return false; }
  bool string(std::string& value) override {
    if (in_array_ > 0 || key_.empty()) return true;
    Field& field = next();
    field.text.assign(value, 0, kMostText);
    field.number = kNaN;
    field.is_text = true;
    // Numbers that JSON cannot represent are null, followed by the value as text.
    if (field.key.ends_with("_text") && count_ >= 2) {
      Field& before = fields_[count_ - 2];
      const bool same = field.key.compare(0, field.key.size() - 5, before.key) == 0;
      if (same && value == "inf") before.number = std::numeric_limits<double>::infinity();
      if (same && value == "-inf") before.number = -std::numeric_limits<double>::infinity();
    }
    return true;
  }
  bool start_object(std::size_t) override {
    if (++depth_ > 2) return depth_ < 64;
    if (depth_ == 2 && in_array_ == 0) prefix_ = key_ + ".";
    return true;
  }
  bool end_object() override {
    if (--depth_ == 1) prefix_.clear();
    return true;
  }
  bool key(std::string& value) override {
    if (depth_ <= 2) key_.assign(value, 0, kMostText);
    return true;
  }
  bool start_array(std::size_t) override { return depth_ > 0 && ++in_array_ < 64; }
  bool end_array() override {
    --in_array_;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    in_array_ = 0;
    return false;
  }

 private:
  bool put(double number) {
    if (in_array_ > 0 || key_.empty()) return true;
    Field& field = next();
    field.number = number;
    field.is_text = false;
    field.text.clear();
    return true;
  }
  Field& next() {
    if (count_ == fields_.size()) fields_.emplace_back();
    Field& field = fields_[count_++];
    field.key.assign(prefix_).append(key_);
    return field;
  }

  std::vector<Field> fields_;
  std::size_t count_ = 0;
  int depth_ = 0, in_array_ = 0;
  std::string key_, prefix_;
};

const std::vector<StepColumn>& step_columns() {
  static const std::vector<StepColumn> columns = {
      {"step", &Steps::step},
      {"epoch", &Steps::epoch},
      {"loss", &Steps::loss},
      {"top1", &Steps::top1},
      {"top5", &Steps::top5},
      {"lr", &Steps::learning_rate},
      {"gradient_norm", &Steps::gradient_norm},
      {"loss_scale", &Steps::loss_scale},
      {"samples", &Steps::samples},
      {"seconds", &Steps::seconds},
      {"gap_seconds", &Steps::gap_seconds},
      {"data_seconds", &Steps::data_seconds},
      {"host_seconds", &Steps::host_seconds},
      {"exchange_seconds", &Steps::exchange_seconds},
      {"evaluation_seconds", &Steps::evaluation_seconds},
      {"checkpoint_seconds", &Steps::checkpoint_seconds},
      {"elapsed", &Steps::elapsed},
      {"communication_seconds", &Steps::communication_seconds},
      {"slowest_rank", &Steps::slowest_rank},
      {"slowest_seconds", &Steps::slowest_seconds},
  };
  return columns;
}

std::optional<metrics::Target> MetricsLines::target_of(const Object& object) {
  const double wanted = object.number("target_accuracy");
  if (!std::isfinite(wanted)) return std::nullopt;
  return metrics::Target{wanted, object.number("best_top1"), object.integer("best_step"),
                         object.integer("best_epoch"), object.number("best_elapsed")};
}

metrics::Gap MetricsLines::gap_of(const Object& object) {
  const auto seconds = [&](const char* key) {
    const double value = object.number(key);
    return std::isfinite(value) ? value : 0;
  };
  return {seconds("data_seconds"), seconds("host_seconds"), seconds("exchange_seconds"),
          seconds("evaluation_seconds"), seconds("checkpoint_seconds")};
}

MetricsLines::MetricsLines(Run& run) : run_(run), object_(std::make_unique<Object>()) {}
MetricsLines::~MetricsLines() = default;

void MetricsLines::restart() {
  run_.info = {};
  run_.steps = {};
  run_.evaluations.clear();
  run_.checkpoints.clear();
  run_.notices.clear();
  run_.end.reset();
  run_.resumes = 0;
  lines_ = damaged_ = first_damaged_ = unknown_ = 0;
  version_ = 0;
}

// A repeated step replaces everything recorded from it on.
void MetricsLines::forget_from(double step) {
  Steps& steps = run_.steps;
  const auto kept = static_cast<std::size_t>(std::ranges::lower_bound(steps.step, step) - steps.step.begin());
  for (const StepColumn& column : step_columns()) (steps.*column.values).resize(kept);
  while (!steps.begins.empty() && steps.begins.back() >= kept) steps.begins.pop_back();
  std::erase_if(run_.evaluations,
                [&](const auto& evaluation) { return static_cast<double>(evaluation.step) >= step; });
}

void MetricsLines::add_step(const Object& object) {
  Steps& steps = run_.steps;
  const double step = object.number("step");
  if (!(step >= 1 && step < 1e15)) {
    ++damaged_;
    if (first_damaged_ == 0) first_damaged_ = lines_;
    return;
  }
  if (!steps.step.empty() && step <= steps.step.back()) forget_from(step);
  const auto& columns = step_columns();
  for (const StepColumn& column : columns) (steps.*column.values).push_back(kNaN);
  // Fields come in the order of the columns, so search from where the last one was found.
  std::size_t at = 0;
  for (std::size_t i = 0; i < object.size(); ++i) {
    const Object::Field& field = object.field(i);
    for (std::size_t tried = 0; tried < columns.size(); ++tried, at = (at + 1) % columns.size()) {
      if (field.key != columns[at].name) continue;
      (steps.*columns[at].values).back() = field.number;
      break;
    }
  }
  complete_gap();
  if (object.number("skipped") == 1) ++steps.skipped;
}

void MetricsLines::complete_gap() {
  Steps& steps = run_.steps;
  double& gap = steps.gap_seconds.back();
  if (std::isnan(gap)) {  // version 1: the seconds include the wait
    gap = steps.data_seconds.back();
    if (std::isfinite(gap)) steps.seconds.back() = std::max(0.0, steps.seconds.back() - gap);
  }
  if (std::isnan(gap)) return;
  for (auto* cause : {&steps.data_seconds, &steps.host_seconds, &steps.exchange_seconds,
                      &steps.evaluation_seconds, &steps.checkpoint_seconds})
    if (std::isnan(cause->back())) cause->back() = 0;
}

void MetricsLines::add_first(const Object& object) {
  metrics::RunInfo& info = run_.info;
  version_ = object.number("version");
  info.name = object.text("name");
  info.started = object.text("started");
  info.version = object.text("program.version");
  info.commit = object.text("program.commit");
  info.model = object.text("model");
  info.data = object.text("data");
  info.device = object.text("device");
  info.dtype = object.text("dtype");
  info.optimizer = object.text("optimizer");
  info.classes = object.integer("classes");
  info.image_size = object.integer("image_size");
  info.batch_size = object.integer("batch_size");
  info.accumulate = std::max<std::int64_t>(1, object.integer("accumulate"));
  info.ranks = std::max<std::int64_t>(1, object.integer("ranks"));
  info.parameters = object.integer("parameters");
  info.train_samples = object.integer("train_samples");
  info.val_samples = object.integer("val_samples");
  info.steps_per_epoch = object.integer("steps_per_epoch");
  info.total_steps = object.integer("total_steps");
  info.seed = static_cast<std::uint64_t>(std::max<std::int64_t>(0, object.integer("seed")));
  run_.steps.begins.push_back(run_.steps.size());
}

void MetricsLines::add(std::string_view line) {
  ++lines_;
  if (line.empty()) return;
  Object& object = *object_;
  const bool parsed = object.parse(line);
  const std::string kind = parsed ? object.text("kind") : "";
  if (kind.empty()) {
    ++damaged_;
    if (first_damaged_ == 0) first_damaged_ = lines_;
  } else if (kind == "step") {
    run_.end.reset();  // it continues
    add_step(object);
  } else if (kind == "run") {
    add_first(object);
  } else if (kind == "evaluation") {
    run_.evaluations.push_back({object.integer("step"), object.integer("epoch"), object.text("weights"),
                                object.number("loss"), object.number("top1"), object.number("top5"),
                                object.integer("samples"), object.number("seconds"),
                                object.number("elapsed")});
  } else if (kind == "checkpoint") {
    run_.checkpoints.push_back(
        {object.integer("step"), object.text("name"), static_cast<std::uint64_t>(object.integer("bytes")),
         object.number("best") == 1, object.number("stall_seconds"), object.number("interval_seconds"),
         object.number("write_seconds"), object.number("elapsed"), object.text("error")});
  } else if (kind == "notice") {
    run_.notices.push_back({object.integer("step"), object.text("what"), object.text("text")});
  } else if (kind == "resume") {
    run_.end.reset();
    ++run_.resumes;
    run_.steps.begins.push_back(run_.steps.size());
  } else if (kind == "end") {
    const double joules = object.number("energy_j");
    run_.end = {object.text("reason"),
                object.text("detail"),
                object.integer("steps"),
                object.integer("samples"),
                object.integer("skipped_steps"),
                object.number("seconds"),
                object.number("step_seconds"),
                gap_of(object),
                object.number("communication_seconds"),
                object.text("ranks"),
                std::isfinite(joules) ? std::optional(joules) : std::nullopt,
                object.integer("energy_steps"),
                object.integer("energy_samples"),
                target_of(object)};
  } else {
    ++unknown_;
  }
}

std::vector<std::string> MetricsLines::problems() const {
  std::vector<std::string> found;
  if (lines_ == 0) {
    found.emplace_back("metrics.jsonl is missing or empty: the report has no numbers");
    return found;
  }
  if (version_ == 0) found.emplace_back("metrics.jsonl lacks its first line, which says what was run");
  if (version_ > metrics::kJsonlVersion)
    found.push_back(
        fmt::format("metrics.jsonl has version {}, newer than this program's {}: new fields are not shown",
                    version_, metrics::kJsonlVersion));
  if (damaged_ > 0)
    found.push_back(fmt::format("metrics.jsonl: damaged lines skipped: {} of {}, the first is line {}",
                                damaged_, lines_, first_damaged_));
  if (unknown_ > 0)
    found.push_back(fmt::format("metrics.jsonl: lines of unknown kinds skipped: {}", unknown_));
  return found;
}

}  // namespace redline::report
