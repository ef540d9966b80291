// The classes of a data set of folders in the order of their labels: the file classes.txt next to train and
// val, one class folder per line. Without it classes are numbered by name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace redline::data {

inline constexpr std::int32_t kMaxLabel = 1'000'000;  // a larger one is taken for damage

constexpr const char* kClassesFile = "classes.txt";

// Throws DataError for an empty list, a line that cannot be a folder's name, and a class that is listed
// twice.
std::vector<std::string> parse_class_list(std::string_view text);

// parse_class_list of folder/classes.txt, with the file named in errors; nothing where there is none.
std::optional<std::vector<std::string>> read_class_list(const std::filesystem::path& folder);

// For parse_class_list.
std::string class_list_text(const std::vector<std::string>& classes);

// Whether folders with these names, numbered by name, get the labels that the classes have.
bool folders_keep_order(const std::vector<std::string>& classes, const std::vector<bool>& has_folder);

// Whether a name of a class or file, from an archive or record, is safe: it must not lead out of its folder
// or be hidden.
bool is_plain_name(std::string_view name);

// From names to labels.
class ClassLabels {
 public:
  explicit ClassLabels(const std::vector<std::string>& classes);
  int find(const std::string& name) const;  // -1 where there is no such class

 private:
  std::unordered_map<std::string, int> labels_;
};

}  // namespace redline::data
