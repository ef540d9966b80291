// Configurations that come with the program, one TOML file each, for users to name, read and copy.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace redline::cli {

// Sorted; empty if the folder is missing.
std::vector<std::string> recipe_names();

// Throws UsageError for an unknown name, listing the known ones.
std::filesystem::path recipe_file(const std::string& name);

}  // namespace redline::cli
