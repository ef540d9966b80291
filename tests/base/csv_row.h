// A row of a table without quotes, read by the names of its columns.
#pragma once

#include <map>
#include <sstream>
#include <string>

namespace redline {

inline std::map<std::string, std::string> csv_row(const std::string& header, const std::string& row) {
  std::map<std::string, std::string> cells;
  std::istringstream names(header), values(row);
  for (std::string name, value; std::getline(names, name, ',') && std::getline(values, value, ',');)
    cells[name] = value;
  return cells;
}

}  // namespace redline
