// The classes of validation images that are in one folder without class folders.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

namespace redline::data {

// Kaggle's LOC_val_solution.csv: from an image's name without its ending to its class. Throws DataError with
// the number of a line that is not "ImageId,<class> <box> …".
std::unordered_map<std::string, std::string> parse_val_solution(std::string_view csv);

struct ValLabels {
  std::filesystem::path from;                                    // the file that tells
  std::function<std::string(const std::string& file)> class_of;  // empty for a file it says nothing about
};

// Whether path has the name of such a list, or of ImageNet's development kit.
bool is_val_labels(const std::filesystem::path& path);

// Looks for a list of classes in the folder of the images and those above it, as in the layouts of
// image_folder.h; null if there is none. Throws DataError naming a list that is damaged.
std::unique_ptr<ValLabels> find_val_labels(const std::filesystem::path& folder);

}  // namespace redline::data
