#include "report/export.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "report/comparison.h"
#include "report/csv.h"

namespace redline::report {
namespace fs = std::filesystem;
namespace {

// A table being written. Rows are written as they come: a long run has millions.
class Table {
 public:
  Table(const fs::path& folder, std::string name, std::vector<std::string>& written)
      : name_(std::move(name)), file_(folder / name_, Sync::no), written_(written) {}

  void cell(const std::string& text) { put(csv_cell(text)); }
  void cell(double value) {
    if (value != value) return put("");
    separate();
    fmt::format_to(std::back_inserter(row_), "{}", value);
  }
  void cell(std::int64_t value) { put(std::to_string(value)); }
  void cell(const std::optional<double>& value) { put(value ? csv_cell(*value) : ""); }
  void names(const std::vector<std::string>& list) {
    for (const std::string& name : list) put(name);
    end_row();
    rows_ = 0;  // the header does not count
  }
  void end_row() {
    row_ += '\n';
    file_.write(row_);
    row_.clear();
    ++rows_;
  }
  // An empty table is not written.
  void finish() {
    if (rows_ == 0) return;
    file_.commit();
    written_.push_back(name_);
  }

 private:
  void separate() {
    if (!row_.empty()) row_ += ',';
  }
  void put(const std::string& text) {
    separate();  // the first cell, a run's name, is never empty
    row_ += text;
  }

  std::string name_;
  AtomicFile file_;
  std::vector<std::string>& written_;
  std::string row_;
  std::size_t rows_ = 0;
};

void write_summaries(const std::vector<const Run*>& runs, Table& table) {
  table.names({"run",
               "state",
               "started",
               "model",
               "data",
               "device",
               "dtype",
               "batch_size",
               "accumulate",
               "steps",
               "seconds",
               "median_step_seconds",
               "p90_step_seconds",
               "p99_step_seconds",
               "images_per_second",
               "images_per_second_low",
               "images_per_second_high",
               "images_per_second_at_median",
               "data_wait",
               "final_loss",
               "best_top1",
               "best_top5",
               "power_w",
               "energy_j",
               "joules_per_step",
               "images_per_joule",
               "temperature_c",
               "clock_mhz",
               "memory_bytes"});
  for (const Run* run : runs) {
    const RunSummary summary = summarize(*run);
    const auto of_step = [&](double Summary::*value) {
      return summary.step_seconds ? std::optional((*summary.step_seconds).*value) : std::nullopt;
    };
    const auto of_interval = [&](double ConfidenceInterval::*end) {
      const auto& interval = summary.images_per_second_interval;
      return interval ? std::optional((*interval).*end) : std::nullopt;
    };
    const auto of_best = [&](double metrics::Evaluation::*value) {
      return summary.best ? std::optional((*summary.best).*value) : std::nullopt;
    };
    const auto of_energy = [&](auto field) {
      return summary.energy ? std::optional<double>((*summary.energy).*field) : std::nullopt;
    };
    const metrics::RunInfo& info = run->info;
    for (const std::string& text : {run->name, std::string(name_of(summary.state)), info.started, info.model,
                                    info.data, info.device, info.dtype})
      table.cell(text);
    for (std::int64_t count : {info.batch_size, info.accumulate, summary.steps}) table.cell(count);
    table.cell(summary.seconds);
    for (const auto& value :
         {of_step(&Summary::median), of_step(&Summary::p90), of_step(&Summary::p99),
          summary.images_per_second, of_interval(&ConfidenceInterval::low),
          of_interval(&ConfidenceInterval::high), summary.images_per_second_at_median, summary.data_wait,
          summary.final_loss, of_best(&metrics::Evaluation::top1), of_best(&metrics::Evaluation::top5),
          of_energy(&Energy::power_w), of_energy(&Energy::joules), of_energy(&Energy::joules_per_step),
          of_energy(&Energy::images_per_joule), summary.temperature_c, summary.clock_mhz,
          summary.memory_bytes})
      table.cell(value);
    table.end_row();
  }
}

void write_energy(const std::vector<const Run*>& runs, Table& table) {
  table.names({"run", "epoch", "steps", "images", "joules"});
  for (const Run* run : runs) {
    const std::optional<Energy> energy = energy_of(*run);
    if (!energy) continue;
    for (const Energy::Epoch& epoch : energy->epochs) {
      table.cell(run->name);
      table.cell(epoch.epoch);
      table.cell(static_cast<std::int64_t>(epoch.steps));
      for (double value : {epoch.images, epoch.joules}) table.cell(value);
      table.end_row();
    }
  }
}

void write_changes(const std::vector<const Run*>& runs, bool judge_unlike, Table& table) {
  table.names({"group", "against", "quantity", "unit", "before", "after", "change", "low", "high", "evidence",
               "spread", "verdict"});
  if (runs.size() < 2) return;
  std::vector<RunSummary> summaries;
  for (const Run* run : runs) summaries.push_back(summarize(*run));
  const Compared compared = compare(runs, summaries, judge_unlike);
  for (std::size_t g = 1; g < compared.groups.size(); ++g) {
    for (const Comparison& row : compared.rows) {
      const std::optional<Change>& change = row.changes[g];
      const bool known = change && change->interval.coverage > 0;
      table.cell(compared.groups[g].name);
      table.cell(compared.groups[0].name);
      table.cell(row.name);
      table.cell(row.unit);
      table.cell(value_of(row, compared.groups[0]));
      table.cell(value_of(row, compared.groups[g]));
      table.cell(change ? std::optional(change->change) : std::nullopt);
      table.cell(known ? std::optional(change->interval.low) : std::nullopt);
      table.cell(known ? std::optional(change->interval.high) : std::nullopt);
      table.cell(std::string(change ? redline::name_of(change->evidence) : ""));
      table.cell(known ? std::optional(change->spread) : std::nullopt);
      table.cell(row.verdicts[g]);
      table.end_row();
    }
  }
}

void write_steps(const std::vector<const Run*>& runs, Table& table) {
  std::vector<std::string> names = {"run"};
  for (const StepColumn& column : step_columns()) names.emplace_back(column.name);
  table.names(names);
  for (const Run* run : runs) {
    for (std::size_t i = 0; i < run->steps.size(); ++i) {
      table.cell(run->name);
      for (const StepColumn& column : step_columns()) table.cell((run->steps.*column.values)[i]);
      table.end_row();
    }
  }
}

void write_evaluations(const std::vector<const Run*>& runs, Table& table) {
  table.names({"run", "step", "epoch", "weights", "loss", "top1", "top5", "samples", "seconds", "elapsed"});
  for (const Run* run : runs) {
    for (const metrics::Evaluation& evaluation : run->evaluations) {
      table.cell(run->name);
      table.cell(evaluation.step);
      table.cell(evaluation.epoch);
      table.cell(evaluation.weights);
      for (double value : {evaluation.loss, evaluation.top1, evaluation.top5}) table.cell(value);
      table.cell(evaluation.samples);
      for (double value : {evaluation.seconds, evaluation.elapsed}) table.cell(value);
      table.end_row();
    }
  }
}

void write_checkpoints(const std::vector<const Run*>& runs, Table& table) {
  table.names({"run", "step", "name", "bytes", "best", "stall_seconds", "write_seconds", "elapsed", "error"});
  for (const Run* run : runs) {
    for (const metrics::Checkpoint& checkpoint : run->checkpoints) {
      table.cell(run->name);
      table.cell(checkpoint.step);
      table.cell(checkpoint.name);
      table.cell(static_cast<std::int64_t>(checkpoint.bytes));
      table.cell(std::int64_t{checkpoint.best});
      for (double value : {checkpoint.stall_seconds, checkpoint.write_seconds, checkpoint.elapsed})
        table.cell(value);
      table.cell(checkpoint.error);
      table.end_row();
    }
  }
}

void write_notices(const std::vector<const Run*>& runs, Table& table) {
  table.names({"run", "step", "what", "text"});
  for (const Run* run : runs) {
    for (const metrics::Notice& notice : run->notices) {
      table.cell(run->name);
      table.cell(notice.step);
      table.cell(notice.what);
      table.cell(notice.text);
      table.end_row();
    }
    for (const std::string& problem : run->problems) {
      table.cell(run->name);
      table.cell(std::int64_t{0});
      table.cell(std::string("problem"));
      table.cell(problem);
      table.end_row();
    }
  }
}

// One row per value, since files of different versions have different columns.
void write_telemetry(const std::vector<const Run*>& runs, Table& table) {
  table.names({"run", "source", "seconds", "column", "value"});
  for (const Run* run : runs) {
    for (const Telemetry& telemetry : run->telemetry) {
      for (std::size_t i = 0; i < telemetry.seconds.size(); ++i) {
        for (const Telemetry::Column& column : telemetry.columns) {
          if (column.values[i] != column.values[i]) continue;
          table.cell(run->name);
          table.cell(telemetry.source);
          table.cell(telemetry.seconds[i]);
          table.cell(column.name);
          table.cell(static_cast<double>(column.values[i]));
          table.end_row();
        }
      }
    }
  }
}

}  // namespace

std::vector<std::string> write_csv(const std::vector<const Run*>& runs, const fs::path& folder,
                                   bool judge_unlike) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw IoError("cannot create {}: {}; choose another folder", folder.string(), error.message());
  using Write = void (*)(const std::vector<const Run*>&, Table&);
  const std::pair<const char*, Write> tables[] = {{"summary.csv", write_summaries},
                                                  {"steps.csv", write_steps},
                                                  {"evaluations.csv", write_evaluations},
                                                  {"checkpoints.csv", write_checkpoints},
                                                  {"notices.csv", write_notices},
                                                  {"telemetry.csv", write_telemetry},
                                                  {"energy.csv", write_energy}};
  std::vector<std::string> written;
  for (const auto& [name, write] : tables) {
    Table table(folder, name, written);
    write(runs, table);
    table.finish();
  }
  Table changes(folder, "changes.csv", written);
  write_changes(runs, judge_unlike, changes);
  changes.finish();
  return written;
}

}  // namespace redline::report
