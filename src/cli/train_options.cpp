#include "cli/train_options.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <type_traits>

#include <unistd.h>

#include <fmt/ranges.h>

#include "cli/recipes.h"
#include "cli/run_report.h"
#include "train/config_file.h"

namespace redline::cli {
namespace {

std::string sentence(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

// "(default: 0.08 1)" if there is one and the help does not mention it.
template <typename T>
std::string default_text(const T& value, const std::string& help) {
  if constexpr (std::is_arithmetic_v<T>) {
    if (value == T{} && help.find("(0: ") != std::string::npos) return "";  // "(0: off)" says it
  }
  if constexpr (std::is_same_v<T, std::vector<double>>) {
    return value.empty() ? "" : fmt::format(" (default: {:.4g})", fmt::join(value, " "));
  } else if constexpr (std::is_same_v<T, std::string>) {
    return value.empty() ? "" : fmt::format(" (default: {})", value);
  } else if constexpr (std::is_arithmetic_v<T>) {
    return fmt::format(" (default: {})", value);
  } else {
    return "";
  }
}

template <typename T>
CLI::Option* add_one(CLI::App& command, const train::Field& field, T& value) {
  const std::string names = field.flags.empty() ? "data" : field.flags;
  if constexpr (std::is_same_v<T, bool>) {
    return command.add_flag(names, value, sentence(field.help));
  } else {
    CLI::Option* option =
        command.add_option(names, value, sentence(field.help) + default_text(value, field.help));
    if constexpr (std::is_same_v<T, std::vector<double>>) {
      // Ranges have two numbers; a list that may be left out is a single word, as below.
      option->delimiter(',')->type_name(value.empty() ? "X,X,X" : "X");
      value.empty() ? option->allow_extra_args(false) : option->expected(2);
    } else if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) {
      // One word, "30,60,80": a list of words would swallow the data argument after it.
      option->delimiter(',')->allow_extra_args(false)->type_name("N,N,N");
    } else if constexpr (std::is_same_v<T, std::string>) {
      option->type_name(field.choices.empty() ? field.value_name
                                              : fmt::format("{}", fmt::join(field.choices, "|")));
      if (!field.alone.empty())
        option->expected(0, 1)->default_str(field.alone)->type_name(fmt::format("[{}]", field.value_name));
    } else {
      option->type_name(std::is_same_v<T, double> ? "X" : "N");
    }
    return option;
  }
}

}  // namespace

void TrainOptions::add(CLI::App& command) {
  command
      .add_option("-c,--config", file_,
                  "Read options from a TOML file, such as the config.toml of a run; flags override it")
      ->type_name("FILE");
  command
      .add_option("--recipe", recipe_,
                  "Start from a configuration that comes with Redline; flags override it")
      ->type_name(recipe_names().empty() ? "NAME" : fmt::format("{}", fmt::join(recipe_names(), "|")))
      ->excludes("--config");
  for (const train::Field& field : train::fields()) {
    CLI::Option* option =
        std::visit([&](auto member) { return add_one(command, field, member(flags_)); }, field.member);
    if (!field.flags.empty()) option->group(sentence(field.section));
    options_.emplace_back(&field, option);
  }
}

train::Console console() {
  const char* term = std::getenv("TERM");
  const bool live = ::isatty(STDOUT_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
  return {stdout, live, write_run_report};
}

bool TrainOptions::given(const std::string& path) const {
  return std::ranges::any_of(
      options_, [&](const auto& one) { return one.first->path() == path && one.second->count() > 0; });
}

train::Config TrainOptions::config(const std::filesystem::path& defaults) const {
  std::filesystem::path file = file_.empty() ? defaults : std::filesystem::path(file_);
  if (!recipe_.empty()) file = recipe_file(recipe_);
  train::Config config = file.empty() ? train::Config{} : train::read_config(file);
  for (const auto& [field, option] : options_) {
    if (option->count() == 0 || field->group.empty()) continue;
    for (const train::Field& other : train::fields()) {
      if (other.group == field->group) train::reset(other, config);
    }
  }
  for (const auto& [field, option] : options_) {
    if (option->count() > 0) train::copy(*field, flags_, config);
  }
  // Nesterov momentum belongs to sgd: another optimizer than the file's does without it, unless both are
  // asked for.
  if (given("optimizer.name") && !given("optimizer.nesterov") && config.optimizer.name != "sgd")
    config.optimizer.nesterov = false;
  return config;
}

}  // namespace redline::cli
