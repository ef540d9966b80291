// Configurations that come with the program, one TOML file each, that a user can name, read and copy.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace redline::cli {

// In order; empty when the folder is not there.
std::vector<std::string> recipe_names();

// Throws UsageError for a name that is not known, with those that are.
std::filesystem::path recipe_file(const std::string& name);

}  // namespace redline::cli
