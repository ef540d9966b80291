#include "data/sources/class_list.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "data/file.h"
#include "data/sources/lines.h"

namespace redline::data {
namespace {

constexpr std::int64_t kMaxBytes = 32 << 20;

}  // namespace

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.front() != '.' && name.size() <= 200 &&
         name.find_first_of(std::string_view("/\0\n\r", 4)) == name.npos;
}

std::vector<std::string> parse_class_list(std::string_view text) {
  if (constexpr std::string_view kMark = "\xef\xbb\xbf"; text.starts_with(kMark))  // of Windows' editors
    text.remove_prefix(kMark.size());
  std::vector<std::string> classes;
  std::set<std::string_view> seen;
  int number = 0;
  for (std::string_view line; next_line(text, line);) {
    ++number;
    if (line.empty() && text.empty()) break;
    if (!is_plain_name(line))
      throw DataError("line {} is not the name of a class folder: '{}'", number, line.substr(0, 200));
    if (!seen.insert(line).second) throw DataError("line {}: class {} is listed twice", number, line);
    classes.emplace_back(line);
  }
  if (classes.empty()) throw DataError("it lists no classes");
  return classes;
}

std::optional<std::vector<std::string>> read_class_list(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kClassesFile;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  try {
    return parse_class_list(read_text(path, kMaxBytes));
  } catch (const DataError& error) {
    throw DataError("{}: {}", path.string(), error.what());
  } catch (const IoError& error) {
    throw IoError("{}: {}", path.string(), error.what());
  }
}

std::string class_list_text(const std::vector<std::string>& classes) {
  std::string text;
  for (const std::string& name : classes) text += name + "\n";
  return text;
}

bool folders_keep_order(const std::vector<std::string>& classes, const std::vector<bool>& has_folder) {
  return std::is_sorted(classes.begin(), classes.end()) &&
         std::find(has_folder.begin(), has_folder.end(), false) == has_folder.end();
}

ClassLabels::ClassLabels(const std::vector<std::string>& classes) {
  for (const std::string& name : classes) labels_.emplace(name, static_cast<int>(labels_.size()));
}

int ClassLabels::find(const std::string& name) const {
  const auto found = labels_.find(name);
  return found == labels_.end() ? -1 : found->second;
}

}  // namespace redline::data
