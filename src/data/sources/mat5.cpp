#include "data/sources/mat5.h"

#include <bit>
#include <cstring>
#include <optional>

#include <zlib.h>

#include "base/error.h"

namespace redline::data {
namespace {

static_assert(std::endian::native == std::endian::little, "MATLAB files are read as little endian");

using Bytes = std::span<const std::uint8_t>;

constexpr std::size_t kHeader = 128;
constexpr std::size_t kMaxInflated = 64 << 20;
constexpr int kMaxDepth = 8;

// Types of stored data.
enum : std::uint32_t {
  kInt8 = 1,
  kUint8 = 2,
  kInt16 = 3,
  kUint16 = 4,
  kInt32 = 5,
  kUint32 = 6,
  kSingle = 7,
  kDouble = 9,
  kMatrix = 14,
  kCompressed = 15,
  kUtf8 = 16,
  kUtf16 = 17
};

// Classes of arrays.
enum : std::uint32_t { kStructClass = 2, kCharClass = 4, kDoubleClass = 6, kLastNumberClass = 15 };

[[noreturn]] void damaged() { throw DataError("a damaged MATLAB file"); }

template <typename T>
T load(const std::uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

struct Element {
  std::uint32_t type = 0;
  Bytes data;
};

// Takes elements off the front of a stretch of bytes.
class Elements {
 public:
  explicit Elements(Bytes bytes) : left_(bytes) {}

  bool empty() const { return left_.empty(); }

  Element next() {
    if (left_.size() < 8) damaged();
    const auto word = load<std::uint32_t>(left_.data());
    if (word >> 16) {  // the short form: size and type in one word, then up to 4 bytes
      const std::size_t size = word >> 16;
      if (size > 4) damaged();
      const Element element{word & 0xffff, left_.subspan(4, size)};
      left_ = left_.subspan(8);
      return element;
    }
    const std::size_t size = load<std::uint32_t>(left_.data() + 4);
    if (size > left_.size() - 8) damaged();
    const Element element{word, left_.subspan(8, size)};
    const std::size_t padded = word == kCompressed ? size : (size + 7) / 8 * 8;
    left_ = left_.subspan(8 + std::min(padded, left_.size() - 8));
    return element;
  }

  Element next(std::uint32_t type) {
    const Element element = next();
    if (element.type != type) damaged();
    return element;
  }

 private:
  Bytes left_;
};

std::vector<std::uint8_t> inflate_all(Bytes bytes) {
  z_stream stream{};
  if (inflateInit(&stream) != Z_OK) throw InternalError("zlib does not start");
  struct End {
    z_stream& stream;
    ~End() { inflateEnd(&stream); }
  } const end{stream};
  stream.next_in = const_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  std::vector<std::uint8_t> out;
  for (int code = Z_OK; code != Z_STREAM_END;) {
    const std::size_t before = out.size();
    if (before > kMaxInflated)
      throw DataError("a MATLAB file that unpacks to more than {} bytes", kMaxInflated);
    out.resize(before + (1 << 16));
    stream.next_out = out.data() + before;
    stream.avail_out = 1 << 16;
    code = inflate(&stream, Z_NO_FLUSH);
    out.resize(out.size() - stream.avail_out);
    if (code != Z_OK && code != Z_STREAM_END) damaged();
  }
  return out;
}

template <typename T>
void append_numbers(Bytes data, std::vector<double>& numbers) {
  for (std::size_t at = 0; at + sizeof(T) <= data.size(); at += sizeof(T))
    numbers.push_back(static_cast<double>(load<T>(data.data() + at)));
}

// A number array may be stored in any type that holds its values.
std::vector<double> numbers_of(const Element& element) {
  std::vector<double> numbers;
  switch (element.type) {
    case kInt8:
      append_numbers<std::int8_t>(element.data, numbers);
      break;
    case kUint8:
      append_numbers<std::uint8_t>(element.data, numbers);
      break;
    case kInt16:
      append_numbers<std::int16_t>(element.data, numbers);
      break;
    case kUint16:
      append_numbers<std::uint16_t>(element.data, numbers);
      break;
    case kInt32:
      append_numbers<std::int32_t>(element.data, numbers);
      break;
    case kUint32:
      append_numbers<std::uint32_t>(element.data, numbers);
      break;
    case kSingle:
      append_numbers<float>(element.data, numbers);
      break;
    case kDouble:
      append_numbers<double>(element.data, numbers);
      break;
    case 12:
      append_numbers<std::int64_t>(element.data, numbers);
      break;
    case 13:
      append_numbers<std::uint64_t>(element.data, numbers);
      break;
    default:
      damaged();
  }
  return numbers;
}

std::string text_of(const Element& element) {
  if (element.type == kUtf8 || element.type == kInt8 || element.type == kUint8)
    return {element.data.begin(), element.data.end()};
  if (element.type != kUint16 && element.type != kUtf16) damaged();
  std::string text;
  for (std::size_t at = 0; at + 2 <= element.data.size(); at += 2) {
    const auto unit = load<std::uint16_t>(element.data.data() + at);
    text += unit < 0x80 ? static_cast<char>(unit) : '?';
  }
  return text;
}

std::string name_of(Bytes padded) {
  const std::string all(padded.begin(), padded.end());
  return all.substr(0, all.find('\0'));
}

MatArray read_matrix(Bytes bytes, int depth);

void read_struct(Elements& elements, MatArray& array, int depth) {
  const Element length = elements.next(kInt32);
  if (length.data.size() != 4) damaged();
  const auto name_size = load<std::int32_t>(length.data.data());
  const Element names = elements.next(kInt8);
  if (name_size < 1 || name_size > 1024 || names.data.size() % static_cast<std::size_t>(name_size)) damaged();
  for (std::size_t at = 0; at < names.data.size(); at += static_cast<std::size_t>(name_size))
    array.fields.push_back(name_of(names.data.subspan(at, static_cast<std::size_t>(name_size))));
  if (array.fields.empty()) damaged();
  // Each cell takes at least eight bytes, so a false count is limited by the size of the file.
  for (std::int64_t i = 0; i < array.elements(); ++i)
    for (std::size_t f = 0; f < array.fields.size(); ++f)
      array.cells.push_back(read_matrix(elements.next(kMatrix).data, depth + 1));
}

MatArray read_matrix(Bytes bytes, int depth) {
  MatArray array;
  if (depth > kMaxDepth) damaged();
  if (bytes.empty()) {  // how an empty array in a struct may be written
    array.kind = MatArray::Kind::number;
    array.dims = {0, 0};
    return array;
  }
  Elements elements(bytes);
  const Element flags = elements.next(kUint32);
  if (flags.data.size() != 8) damaged();
  const std::uint32_t class_of = flags.data[0];
  const Element dims = elements.next(kInt32);
  std::int64_t count = 1;
  for (const double dim : numbers_of(dims)) {
    array.dims.push_back(static_cast<std::int64_t>(dim));
    // No file that was read has room for more; this keeps the product from running over.
    if (dim < 0 || (dim > 0 && count > (std::int64_t{1} << 40) / static_cast<std::int64_t>(dim))) damaged();
    count *= static_cast<std::int64_t>(dim);
  }
  if (array.dims.size() < 2) damaged();
  array.name = name_of(elements.next(kInt8).data);
  if (class_of == kStructClass) {
    array.kind = MatArray::Kind::structure;
    read_struct(elements, array, depth);
  } else if (class_of == kCharClass) {
    array.kind = MatArray::Kind::text;
    if (!elements.empty()) array.text = text_of(elements.next());
  } else if (class_of >= kDoubleClass && class_of <= kLastNumberClass) {
    array.kind = MatArray::Kind::number;
    if (!elements.empty()) array.numbers = numbers_of(elements.next());
    if (static_cast<std::int64_t>(array.numbers.size()) != count) damaged();
  }
  return array;
}

class Writer {
 public:
  std::vector<std::uint8_t> out;

  void element(std::uint32_t type, Bytes data) {
    put(type);
    put(static_cast<std::uint32_t>(data.size()));
    out.insert(out.end(), data.begin(), data.end());
    out.resize((out.size() + 7) / 8 * 8);
  }

  void matrix(const MatArray& array) {
    Writer inner;
    const bool is_text = array.kind == MatArray::Kind::text,
               is_struct = array.kind == MatArray::Kind::structure;
    const std::uint32_t flags[2] = {is_text ? kCharClass : is_struct ? kStructClass : kDoubleClass, 0};
    inner.numbers(kUint32, std::span<const std::uint32_t>(flags));
    inner.numbers(kInt32, std::span<const std::int32_t>(
                              std::vector<std::int32_t>(array.dims.begin(), array.dims.end())));
    inner.text(kInt8, array.name);
    if (is_text) inner.text(kUtf8, array.text);
    if (array.kind == MatArray::Kind::number) inner.numbers(kDouble, std::span<const double>(array.numbers));
    if (is_struct) {
      constexpr std::int32_t kNameSize[] = {32};
      inner.numbers(kInt32, std::span<const std::int32_t>(kNameSize));
      std::string names;
      for (const std::string& field : array.fields) {
        check(field.size() < 32, "a field name of {} bytes", field.size());
        names += field + std::string(32 - field.size(), '\0');
      }
      inner.text(kInt8, names);
      for (const MatArray& cell : array.cells) inner.matrix(cell);
    }
    element(kMatrix, inner.out);
  }

 private:
  void put(std::uint32_t value) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&value);
    out.insert(out.end(), bytes, bytes + 4);
  }
  template <typename T>
  void numbers(std::uint32_t type, std::span<T> values) {
    element(type, {reinterpret_cast<const std::uint8_t*>(values.data()), values.size_bytes()});
  }
  void text(std::uint32_t type, std::string_view value) {
    element(type, {reinterpret_cast<const std::uint8_t*>(value.data()), value.size()});
  }
};

}  // namespace

std::int64_t MatArray::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t dim : dims) count *= dim;
  return count;
}

const MatArray* MatArray::field(std::int64_t element, std::string_view wanted) const {
  for (std::size_t f = 0; f < fields.size(); ++f)
    if (fields[f] == wanted) return &cells.at(static_cast<std::size_t>(element) * fields.size() + f);
  return nullptr;
}

MatArray mat_number(double value) {
  MatArray array;
  array.kind = MatArray::Kind::number;
  array.dims = {1, 1};
  array.numbers = {value};
  return array;
}

MatArray mat_text(std::string value) {
  MatArray array;
  array.kind = MatArray::Kind::text;
  array.dims = {1, static_cast<std::int64_t>(value.size())};
  array.text = std::move(value);
  return array;
}

MatArray read_mat5(Bytes file, std::string_view variable) {
  if (file.size() < kHeader || std::memcmp(file.data(), "MATLAB 5.0", 10) != 0)
    throw DataError("not a MATLAB 5 file");
  if (file[126] != 'I' || file[127] != 'M') throw DataError("a MATLAB file of a big-endian machine");
  for (Elements elements(file.subspan(kHeader)); !elements.empty();) {
    const Element element = elements.next();
    std::optional<MatArray> array;
    if (element.type == kCompressed) {
      const std::vector<std::uint8_t> inflated = inflate_all(element.data);
      array = read_matrix(Elements(inflated).next(kMatrix).data, 0);
    } else if (element.type == kMatrix) {
      array = read_matrix(element.data, 0);
    }
    if (array && array->name == variable) return std::move(*array);
  }
  throw DataError("the MATLAB file has no variable '{}'", variable);
}

std::vector<std::uint8_t> write_mat5(const MatArray& variable) {
  Writer writer;
  constexpr std::string_view kTitle = "MATLAB 5.0 MAT-file, written by Redline";
  writer.out.resize(kHeader, ' ');
  std::memcpy(writer.out.data(), kTitle.data(), kTitle.size());
  std::memset(writer.out.data() + 116, 0, 8);
  std::memcpy(writer.out.data() + 124, "\0\1IM", 4);  // version 1.0, little endian
  writer.matrix(variable);
  return writer.out;
}

}  // namespace redline::data
