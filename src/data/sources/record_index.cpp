#include "data/sources/record_index.h"

#include <bit>
#include <cstring>
#include <span>
#include <type_traits>

#include "base/atomic_file.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/log.h"

namespace redline::data {
namespace {

static_assert(std::endian::native == std::endian::little, "index files are little endian");
constexpr std::string_view kIndexMagic = "RLINDEX3";  // changes with the layout

template <typename T>
concept Plain = std::is_trivially_copyable_v<T>;

std::uint32_t checksum(std::string_view bytes) {
  return crc32c({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
}

class IndexWriter {
 public:
  std::string out;

  template <Plain T>
  void put(const T& value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  void put(const std::string& text) {
    put(std::uint64_t{text.size()});
    out += text;
  }
  void put(const RecordIndex::Container& container) {
    put(container.name);
    put(container.size);
    put(container.modified_ns);
  }
  void put(const RecordIndex::Skipped& skipped) {
    put(skipped.what);
    put(skipped.count);
    put(skipped.first);
  }
  template <typename T>
  void put(const std::vector<T>& values) {
    put(std::uint64_t{values.size()});
    for (const T& value : values) put(value);
  }
};

// Stays at its end once something does not fit; ok() tells.
class IndexReader {
 public:
  explicit IndexReader(std::string_view bytes) : left_(bytes) {}

  bool ok() const { return ok_; }
  bool done() const { return ok_ && left_.empty(); }

  template <Plain T>
  void get(T& value) {
    if (const std::string_view bytes = take(sizeof(T)); ok_) std::memcpy(&value, bytes.data(), sizeof(T));
  }
  void get(std::string& text) {
    std::uint64_t size = 0;
    get(size);
    text = take(size);
  }
  void get(RecordIndex::Container& container) {
    get(container.name);
    get(container.size);
    get(container.modified_ns);
  }
  void get(RecordIndex::Skipped& skipped) {
    get(skipped.what);
    get(skipped.count);
    get(skipped.first);
  }
  template <typename T>
  void get(std::vector<T>& values) {
    std::uint64_t count = 0;
    get(count);
    if (count > left_.size()) ok_ = false;  // every value takes a byte at least
    values.clear();
    for (std::uint64_t i = 0; ok_ && i < count; ++i) get(values.emplace_back());
  }

 private:
  std::string_view take(std::uint64_t count) {
    if (count > left_.size()) ok_ = false;
    if (!ok_) return {};
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }

  std::string_view left_;
  bool ok_ = true;
};

// Every entry's place and label must make sense, since they are used unchecked later.
bool consistent(const RecordIndex& index) {
  if (!index.name_at.empty() && index.name_at.size() != index.entries.size()) return false;
  if (!index.names.empty() && index.names.back() != '\0') return false;
  for (const std::uint64_t at : index.name_at)
    if (at >= index.names.size()) return false;
  for (const RecordIndex::Entry& e : index.entries) {
    if (e.container >= index.containers.size()) return false;
    if (e.label < 0 || static_cast<std::size_t>(e.label) >= index.classes.size()) return false;
    const std::uint64_t size = index.containers[e.container].size;
    if (e.offset > size || e.size > size - e.offset) return false;
  }
  return true;
}

}  // namespace

void RecordIndex::add_name(std::string_view name) {
  name_at.push_back(names.size());
  names.append(name).push_back('\0');
}

std::string_view RecordIndex::name(std::size_t entry) const {
  return name_at.empty() ? std::string_view{} : std::string_view(names.data() + name_at.at(entry));
}

std::span<const std::uint8_t> read_entry(const RandomFile& file, const RecordIndex::Entry& entry,
                                         std::int64_t max_bytes, FileBytes& memory) {
  if (entry.size > static_cast<std::uint64_t>(max_bytes))
    throw DataError("{} bytes, more than the limit of {}", entry.size, max_bytes);
  const std::span<std::uint8_t> bytes = memory.room(entry.size);
  file.read(entry.offset, bytes);
  return bytes;
}

bool load_index(const std::filesystem::path& path, const std::vector<RecordIndex::Container>& containers,
                RecordIndex& index) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  try {
    const std::string bytes = read_file(path);
    if (bytes.size() < kIndexMagic.size() + 4 || !bytes.starts_with(kIndexMagic)) return false;
    const std::string_view body(bytes.data(), bytes.size() - 4);
    std::uint32_t stored = 0;
    std::memcpy(&stored, bytes.data() + body.size(), 4);
    if (stored != checksum(body)) return false;
    IndexReader reader(body.substr(kIndexMagic.size()));
    RecordIndex read;
    reader.get(read.containers);
    reader.get(read.entries);
    reader.get(read.names);
    reader.get(read.name_at);
    reader.get(read.classes);
    reader.get(read.first_label);
    reader.get(read.damage);
    reader.get(read.skipped);
    if (!reader.done() || read.containers != containers || !consistent(read)) return false;
    index = std::move(read);
    return true;
  } catch (const IoError&) {
    return false;
  }
}

void save_index(const std::filesystem::path& path, const RecordIndex& index) {
  IndexWriter writer;
  writer.out = kIndexMagic;
  writer.put(index.containers);
  writer.put(index.entries);
  writer.put(index.names);
  writer.put(index.name_at);
  writer.put(index.classes);
  writer.put(index.first_label);
  writer.put(index.damage);
  writer.put(index.skipped);
  writer.put(checksum(writer.out));
  try {
    write_file_atomically(path, writer.out, Sync::no);
  } catch (const IoError& error) {
    log_info("the index of the data could not be saved, and will be rebuilt next time: {}", error.what());
  }
}

}  // namespace redline::data
