#include "weights/class_names.h"

#include <set>

#include <nlohmann/json.hpp>

namespace redline::weights {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostText = std::size_t{8} << 20;

}  // namespace

std::string class_names_text(const std::vector<std::string>& names) {
  if (names.empty()) return {};
  std::string text = Json(names).dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() <= kMostText ? text : std::string();
}

std::vector<std::string> parse_class_names(const std::string& text, std::int64_t classes) {
  if (text.size() > kMostText) return {};
  int depth = 0;
  // Nothing but one list of texts: whatever is nested is dropped before it takes memory.
  const auto flat = [&](int at, Json::parse_event_t event, Json&) {
    depth = std::max(depth, at + (event == Json::parse_event_t::array_start ? 1 : 0));
    return depth <= 1;
  };
  const Json json = Json::parse(text, flat, /*allow_exceptions=*/false);
  if (!json.is_array() || depth > 1 || json.size() > static_cast<std::size_t>(classes)) return {};
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const Json& name : json) {
    if (!name.is_string() || !seen.insert(name.get<std::string>()).second) return {};
    names.push_back(name.get<std::string>());
  }
  return names;
}

}  // namespace redline::weights
