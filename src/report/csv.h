// Reads CSV tables from elsewhere and writes our own.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace redline::report {

struct CsvTable {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;  // each as long as the header
  std::vector<std::size_t> lines;              // line of each row in the file, from 1
  char separator = ',';                        // of cells

  // Index of a column; -1 if there is none of that name.
  int column(std::string_view name) const;
  // The whole cell as a number; NaN if it is not one. Where semicolons or tabs separate cells, as a
  // spreadsheet writes them in much of Europe, 0,5 is a half.
  double number(const std::string& cell) const;
};

// RFC 4180: quoted cells may hold commas, quotes and line ends. Empty lines are skipped; a byte order mark,
// \r\n, and semicolons or tabs for commas are accepted. Throws DataError with file and line for a row whose
// length differs from the header's, an unclosed quote, UTF-16, or a table over 256 MiB; IoError if it cannot
// be read.
CsvTable read_csv(const std::filesystem::path& path);
CsvTable parse_csv(std::string_view text, const std::string& name);

// A cell as written to a row, quoted where necessary. Text that a spreadsheet would take for a formula (it
// starts with = + - or @ and is not a number) gets a leading apostrophe.
std::string csv_cell(std::string_view text);
std::string csv_cell(
    double value);  // empty for NaN, else the shortest text that parses back to the same value

// The cells of a row without quotes; they point into the line.
std::vector<std::string_view> split_plain_row(std::string_view line);

// Without white space on either side.
std::string trimmed(std::string_view text);

// The whole cell as a number; NaN if it is not one.
double number_of(std::string_view cell);

}  // namespace redline::report
