#include "weights/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <set>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace redline::weights {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kMetadataKey = "__metadata__";

struct TypeInfo {
  std::string_view name;
  std::size_t bytes;
};
constexpr std::array<TypeInfo, 13> kTypes = {{{"BOOL", 1},
                                              {"U8", 1},
                                              {"I8", 1},
                                              {"U16", 2},
                                              {"I16", 2},
                                              {"F16", 2},
                                              {"BF16", 2},
                                              {"U32", 4},
                                              {"I32", 4},
                                              {"F32", 4},
                                              {"U64", 8},
                                              {"I64", 8},
                                              {"F64", 8}}};

std::optional<ElementType> type_named(std::string_view name) {
  const auto found = std::ranges::find(kTypes, name, &TypeInfo::name);
  if (found == kTypes.end()) return {};
  return static_cast<ElementType>(found - kTypes.begin());
}

// Bytes of a tensor; nothing when they do not fit 63 bits.
std::optional<std::uint64_t> byte_size(ElementType type, const Dimensions& shape) {
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  std::uint64_t bytes = size_of(type);
  // A zero anywhere makes the whole zero, however large the rest.
  if (std::ranges::find(shape, 0) != shape.end()) return 0;
  for (const std::int64_t dim : shape) {
    if (bytes > kMost / static_cast<std::uint64_t>(dim)) return {};
    bytes *= static_cast<std::uint64_t>(dim);
  }
  return bytes;
}

// Names are untrusted: shown in quotes, escaped, and shortened.
std::string quoted(const std::string& name) {
  constexpr std::size_t kShown = 200;
  return OrderedJson(name.substr(0, kShown)).dump(-1, ' ', true, OrderedJson::error_handler_t::replace);
}

const OrderedJson& member(const std::string& name, const OrderedJson& tensor, const char* key) {
  const auto found = tensor.find(key);
  if (found == tensor.end()) throw DataError("tensor {} has no '{}'", quoted(name), key);
  return *found;
}

std::uint64_t unsigned_number(const std::string& name, const OrderedJson& value, const char* what) {
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMost)
    throw DataError("tensor {}: its {} holds something that is not a size", quoted(name), what);
  return value.get<std::uint64_t>();
}

Entry parse_entry(const std::string& name, const OrderedJson& tensor, std::uint64_t data_bytes) {
  if (!tensor.is_object()) throw DataError("tensor {} is not described by an object", quoted(name));
  Entry entry;
  entry.name = name;
  const OrderedJson& type = member(name, tensor, "dtype");
  const auto known = type.is_string() ? type_named(type.get_ref<const std::string&>()) : std::nullopt;
  if (!known) throw DataError("tensor {} has the unknown type {}", quoted(name), quoted(type.dump()));
  entry.type = *known;
  const OrderedJson& shape = member(name, tensor, "shape");
  if (!shape.is_array()) throw DataError("tensor {}: its shape is not a list", quoted(name));
  for (const OrderedJson& dim : shape) {
    entry.shape.push_back(static_cast<std::int64_t>(unsigned_number(name, dim, "shape")));
  }
  const OrderedJson& offsets = member(name, tensor, "data_offsets");
  if (!offsets.is_array() || offsets.size() != 2)
    throw DataError("tensor {}: data_offsets must be two numbers", quoted(name));
  const std::uint64_t begin = unsigned_number(name, offsets[0], "data_offsets");
  const std::uint64_t end = unsigned_number(name, offsets[1], "data_offsets");
  if (begin > end || end > data_bytes) {
    throw DataError("tensor {} lies at bytes {} to {} of {}: the file is cut off or damaged", quoted(name),
                    begin, end, data_bytes);
  }
  entry.offset = begin;
  entry.bytes = end - begin;
  if (byte_size(entry.type, entry.shape) != entry.bytes) {
    throw DataError("tensor {}: {} {} does not take {} bytes", quoted(name), name_of(entry.type),
                    text_of(entry.shape), entry.bytes);
  }
  return entry;
}

// Parses with the checks that a document cannot be asked for afterwards: a key that comes twice, and depth,
// which costs memory. {"tensor": {"shape": [here: depth 3]}}
OrderedJson parse_json(std::string_view text) {
  constexpr int kDeepest = 3;
  std::set<std::string> seen;
  const auto callback = [&](int depth, OrderedJson::parse_event_t event, OrderedJson& value) {
    if (depth > kDeepest) throw DataError("the header is nested too deeply");
    if (event == OrderedJson::parse_event_t::key && depth == 1 &&
        !seen.insert(value.get_ref<const std::string&>()).second)
      throw DataError("tensor {} is described twice", quoted(value.get_ref<const std::string&>()));
    return true;
  };
  try {
    return OrderedJson::parse(text, callback);
  } catch (const nlohmann::json::exception&) {
    throw DataError("the header is not JSON");
  }
}

void check_contiguous(std::vector<Entry>& entries, std::uint64_t data_bytes) {
  std::ranges::stable_sort(entries, [](const Entry& a, const Entry& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;
  });
  std::uint64_t at = 0;
  for (const Entry& entry : entries) {
    if (entry.offset != at) {
      throw DataError("tensor {} begins at byte {}, but the tensor before it ends at {}", quoted(entry.name),
                      entry.offset, at);
    }
    at += entry.bytes;
  }
  if (at != data_bytes)
    throw DataError("the tensors end at byte {}, but the file has {} bytes of data", at, data_bytes);
}

}  // namespace

std::size_t size_of(ElementType type) { return kTypes.at(static_cast<std::size_t>(type)).bytes; }
std::string_view name_of(ElementType type) { return kTypes.at(static_cast<std::size_t>(type)).name; }
bool is_floating(ElementType type) {
  return type == ElementType::f16 || type == ElementType::bf16 || type == ElementType::f32 ||
         type == ElementType::f64;
}

std::string text_of(const Dimensions& shape) {
  if (shape.empty()) return "scalar";
  std::string text;
  for (const std::int64_t dim : shape) text += (text.empty() ? "" : "x") + std::to_string(dim);
  return text;
}

Header parse_header(std::string_view json, std::uint64_t data_bytes) {
  if (!json.starts_with('{')) throw DataError("the header does not begin with '{{'");
  const OrderedJson root = parse_json(json);
  Header header;
  for (const auto& [name, value] : root.items()) {
    if (name != kMetadataKey) {
      header.entries.push_back(parse_entry(name, value, data_bytes));
      continue;
    }
    if (!value.is_object()) throw DataError("{} is not an object", kMetadataKey);
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) throw DataError("{} holds something other than text", kMetadataKey);
      header.metadata[key] = text.get<std::string>();
    }
  }
  check_contiguous(header.entries, data_bytes);
  return header;
}

std::string header_bytes(std::vector<Entry>& entries, const Metadata& metadata) {
  OrderedJson root = OrderedJson::object();
  if (!metadata.empty()) root[kMetadataKey] = metadata;
  std::uint64_t at = 0;
  for (Entry& entry : entries) {
    const auto bytes = byte_size(entry.type, entry.shape);
    check(bytes.has_value() && entry.name != kMetadataKey && !root.contains(entry.name),
          "tensor '{}' cannot be written", entry.name);
    entry.offset = at;
    entry.bytes = *bytes;
    at += entry.bytes;
    root[entry.name] = {
        {"dtype", name_of(entry.type)}, {"shape", entry.shape}, {"data_offsets", {entry.offset, at}}};
  }
  std::string text = root.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string length;
  for (int i = 0; i < 8; ++i) length += static_cast<char>(static_cast<std::uint64_t>(text.size()) >> (8 * i));
  return length + text;
}

}  // namespace redline::weights
