#include "report/csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>

#include <fmt/format.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/quantity.h"
#include "base/statistics.h"
#include "base/text.h"

namespace redline::report {
namespace {

constexpr std::uintmax_t kLargest = std::uintmax_t{256} << 20;

// Reads the text cell by cell.
class Scanner {
 public:
  Scanner(std::string_view text, char separator, const std::string& name)
      : text_(text), separator_(separator), name_(name) {}

  bool at_end() const { return at_ >= text_.size(); }
  std::size_t line() const { return line_; }

  std::vector<std::string> row() {
    std::vector<std::string> cells;
    bool more = true;
    while (more) {
      cells.push_back(cell());
      more = !at_end() && text_[at_] == separator_;
      if (more) ++at_;
    }
    if (!at_end() && text_[at_] == '\r') ++at_;
    if (!at_end() && text_[at_] == '\n') ++at_, ++line_;
    return cells;
  }

 private:
  std::string cell() {
    if (!at_end() && text_[at_] == '"') return quoted();
    const std::size_t begin = at_;
    while (!at_end() && text_[at_] != separator_ && text_[at_] != '\n') ++at_;
    std::size_t end = at_;
    if (end > begin && text_[end - 1] == '\r' && (at_end() || text_[at_] == '\n')) --end;
    return std::string(text_.substr(begin, end - begin));
  }

  std::string quoted() {
    const std::size_t opened = line_;
    std::string cell;
    for (++at_;; ++at_) {
      if (at_end()) throw DataError("{}:{}: a quote is never closed", name_, opened);
      if (text_[at_] == '\n') ++line_;
      if (text_[at_] != '"') {
        cell += text_[at_];
      } else if (at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
        cell += text_[at_++];
      } else {
        ++at_;
        break;
      }
    }
    if (!at_end() && text_[at_] != separator_ && text_[at_] != '\n' && text_[at_] != '\r')
      throw DataError("{}:{}: a {} or a line end must follow a closing quote", name_, line_,
                      separator_ == ',' ? "comma" : "separator");
    return cell;
  }

  std::string_view text_;
  char separator_;
  const std::string& name_;
  std::size_t at_ = 0, line_ = 1;
};

// What the header has most of, outside quotes; a comma if it has none.
char separator_of(std::string_view text) {
  std::size_t commas = 0, semicolons = 0, tabs = 0;
  bool quoted = false;
  for (char c : text) {
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    if (c == '\n' && commas + semicolons + tabs > 0) break;
    commas += c == ',' ? 1 : 0;
    semicolons += c == ';' ? 1 : 0;
    tabs += c == '\t' ? 1 : 0;
  }
  if (semicolons > std::max(commas, tabs)) return ';';
  return tabs > std::max(commas, semicolons) ? '\t' : ',';
}

}  // namespace

std::string trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin));
}

int CsvTable::column(std::string_view name) const {
  const auto found = std::ranges::find(header, name);
  return found == header.end() ? -1 : static_cast<int>(found - header.begin());
}

double CsvTable::number(const std::string& cell) const {
  const std::size_t comma = separator == ',' ? std::string::npos : cell.find(',');
  if (comma == std::string::npos || cell.find_first_of(",.", comma + 1) != std::string::npos)
    return number_of(cell);
  std::string point = cell;
  point[comma] = '.';
  return number_of(point);
}

CsvTable parse_csv(std::string_view text, const std::string& name) {
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"))
    throw DataError("{}: the file is UTF-16; save it as CSV in UTF-8", name);
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  CsvTable table;
  table.separator = separator_of(text);
  for (Scanner scanner(text, table.separator, name); !scanner.at_end();) {
    const std::size_t line = scanner.line();
    std::vector<std::string> row = scanner.row();
    if (row.size() == 1 && row.front().empty()) continue;
    if (table.header.empty()) {
      std::ranges::transform(row, std::back_inserter(table.header), trimmed);
      continue;
    }
    if (row.size() != table.header.size()) {
      throw DataError("{}:{}: {}, where the header has {}", name, line,
                      counted(static_cast<std::int64_t>(row.size()), "cell"), table.header.size());
    }
    table.rows.push_back(std::move(row));
    table.lines.push_back(line);
  }
  if (table.header.empty()) throw DataError("{}: the file is empty", name);
  return table;
}

CsvTable read_csv(const std::filesystem::path& path) {
  std::error_code ignored;
  const std::uintmax_t size = std::filesystem::file_size(path, ignored);
  if (!ignored && size > kLargest)
    throw DataError("{}: {} MiB is too large for a table; split it", path.string(), size >> 20);
  return parse_csv(read_file(path), path.string());
}

std::string csv_cell(std::string_view text) {
  const bool formula = !text.empty() &&
                       std::string_view("=+-@\t").find(text.front()) != std::string_view::npos &&
                       std::isnan(number_of(text));
  return csv_quoted(formula ? "'" + std::string(text) : std::string(text));
}

std::string csv_cell(double value) { return std::isnan(value) ? "" : fmt::format("{}", value); }

std::vector<std::string_view> split_plain_row(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  std::vector<std::string_view> cells;
  for (std::size_t end; (end = line.find(',')) != std::string_view::npos; line.remove_prefix(end + 1))
    cells.push_back(line.substr(0, end));
  cells.push_back(line);
  return cells;
}

double number_of(std::string_view cell) {
  while (cell.starts_with(' ')) cell.remove_prefix(1);
  while (cell.ends_with(' ')) cell.remove_suffix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  return error == std::errc() && end == cell.data() + cell.size() ? value : kNaN;
}

}  // namespace redline::report
