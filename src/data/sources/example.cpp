#include "data/sources/example.h"

#include <bit>
#include <map>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace redline::data {
namespace {

using Bytes = std::span<const std::uint8_t>;

enum Wire : unsigned { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

// Walks the fields of one message.
class WireReader {
 public:
  explicit WireReader(Bytes bytes) : left_(bytes) {}

  // The next field's number and wire type; false at the end.
  bool next() {
    if (left_.empty()) return false;
    const std::uint64_t tag = varint();
    field_ = static_cast<unsigned>(tag >> 3);
    wire_ = static_cast<unsigned>(tag & 7);
    return true;
  }
  unsigned field() const { return field_; }
  unsigned wire() const { return wire_; }

  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const std::uint8_t byte = take(1)[0];
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    throw DataError("tf.Example: a damaged number");
  }

  Bytes bytes() {
    if (wire_ != kLengthDelimited) throw DataError("tf.Example: a field of the wrong kind");
    return take(varint());
  }

  std::uint32_t fixed32() {
    const Bytes b = take(4);
    return std::uint32_t{b[0]} | std::uint32_t{b[1]} << 8 | std::uint32_t{b[2]} << 16 |
           std::uint32_t{b[3]} << 24;
  }

  void skip() {
    if (wire_ == kVarint)
      varint();
    else if (wire_ == kFixed64)
      take(8);
    else if (wire_ == kLengthDelimited)
      take(varint());
    else if (wire_ == kFixed32)
      take(4);
    else
      throw DataError("tf.Example: a damaged field");
  }

  bool empty() const { return left_.empty(); }

 private:
  Bytes take(std::uint64_t count) {
    if (count > left_.size()) throw DataError("tf.Example: cut off");
    const Bytes taken = left_.first(static_cast<std::size_t>(count));
    left_ = left_.subspan(static_cast<std::size_t>(count));
    return taken;
  }

  Bytes left_;
  unsigned field_ = 0, wire_ = 0;
};

std::string_view as_text(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// Feature: one of bytes_list = 1, float_list = 2, int64_list = 3; each list has repeated value = 1.
struct Feature {
  std::vector<Bytes> bytes;
  std::vector<float> floats;
  std::vector<std::int64_t> ints;
};

void read_list(unsigned kind, Bytes list, Feature& feature) {
  WireReader reader(list);
  while (reader.next()) {
    if (reader.field() != 1) {
      reader.skip();
    } else if (kind == 1) {
      feature.bytes.push_back(reader.bytes());
    } else if (kind == 2 && reader.wire() == kFixed32) {
      feature.floats.push_back(std::bit_cast<float>(reader.fixed32()));
    } else if (kind == 3 && reader.wire() == kVarint) {
      feature.ints.push_back(static_cast<std::int64_t>(reader.varint()));
    } else {
      WireReader packed(reader.bytes());
      while (!packed.empty()) {
        if (kind == 2)
          feature.floats.push_back(std::bit_cast<float>(packed.fixed32()));
        else
          feature.ints.push_back(static_cast<std::int64_t>(packed.varint()));
      }
    }
  }
}

Feature read_feature(Bytes message) {
  Feature feature;
  WireReader reader(message);
  while (reader.next()) {
    if (reader.field() >= 1 && reader.field() <= 3)
      read_list(reader.field(), reader.bytes(), feature);
    else
      reader.skip();
  }
  return feature;
}

// Example { Features features = 1; }, Features { map<string, Feature> feature = 1; }
// Calls visit(name, message of the feature) for each.
template <typename Visit>
void for_each_feature(Bytes message, Visit&& visit) {
  WireReader example(message);
  while (example.next()) {
    if (example.field() != 1) {
      example.skip();
      continue;
    }
    WireReader map(example.bytes());
    while (map.next()) {
      if (map.field() != 1) {
        map.skip();
        continue;
      }
      WireReader entry(map.bytes());
      std::string_view key;
      Bytes value;
      while (entry.next()) {
        if (entry.field() == 1)
          key = as_text(entry.bytes());
        else if (entry.field() == 2)
          value = entry.bytes();
        else
          entry.skip();
      }
      visit(key, value);
    }
  }
}

class WireWriter {
 public:
  std::vector<std::uint8_t> out;

  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) out.push_back(static_cast<std::uint8_t>(value | 0x80));
    out.push_back(static_cast<std::uint8_t>(value));
  }
  // What comes before a field's content.
  void begin(unsigned field, std::size_t size) {
    varint(field << 3 | kLengthDelimited);
    varint(size);
  }
  void bytes(unsigned field, Bytes value) {
    begin(field, value.size());
    out.insert(out.end(), value.begin(), value.end());
  }
  void text(unsigned field, std::string_view value) {
    bytes(field, {reinterpret_cast<const std::uint8_t*>(value.data()), value.size()});
  }
};

// Bytes that a field takes with this much content.
std::size_t field_size(std::size_t content) {
  std::size_t size = 2 + content;
  for (std::size_t left = content; left >= 0x80; left >>= 7) ++size;
  return size;
}

// Adds one entry of the map: name, and a feature that is a list of this kind.
void add_feature(WireWriter& map, std::string_view name, unsigned kind, Bytes content) {
  const std::size_t list = field_size(content.size()), feature = field_size(list);
  map.begin(1, field_size(name.size()) + field_size(feature));
  map.text(1, name);
  map.begin(2, feature);
  map.begin(kind, list);
  map.bytes(1, content);
}

void add_bytes(WireWriter& map, std::string_view name, Bytes value) { add_feature(map, name, 1, value); }

void add_text(WireWriter& map, std::string_view name, std::string_view value) {
  add_bytes(map, name, {reinterpret_cast<const std::uint8_t*>(value.data()), value.size()});
}

void add_ints(WireWriter& map, std::string_view name, const std::vector<std::int64_t>& values) {
  WireWriter packed;
  for (const std::int64_t value : values) packed.varint(static_cast<std::uint64_t>(value));
  add_feature(map, name, 3, packed.out);
}

void add_floats(WireWriter& map, std::string_view name, const std::vector<BoundingBox>& boxes,
                float BoundingBox::*corner) {
  WireWriter packed;
  for (const BoundingBox& box : boxes) {
    const auto word = std::bit_cast<std::uint32_t>(box.*corner);
    for (unsigned i = 0; i < 4; ++i) packed.out.push_back(static_cast<std::uint8_t>(word >> (8 * i)));
  }
  add_feature(map, name, 2, packed.out);
}

}  // namespace

ExampleImage parse_image(Bytes message) {
  // The second of each are TFDS's names.
  std::optional<Bytes> encoded, image, class_label, label;
  for_each_feature(message, [&](std::string_view name, Bytes value) {
    if (name == "image/encoded") encoded = value;
    if (name == "image") image = value;
    if (name == "image/class/label") class_label = value;
    if (name == "label") label = value;
  });
  const std::vector<Bytes> bytes = read_feature(encoded ? *encoded : image.value_or(Bytes{})).bytes;
  if (bytes.empty()) throw DataError("tf.Example: no image/encoded");
  const auto ints = read_feature(class_label ? *class_label : label.value_or(Bytes{})).ints;
  if (ints.empty()) throw DataError("tf.Example: no image/class/label");
  return {bytes[0], ints[0]};
}

ImageExample parse_example(Bytes message) {
  std::map<std::string_view, Feature> features;
  for_each_feature(message,
                   [&](std::string_view name, Bytes value) { features[name] = read_feature(value); });
  const auto find = [&](std::string_view name) -> const Feature* {
    const auto found = features.find(name);
    return found == features.end() ? nullptr : &found->second;
  };
  const auto text = [&](std::string_view name) {
    const Feature* feature = find(name);
    return feature && !feature->bytes.empty() ? std::string(as_text(feature->bytes[0])) : std::string();
  };
  const auto integer = [&](std::string_view name) {
    const Feature* feature = find(name);
    return feature && !feature->ints.empty() ? feature->ints[0] : std::int64_t{0};
  };
  const ExampleImage image = parse_image(message);
  ImageExample example;
  example.encoded = image.encoded;
  example.label = image.label;
  example.synset = text("image/class/synset");
  example.text = text("image/class/text");
  example.filename = text(find("image/filename") ? "image/filename" : "file_name");
  example.format = text("image/format");
  example.colorspace = text("image/colorspace");
  example.height = integer("image/height");
  example.width = integer("image/width");
  example.channels = integer("image/channels");
  const Feature *xmin = find("image/object/bbox/xmin"), *xmax = find("image/object/bbox/xmax");
  const Feature *ymin = find("image/object/bbox/ymin"), *ymax = find("image/object/bbox/ymax");
  if (xmin && xmax && ymin && ymax) {
    const std::size_t count = xmin->floats.size();
    if (xmax->floats.size() != count || ymin->floats.size() != count || ymax->floats.size() != count)
      throw DataError("tf.Example: boxes with corners missing");
    for (std::size_t i = 0; i < count; ++i)
      example.boxes.push_back({xmin->floats[i], ymin->floats[i], xmax->floats[i], ymax->floats[i]});
  }
  return example;
}

std::vector<std::uint8_t> serialize_example(const ImageExample& e) {
  WireWriter map, example;
  map.out.reserve(e.encoded.size() + 1000);
  add_ints(map, "image/channels", {e.channels});
  add_ints(map, "image/class/label", {e.label});
  add_text(map, "image/class/synset", e.synset);
  add_text(map, "image/class/text", e.text);
  add_text(map, "image/colorspace", e.colorspace);
  add_bytes(map, "image/encoded", e.encoded);
  add_text(map, "image/filename", e.filename);
  add_text(map, "image/format", e.format);
  add_ints(map, "image/height", {e.height});
  add_ints(map, "image/object/bbox/label", std::vector<std::int64_t>(e.boxes.size(), e.label));
  add_floats(map, "image/object/bbox/xmax", e.boxes, &BoundingBox::xmax);
  add_floats(map, "image/object/bbox/xmin", e.boxes, &BoundingBox::xmin);
  add_floats(map, "image/object/bbox/ymax", e.boxes, &BoundingBox::ymax);
  add_floats(map, "image/object/bbox/ymin", e.boxes, &BoundingBox::ymin);
  add_ints(map, "image/width", {e.width});
  example.out.reserve(field_size(map.out.size()));
  example.bytes(1, map.out);
  return std::move(example.out);
}

}  // namespace redline::data
