#include "data/sources/class_words.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "base/log.h"
#include "data/file.h"
#include "data/sources/lines.h"

namespace redline::data {
namespace {

constexpr std::int64_t kMaxWords = 32 << 20;
constexpr const char* kKaggleFile = "LOC_synset_mapping.txt";

// The file of words for a data set in this folder; empty when there is none.
std::filesystem::path words_file(std::filesystem::path folder) {
  std::error_code error;
  if (std::filesystem::exists(folder / kWordsFile, error)) return folder / kWordsFile;
  folder = std::filesystem::absolute(folder / "x", error).lexically_normal().parent_path();
  for (int up = 0; up < 4 && !error; ++up, folder = folder.parent_path())
    if (std::filesystem::exists(folder / kKaggleFile, error)) return folder / kKaggleFile;
  return {};
}

}  // namespace

std::vector<std::string> parse_words(std::string_view text, const std::vector<std::string>& classes) {
  std::unordered_map<std::string_view, std::size_t> labels;
  for (std::size_t i = 0; i < classes.size(); ++i) labels.emplace(classes[i], i);
  std::vector<std::string> words(classes.size());
  for (std::string_view line; next_line(text, line);) {
    std::size_t tab = line.find('\t');
    if (tab == line.npos) tab = line.find(' ');
    if (tab == line.npos) continue;
    if (const auto found = labels.find(line.substr(0, tab)); found != labels.end())
      words[found->second] = line.substr(tab + 1);
  }
  return words;
}

std::vector<std::string> read_words(const std::filesystem::path& folder,
                                    const std::vector<std::string>& classes) {
  const std::filesystem::path path = words_file(folder);
  if (path.empty()) return std::vector<std::string>(classes.size());
  try {
    return parse_words(read_text(path, kMaxWords), classes);
  } catch (const Error& error) {
    log_warning("classes have no words, since {} cannot be read: {}", path.string(), error.what());
    return std::vector<std::string>(classes.size());
  }
}

std::string first_word(const std::string& words) { return words.substr(0, words.find(',')); }

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
