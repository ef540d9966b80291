// Tables as text, with a comma between cells: reading other people's, and writing ours.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace redline::report {

struct CsvTable {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;  // each as long as the header
  std::vector<std::size_t> lines;              // of each row in the file, from 1

  // Where a column is; -1 when there is none of that name.
  int column(std::string_view name) const;
};

// RFC 4180: cells may be quoted and then hold commas, quotes and line ends. Empty lines are left out; a byte
// order mark and \r\n are understood. Throws DataError naming file and line for a row of another length than
// the header's, an open quote, or a table of more than 256 MiB; IoError when it cannot be read.
CsvTable read_csv(const std::filesystem::path& path);
CsvTable parse_csv(std::string_view text, const std::string& name);

// The cell as it stands in a row: quoted where it must be. What a spreadsheet would take for a formula (= + -
// @ at the start of what is not a number) is quoted as text with a leading apostrophe.
std::string csv_cell(std::string_view text);
std::string csv_cell(double value);  // empty for NaN, the shortest text that reads back the same otherwise

// The cells of a row in which none is quoted; they point into the line.
std::vector<std::string_view> split_plain_row(std::string_view line);

// The whole cell as a number; NaN when it is none.
double number_of(std::string_view cell);

}  // namespace redline::report
