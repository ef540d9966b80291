// Reads any bytes as Tiny ImageNet's list of validation images and as its class words: names that stay in
// their folder, or DataError.
#include <cstdint>

#include "base/error.h"
#include "data/sources/class_words.h"
#include "data/sources/val_annotations.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace redline::data;
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  try {
    for (const ValAnnotation& one : parse_val_annotations(text))
      if (one.wnid.empty() || one.file.empty() || one.file.front() == '.' ||
          one.file.find('/') != one.file.npos)
        __builtin_trap();
  } catch (const redline::DataError&) {
  }
  const std::vector<std::string> classes{"n01443537", "n01629819"};
  const std::vector<std::string> words = parse_words(text, classes);
  if (parse_words(words_text(classes, words), classes).size() != classes.size()) __builtin_trap();
  return 0;
}
