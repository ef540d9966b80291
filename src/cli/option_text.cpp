#include "cli/option_text.h"

#include <cstddef>

#include <CLI/CLI.hpp>

namespace redline::cli {
namespace {

constexpr std::size_t kColumns = 100;

// CLI11 appends what it checks: "N:POSITIVE", "val|train:{val,train}".
std::string type_of(const CLI::Option& option) {
  const std::string full = option.get_type_name();
  const std::string type = full.substr(0, full.find(':'));
  if (type == "INT" || type == "UINT") return "N";
  return type == "FLOAT" ? "X" : type;
}

std::string wrapped(const std::string& text, std::size_t width) {
  std::string out;
  std::size_t column = 0;
  for (const std::string& word : CLI::detail::split(text, ' ')) {
    if (column > 0 && column + 1 + word.size() > width) {
      out += '\n';
      column = 0;
    } else if (column > 0) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out;
}

class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string value = value_text(*option);
    return value.empty() ? value : " " + value;
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    return wrapped(description(*option), kColumns - get_column_width());
  }
};

}  // namespace

std::string value_text(const CLI::Option& option) {
  if (option.get_type_size() == 0 || option.get_items_expected_max() == 0) return {};
  const std::string type = type_of(option);
  if (option.get_expected_min() > 1) return type + " " + type;  // a range
  const bool one_word = type.find(',') != std::string::npos;    // "N,N,N"
  return option.get_expected_max() == CLI::detail::expected_max_vector_size && !one_word ? type + "..."
                                                                                         : type;
}

bool takes_numbers(const CLI::Option& option) {
  const std::string type = type_of(option);
  return type == "SECONDS" || (!type.empty() && type.find_first_not_of("NX,") == std::string::npos);
}

std::string description(const CLI::Option& option) {
  std::string text = option.get_description(), value = option.get_default_str();
  if (option.get_required() && !option.get_positional()) text += " (required)";
  if (value.starts_with('[') && value.ends_with(']')) value = value.substr(1, value.size() - 2);  // a list
  // The meaning of an option without a value is not its default, and "(0: all cores)" already implies a
  // default of 0.
  const bool told =
      text.find("default") != std::string::npos || (value == "0" && text.find("(0: ") != std::string::npos);
  if (value.empty() || option.get_items_expected_min() == 0 || told) return text;
  return text + " (default: " + value + ")";
}

std::shared_ptr<CLI::Formatter> help_formatter() { return std::make_shared<HelpFormatter>(); }

}  // namespace redline::cli
