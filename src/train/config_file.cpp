#include "train/config_file.h"

#include <algorithm>
#include <optional>
#include <sstream>
#include <string_view>

#include <fmt/ranges.h>

#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/text.h"

namespace redline::train {
namespace {

constexpr std::string_view kFactsSection = "record";

std::string where(const std::string& name, const toml::source_region& source) {
  return fmt::format("{}:{}", name, source.begin.line);
}

// TOML distinguishes integers from floats; an option that is a number accepts both.
std::optional<double> number(const toml::node& node) {
  if (const auto* integer = node.as_integer()) return static_cast<double>(integer->get());
  if (const auto* floating = node.as_floating_point()) return floating->get();
  return {};
}

bool assign(const toml::node& node, bool& value) {
  const auto* found = node.as_boolean();
  if (found != nullptr) value = found->get();
  return found != nullptr;
}

bool assign(const toml::node& node, std::int64_t& value) {
  const auto* found = node.as_integer();
  if (found != nullptr) value = found->get();
  return found != nullptr;
}

bool assign(const toml::node& node, double& value) {
  const auto found = number(node);
  if (found) value = *found;
  return found.has_value();
}

bool assign(const toml::node& node, std::string& value) {
  const auto* found = node.as_string();
  if (found != nullptr) value = found->get();
  return found != nullptr;
}

bool assign(const toml::node& node, std::optional<std::int64_t>& value) {
  return assign(node, value.emplace());
}

template <typename T>
bool assign(const toml::node& node, std::vector<T>& value) {
  const auto* array = node.as_array();
  if (array == nullptr) return false;
  value.clear();
  for (const toml::node& element : *array) {
    if (!assign(element, value.emplace_back())) return false;
  }
  return true;
}

const char* expected(const Field& field) {
  constexpr const char* kNames[] = {"true or false",  "a whole number",          "a number",
                                    "text in quotes", "a list of whole numbers", "a list of numbers",
                                    "a whole number"};
  return kNames[field.member.index()];
}

[[noreturn]] void unknown_key(const std::string& name, const toml::source_region& source,
                              const std::string& section, const std::string& key) {
  std::vector<std::string> here, anywhere;
  for (const Field& field : fields()) {
    if (field.section == section) here.push_back(field.key);
    anywhere.push_back(field.path());
  }
  std::string hint;
  if (const std::string meant = nearest(key, here); !meant.empty()) {
    hint = fmt::format(", did you mean '{}'?", meant);
  } else {
    const auto elsewhere = std::ranges::find_if(
        fields(), [&](const Field& field) { return field.key == key && field.section != section; });
    if (elsewhere != fields().end()) hint = fmt::format(", it belongs in [{}]", elsewhere->section);
  }
  throw UsageError("{}: unknown key '{}' in [{}]{}", where(name, source), key, section,
                   hint.empty() ? "; `redline train --print-config` lists all keys" : hint);
}

void read_section(const std::string& name, const std::string& section, const toml::table& table,
                  Config& config) {
  for (const auto& [key, node] : table) {
    const std::string text(key.str());
    const auto field = std::ranges::find_if(
        fields(), [&](const Field& known) { return known.section == section && known.key == text; });
    if (field == fields().end()) unknown_key(name, key.source(), section, text);
    const bool fits =
        std::visit([&, &value = node](auto member) { return assign(value, member(config)); }, field->member);
    if (!fits)
      throw UsageError("{}: {} must be {}", where(name, key.source()), field->path(), expected(*field));
  }
}

std::string text_of(const std::string& value) {
  std::ostringstream out;
  out << toml::value<std::string>(value);
  return out.str();
}

// "nan" and "inf" are TOML too, and the shortest text that reads back to the same number.
std::string text_of(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".einf") == std::string::npos) text += ".0";
  return text;
}

std::string text_of(bool value) { return value ? "true" : "false"; }
std::string text_of(std::int64_t value) { return std::to_string(value); }

template <typename T>
std::string text_of(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values) text += (text.empty() ? "" : ", ") + text_of(value);
  return "[" + text + "]";
}

bool is_set(const std::string& value) { return !value.empty(); }
bool is_set(const std::optional<std::int64_t>& value) { return value.has_value(); }
template <typename T>
bool is_set(const std::vector<T>& value) {
  return !value.empty();
}
template <typename T>
bool is_set(const T&) {
  return true;
}

std::string text_of(const std::optional<std::int64_t>& value) { return text_of(*value); }

toml::table parse_table(const std::string& text, const std::string& name) {
  try {
    return toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    throw UsageError("{}: {}", where(name, error.source()), error.description());
  }
}

std::string text_of(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_floating_point()) return text_of(number->get());
  if (const toml::array* list = node.as_array()) {
    std::string text;
    for (const toml::node& item : *list) text += (text.empty() ? "" : ", ") + text_of(item);
    return "[" + text + "]";
  }
  std::ostringstream out;
  node.visit([&](const auto& value) { out << value; });
  return out.str();
}

void list_table(const toml::table& table, const std::string& prefix, Facts& found) {
  for (const auto& [key, node] : table) {
    const std::string path = prefix + std::string(key.str());
    if (const toml::table* inner = node.as_table()) {
      list_table(*inner, path + ".", found);
    } else {
      found.emplace_back(path, text_of(node));
    }
  }
}

}  // namespace

Facts list_values(const std::string& text, const std::string& name) {
  Facts found;
  list_table(parse_table(text, name), "", found);
  return found;
}

Config parse_config(const std::string& text, const std::string& name) {
  Config config;
  const toml::table root = parse_table(text, name);
  std::vector<std::string> sections;
  for (const Field& field : fields()) {
    if (sections.empty() || sections.back() != field.section) sections.push_back(field.section);
  }
  for (const auto& [key, node] : root) {
    const std::string section(key.str());
    if (section == kFactsSection) continue;
    if (std::ranges::find(sections, section) == sections.end()) {
      const std::string meant = nearest(section, sections);
      throw UsageError("{}: unknown section [{}]; {}", where(name, key.source()), section,
                       meant.empty() ? fmt::format("known are {}", fmt::join(sections, ", "))
                                     : fmt::format("did you mean [{}]?", meant));
    }
    const toml::table* table = node.as_table();
    if (table == nullptr)
      throw UsageError("{}: '{}' must be a section, [{}]", where(name, key.source()), section, section);
    read_section(name, section, *table, config);
  }
  return config;
}

Config read_config(const std::filesystem::path& path) {
  constexpr std::size_t kMost = std::size_t{16} << 20;
  return parse_config(read_file(path, kMost), path.string());
}

std::string value_text(const Field& field, const Config& config) {
  Config copied = config;
  return std::visit(
      [&](auto member) {
        const auto& found = member(copied);
        return is_set(found) ? text_of(found) : std::string();
      },
      field.member);
}

std::string to_toml(const Config& config, const Facts& facts) {
  std::string text, section;
  for (const Field& field : fields()) {
    const std::string value = value_text(field, config);
    if (value.empty()) continue;
    if (field.section != section) {
      text += fmt::format("{}[{}]\n", section.empty() ? "" : "\n", field.section);
      section = field.section;
    }
    text += fmt::format("{} = {}\n", field.key, value);
  }
  if (facts.empty()) return text;
  text += fmt::format("\n# What made this file; not read back.\n[{}]\n", kFactsSection);
  for (const auto& [key, value] : facts) text += fmt::format("{} = {}\n", key, text_of(value));
  return text;
}

}  // namespace redline::train
