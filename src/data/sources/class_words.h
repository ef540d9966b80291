// Class names in words: the file words.txt, with lines "<class>\t<words>", as ImageNet and Tiny ImageNet ship
// it and `redline data prepare` writes it next to train and val; or LOC_synset_mapping.txt of Kaggle's
// ImageNet, with a space instead of the tab.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace redline::data {

constexpr const char* kWordsFile = "words.txt";

// By label; empty for a class that the text does not mention. Lines about other classes, and lines with
// neither a tab nor a space, are skipped.
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
