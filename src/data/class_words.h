// What classes are called in words: the file words.txt, a line "<class>\t<words>" each, as ImageNet and Tiny
// ImageNet ship it and `redline data prepare` writes it beside train and val; or LOC_synset_mapping.txt of
// Kaggle's ImageNet, where a space stands for the tab.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace redline::data {

constexpr const char* kWordsFile = "words.txt";

// By label; empty where the text says nothing about a class. Lines about other classes are passed over, and
// so are lines with neither a tab nor a space.
std::vector<std::string> parse_words(std::string_view text, const std::vector<std::string>& classes);

// parse_words of folder/words.txt, or else of LOC_synset_mapping.txt there or in one of the three folders
// above; all empty when there is none or it cannot be read, since words are for people only.
std::vector<std::string> read_words(const std::filesystem::path& folder,
                                    const std::vector<std::string>& classes);

// The first of several: "goldfish" of "goldfish, Carassius auratus".
std::string first_word(const std::string& words);

// For parse_words; classes without words are left out. Tabs and line ends in words become spaces.
std::string words_text(const std::vector<std::string>& classes, const std::vector<std::string>& words);

}  // namespace redline::data
