// Reads any bytes as a list of classes and as Kaggle's list of validation images: plain names, or DataError.
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "data/sources/class_list.h"
#include "data/sources/val_labels.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace redline;
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  try {
    const std::vector<std::string> classes = data::parse_class_list(text);
    for (const std::string& name : classes)
      if (!data::is_plain_name(name)) __builtin_trap();
    if (data::parse_class_list(data::class_list_text(classes)) != classes) __builtin_trap();
  } catch (const DataError&) {
  }
  try {
    for (const auto& [image, name] : data::parse_val_solution(text))
      if (name.empty() || name.find('/') != name.npos) __builtin_trap();
  } catch (const DataError&) {
  }
  return 0;
}
