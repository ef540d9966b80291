#include "cli/recipes.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/process.h"
#include "base/text.h"

namespace redline::cli {
namespace {

namespace fs = std::filesystem;

// Next to the program in a build, or where the package puts it: bin/redline and share/redline/recipes.
fs::path recipe_folder() {
  const fs::path program = program_folder();
  std::error_code error;
  for (const char* place : {"recipes", "../share/redline/recipes"})
    if (!program.empty() && fs::is_directory(program / place, error)) return program / place;
  return {};
}

}  // namespace

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(recipe_folder(), error)) {
    if (entry.path().extension() == ".toml") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

fs::path recipe_file(const std::string& name) {
  const std::vector<std::string> names = recipe_names();
  if (std::ranges::find(names, name) != names.end()) return recipe_folder() / (name + ".toml");
  const std::string meant = nearest(name, names);
  throw UsageError(
      "unknown recipe '{}'{} {}", name,
      meant.empty() ? "; recipes:" : fmt::format(", did you mean '{}'? Recipes:", meant),
      names.empty() ? "none found next to this program" : fmt::format("{}", fmt::join(names, ", ")));
}

}  // namespace redline::cli
