#include "data/class_words.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "base/log.h"
#include "data/file.h"
#include "data/lines.h"

namespace redline::data {
namespace {

constexpr std::int64_t kMaxWords = 32 << 20;

}  // namespace

std::vector<std::string> parse_words(std::string_view text, const std::vector<std::string>& classes) {
  std::unordered_map<std::string_view, std::size_t> labels;
  for (std::size_t i = 0; i < classes.size(); ++i) labels.emplace(classes[i], i);
  std::vector<std::string> words(classes.size());
  for (std::string_view line; next_line(text, line);) {
    const std::size_t tab = line.find('\t');
    if (tab == line.npos) continue;
    if (const auto found = labels.find(line.substr(0, tab)); found != labels.end())
      words[found->second] = line.substr(tab + 1);
  }
  return words;
}

std::vector<std::string> read_words(const std::filesystem::path& folder,
                                    const std::vector<std::string>& classes) {
  const std::filesystem::path path = folder / kWordsFile;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::vector<std::string>(classes.size());
  try {
    std::vector<std::uint8_t> scratch;
    const std::span<const std::uint8_t> bytes = read_whole(path, kMaxWords, scratch);
    return parse_words({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, classes);
  } catch (const Error& error) {
    log_warning("classes have no words, since {} cannot be read: {}", path.string(), error.what());
    return std::vector<std::string>(classes.size());
  }
}

std::string words_text(const std::vector<std::string>& classes, const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    if (words[i].empty()) continue;
    std::string line = words[i];
    std::replace_if(
        line.begin(), line.end(), [](char c) { return c == '\t' || c == '\n' || c == '\r'; }, ' ');
    text += classes[i] + "\t" + line + "\n";
  }
  return text;
}

}  // namespace redline::data
