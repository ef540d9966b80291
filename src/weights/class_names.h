// The class names of a network, as stored with its weights: a text for the metadata of safetensors and ONNX
// files, ["daisy", "rose"], by label.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace redline::weights {

inline constexpr const char* kClassNames = "redline.class_names";

// Empty for no names, and for so many that a header could not be read back (8 MiB of them). Bytes that are
// not UTF-8 are replaced.
std::string class_names_text(const std::vector<std::string>& names);

// The reverse. None for a text that is not a list of at most `classes` different names: files are untrusted,
// and bad names are no reason to refuse one.
std::vector<std::string> parse_class_names(const std::string& text, std::int64_t classes);

}  // namespace redline::weights
