// What classes are called in words: the file words.txt, a line "<class>\t<words>" each, as Tiny ImageNet
// ships it and `redline data prepare` writes it beside train and val.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace redline::data {

constexpr const char* kWordsFile = "words.txt";

// By label; empty where the text says nothing about a class. Lines about other classes are passed over, and
// so are lines without a tab.
std::vector<std::string> parse_words(std::string_view text, const std::vector<std::string>& classes);

// parse_words of folder/words.txt; all empty when there is none or it cannot be read, since words are for
// people only.
std::vector<std::string> read_words(const std::filesystem::path& folder,
                                    const std::vector<std::string>& classes);

// For parse_words; classes without words are left out. Tabs and line ends in words become spaces.
std::string words_text(const std::vector<std::string>& classes, const std::vector<std::string>& words);

}  // namespace redline::data
