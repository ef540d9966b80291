#include "data/sources/val_labels.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/atomic_file.h"
#include "base/error.h"
#include "data/sources/devkit.h"
#include "data/sources/ilsvrc.h"
#include "data/sources/lines.h"

namespace redline::data {
namespace fs = std::filesystem;
namespace {

constexpr const char* kSolution = "LOC_val_solution.csv";
constexpr int kLevels = 5;  // Kaggle's list lies four folders above the images

std::unique_ptr<ValLabels> from_solution(const fs::path& path) {
  auto labels = std::make_unique<ValLabels>();
  labels->from = path;
  try {
    labels->class_of = [table = parse_val_solution(read_file(path))](const std::string& file) {
      const auto found = table.find(fs::path(file).stem().string());
      return found == table.end() ? std::string() : found->second;
    };
  } catch (const DataError& error) {
    throw DataError("{}: {}", path.string(), error.what());
  }
  return labels;
}

std::unique_ptr<ValLabels> from_devkit(const fs::path& path) {
  auto labels = std::make_unique<ValLabels>();
  labels->from = path;
  Devkit devkit = read_devkit(path);
  std::map<int, std::string> names;
  for (const Synset& synset : devkit.synsets)
    if (synset.leaf) names[synset.id] = synset.wnid;
  labels->class_of = [names = std::move(names),
                      truth = std::move(devkit.ground_truth)](const std::string& file) {
    const int number = ilsvrc_val_number(file);
    if (number < 1 || static_cast<std::size_t>(number) > truth.size()) return std::string();
    return names.at(truth[static_cast<std::size_t>(number) - 1]);
  };
  return labels;
}

}  // namespace

std::unordered_map<std::string, std::string> parse_val_solution(std::string_view csv) {
  std::unordered_map<std::string, std::string> classes;
  int number = 0;
  for (std::string_view line; next_line(csv, line);) {
    ++number;
    if (line.empty() || (number == 1 && line.starts_with("ImageId,"))) continue;
    const std::size_t comma = std::min(line.find(','), line.size());
    const std::string_view image = line.substr(0, comma);
    std::string_view wnid = line.substr(std::min(comma + 1, line.size()));
    wnid = wnid.substr(0, wnid.find(' '));
    if (image.empty() || wnid.empty() || wnid.find('/') != wnid.npos)
      throw DataError("line {} does not name an image and its class: '{}'", number, line.substr(0, 200));
    if (!classes.emplace(image, wnid).second) throw DataError("line {}: {} comes twice", number, image);
  }
  return classes;
}

bool is_val_labels(const fs::path& path) {
  const fs::path name = path.filename();
  return name == kSolution || name == kIlsvrcDevkit || name == fs::path(kIlsvrcDevkit).stem().stem();
}

std::unique_ptr<ValLabels> find_val_labels(const fs::path& folder) {
  std::error_code ignored;
  fs::path at = fs::absolute(folder, ignored).lexically_normal();
  if (!at.has_filename()) at = at.parent_path();
  for (int level = 0; level < kLevels; ++level, at = at.parent_path()) {
    if (fs::is_regular_file(at / kSolution, ignored)) return from_solution(at / kSolution);
    if (fs::is_regular_file(at / kIlsvrcDevkit, ignored)) return from_devkit(at / kIlsvrcDevkit);
    const fs::path unpacked = at / fs::path(kIlsvrcDevkit).stem().stem();
    if (fs::is_directory(unpacked, ignored)) return from_devkit(unpacked);
    if (at == at.root_path()) break;
  }
  return nullptr;
}

}  // namespace redline::data
