#include "report/counters.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "base/atomic_file.h"
#include "base/error.h"
#include "report/csv.h"

namespace redline::report {
namespace {

using profile::CountedKernel;

// ncu writes numbers as "1,234.5", and "n/a" or "" for no value.
std::optional<double> value_of(std::string cell) {
  std::erase(cell, ',');
  if (cell.empty() || cell == "n/a" || cell == "nan") return {};
  const double value = number_of(cell);
  return std::isnan(value) ? std::nullopt : std::optional(value);
}

// The factor of a unit: 1e6 for "Mbyte".
double scale_of(std::string_view unit) {
  constexpr std::pair<std::string_view, double> kScales[] = {
      {"Kbyte", 1e3}, {"Mbyte", 1e6}, {"Gbyte", 1e9}, {"Tbyte", 1e12}, {"Kcycle", 1e3}, {"Mcycle", 1e6}};
  for (const auto& [name, scale] : kScales) {
    if (unit == name) return scale;
  }
  return 1;
}

bool is_no_value(const std::string& cell) { return cell.empty() || cell == "n/a" || cell == "nan"; }

void put(CountedKernel& kernel, const std::string& metric, const std::string& cell, std::string_view unit,
         const std::string& name, std::size_t line) {
  const auto value = value_of(cell);
  if (value) {
    kernel.values[metric] = *value * scale_of(unit);
  } else if (!is_no_value(cell)) {
    throw DataError("{}:{}: the value of {} is '{}', which is not a number", name, line, metric, cell);
  }
}

std::vector<CountedKernel> from_long(const CsvTable& table, int id, int kernel, const std::string& name) {
  const int metric = table.column("Metric Name"), unit = table.column("Metric Unit"),
            value = table.column("Metric Value"), section = table.column("Section Name"),
            process = table.column("Process ID");
  if (unit < 0 || value < 0)
    throw DataError("{}: a table of counters needs the columns Metric Unit and Metric Value", name);
  std::vector<CountedKernel> kernels;
  std::map<std::pair<std::string, std::string>, std::size_t> known;  // process and id
  const auto cell = [](const std::vector<std::string>& row, int column) {
    return column < 0 ? std::string() : row[static_cast<std::size_t>(column)];
  };
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const auto& row = table.rows[i];
    const auto [at, added] = known.try_emplace({cell(row, process), cell(row, id)}, kernels.size());
    if (added) kernels.push_back({cell(row, kernel), cell(row, section), {}});
    if (cell(row, metric).find("__") == std::string::npos) continue;  // ncu's own derived figures
    put(kernels[at->second], cell(row, metric), cell(row, value), cell(row, unit), name, table.lines[i]);
  }
  return kernels;
}

std::vector<CountedKernel> from_wide(const CsvTable& table, int id, int kernel, const std::string& name) {
  std::vector<CountedKernel> kernels;
  std::vector<std::string> units(table.header.size());
  bool any = false;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const auto& row = table.rows[i];
    if (i == 0 && row[static_cast<std::size_t>(id)].empty()) {
      units = row;
      continue;
    }
    CountedKernel counted{row[static_cast<std::size_t>(kernel)], "", {}};
    for (std::size_t column = 0; column < row.size(); ++column) {
      if (table.header[column].find("__") == std::string::npos) continue;
      any = true;
      put(counted, table.header[column], row[column], units[column], name, table.lines[i]);
    }
    kernels.push_back(std::move(counted));
  }
  if (!any && !kernels.empty()) throw DataError("{}: no column is a counter", name);
  return kernels;
}

}  // namespace

std::vector<CountedKernel> parse_counters(std::string_view text, const std::string& name) {
  // ncu writes "==PROF== ..." lines, and the program its own, before the table.
  const std::size_t start = text.find("\"ID\",");
  const std::size_t plain = text.find("ID,");
  if (start != std::string_view::npos) {
    text.remove_prefix(start);
  } else if (plain != std::string_view::npos && (plain == 0 || text[plain - 1] == '\n')) {
    text.remove_prefix(plain);
  } else {
    throw DataError("{}: no table of counters found: its first column is ID; write it with `ncu --csv`",
                    name);
  }
  const CsvTable table = parse_csv(text, name);
  const int id = table.column("ID"), kernel = table.column("Kernel Name");
  if (kernel < 0) throw DataError("{}: a table of counters needs the column Kernel Name", name);
  return table.column("Metric Name") >= 0 ? from_long(table, id, kernel, name)
                                          : from_wide(table, id, kernel, name);
}

std::vector<CountedKernel> read_counters(const std::filesystem::path& path) {
  return parse_counters(read_file(path), path.string());
}

}  // namespace redline::report
