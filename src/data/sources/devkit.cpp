#include "data/sources/devkit.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <set>

#include <archive.h>
#include <archive_entry.h>

#include "base/error.h"
#include "data/file.h"
#include "data/sources/archive_reader.h"
#include "data/sources/lines.h"
#include "data/sources/mat5.h"

namespace redline::data {
namespace {

constexpr std::size_t kMaxMeta = 32 << 20;
constexpr std::size_t kMaxTruth = 32 << 20;
constexpr int kMaxSynsets = 1'000'000;
constexpr const char* kTruth = "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt";
constexpr const char* kMeta = "ILSVRC2012_devkit_t12/data/meta.mat";

double number(const MatArray& array, std::int64_t index, const char* name) {
  const MatArray* value = array.field(index, name);
  if (!value || value->kind != MatArray::Kind::number || value->numbers.size() != 1)
    throw DataError("meta.mat: the {} of class {} is not a number", name, index + 1);
  return value->numbers.front();
}

std::string text(const MatArray& array, std::int64_t index, const char* name) {
  const MatArray* value = array.field(index, name);
  if (value && value->kind == MatArray::Kind::number && value->numbers.empty()) return {};  // an empty one
  if (!value || value->kind != MatArray::Kind::text)
    throw DataError("meta.mat: the {} of class {} is not text", name, index + 1);
  return value->text;
}

// A class's name becomes the name of a folder, so it may hold nothing that leads elsewhere.
bool is_wnid(const std::string& wnid) {
  const auto plain = [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  return !wnid.empty() && wnid.size() <= 64 && std::all_of(wnid.begin(), wnid.end(), plain);
}

void check_synsets(const std::vector<Synset>& synsets) {
  std::set<int> ids;
  std::set<std::string> leaves;
  for (const Synset& synset : synsets) {
    if (!ids.insert(synset.id).second) throw DataError("meta.mat: two classes have the number {}", synset.id);
    if (synset.leaf && !leaves.insert(synset.wnid).second)
      throw DataError("meta.mat: two classes are called {}", synset.wnid);
  }
  if (leaves.empty()) throw DataError("meta.mat: it lists no classes");
}

// libarchive's writer into memory.
class TarGzWriter {
 public:
  TarGzWriter() : archive_(archive_write_new()) {
    archive_write_set_format_ustar(archive_.get());
    archive_write_add_filter_gzip(archive_.get());
    archive_write_set_bytes_in_last_block(archive_.get(), 1);  // no padding
    archive_write_set_filter_option(archive_.get(), "gzip", "timestamp", nullptr);
    require(archive_write_open(archive_.get(), &out_, nullptr, append, nullptr));
  }
  void add(const char* name, std::span<const std::uint8_t> bytes) {
    const std::unique_ptr<archive_entry, decltype([](archive_entry* e) { archive_entry_free(e); })> entry(
        archive_entry_new());
    archive_entry_set_pathname(entry.get(), name);
    archive_entry_set_size(entry.get(), static_cast<la_int64_t>(bytes.size()));
    archive_entry_set_filetype(entry.get(), AE_IFREG);
    archive_entry_set_perm(entry.get(), 0644);
    archive_entry_set_mtime(entry.get(), 0, 0);
    require(archive_write_header(archive_.get(), entry.get()));
    if (archive_write_data(archive_.get(), bytes.data(), bytes.size()) !=
        static_cast<la_ssize_t>(bytes.size()))
      require(ARCHIVE_FATAL);
  }
  std::vector<std::uint8_t> finish() {
    require(archive_write_close(archive_.get()));
    return std::move(out_);
  }

 private:
  static la_ssize_t append(struct archive*, void* out, const void* bytes, std::size_t count) {
    const auto* from = static_cast<const std::uint8_t*>(bytes);
    auto& to = *static_cast<std::vector<std::uint8_t>*>(out);
    to.insert(to.end(), from, from + count);
    return static_cast<la_ssize_t>(count);
  }
  void require(int code) const {
    check(code == ARCHIVE_OK, "cannot write a tar.gz: {}", archive_error_string(archive_.get()));
  }

  std::vector<std::uint8_t> out_;
  std::unique_ptr<struct archive, decltype([](struct archive* a) { archive_write_free(a); })> archive_;
};

std::vector<std::uint8_t> serialize_meta(const std::vector<Synset>& synsets) {
  MatArray array;
  array.kind = MatArray::Kind::structure;
  array.name = "synsets";
  array.dims = {static_cast<std::int64_t>(synsets.size()), 1};
  array.fields = {"ILSVRC2012_ID", "WNID", "words", "num_children"};
  for (const Synset& synset : synsets) {
    array.cells.push_back(mat_number(synset.id));
    array.cells.push_back(mat_text(synset.wnid));
    array.cells.push_back(mat_text(synset.words));
    array.cells.push_back(mat_number(synset.leaf ? 0 : 1));
  }
  return write_mat5(array);
}

// The two files of an archive.
void read_packed(const std::filesystem::path& path, std::vector<std::uint8_t>& meta,
                 std::vector<std::uint8_t>& truth) {
  ArchiveReader archive(path);
  bool has_meta = false, has_truth = false;
  while (archive.next()) {  // to the end, which finds a cut-off file
    const std::string& name = archive.name();
    if (name.ends_with("data/meta.mat")) {
      meta = archive.read(kMaxMeta);
      has_meta = true;
    } else if (name.ends_with("data/ILSVRC2012_validation_ground_truth.txt")) {
      truth = archive.read(kMaxTruth);
      has_truth = true;
    }
  }
  if (!has_meta || !has_truth)
    throw DataError("{} has no data/{}; it is not ImageNet's development kit, or it is incomplete",
                    path.string(), has_meta ? "ILSVRC2012_validation_ground_truth.txt" : "meta.mat");
}

// The two files of the unpacked folder.
void read_unpacked(const std::filesystem::path& path, std::vector<std::uint8_t>& meta,
                   std::vector<std::uint8_t>& truth) {
  const auto read = [&](const char* name, std::size_t limit) {
    try {
      const std::string text = read_text(path / "data" / name, static_cast<std::int64_t>(limit));
      return std::vector<std::uint8_t>(text.begin(), text.end());
    } catch (const Error& error) {
      throw DataError("{}: {}; it is not ImageNet's development kit, or it is incomplete",
                      (path / "data" / name).string(), error.what());
    }
  };
  meta = read("meta.mat", kMaxMeta);
  truth = read("ILSVRC2012_validation_ground_truth.txt", kMaxTruth);
}

}  // namespace

std::vector<Synset> parse_meta(std::span<const std::uint8_t> bytes) {
  const MatArray array = read_mat5(bytes, "synsets");
  if (array.kind != MatArray::Kind::structure || array.elements() > kMaxSynsets)
    throw DataError("meta.mat: 'synsets' is not a list of classes");
  std::vector<Synset> synsets;
  for (std::int64_t i = 0; i < array.elements(); ++i) {
    Synset synset;
    const double id = number(array, i, "ILSVRC2012_ID");
    if (!(id >= 1 && id <= kMaxSynsets) || id != std::floor(id))
      throw DataError("meta.mat: class {} has the number {}", i + 1, id);
    synset.id = static_cast<int>(id);
    synset.wnid = text(array, i, "WNID");
    if (!is_wnid(synset.wnid)) throw DataError("meta.mat: class {} has no usable WNID", synset.id);
    synset.words = text(array, i, "words");
    synset.leaf = number(array, i, "num_children") == 0;
    synsets.push_back(std::move(synset));
  }
  check_synsets(synsets);
  return synsets;
}

std::vector<int> parse_ground_truth(std::string_view text) {
  std::vector<int> ids;
  for (std::string_view line; next_line(text, line);) {
    while (!line.empty() && line.back() == ' ') line.remove_suffix(1);
    if (line.empty() && text.empty()) break;
    int id = 0;
    const auto [rest, error] = std::from_chars(line.data(), line.data() + line.size(), id);
    if (error != std::errc{} || rest != line.data() + line.size() || id < 1)
      throw DataError("ground truth: line {} is not the number of a class", ids.size() + 1);
    ids.push_back(id);
  }
  return ids;
}

Devkit read_devkit(const std::filesystem::path& path) {
  std::vector<std::uint8_t> meta, truth;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    read_unpacked(path, meta, truth);
  else
    read_packed(path, meta, truth);
  try {
    Devkit devkit{parse_meta(meta),
                  parse_ground_truth({reinterpret_cast<const char*>(truth.data()), truth.size()})};
    std::set<int> leaves;
    for (const Synset& synset : devkit.synsets)
      if (synset.leaf) leaves.insert(synset.id);
    for (std::size_t i = 0; i < devkit.ground_truth.size(); ++i)
      if (!leaves.contains(devkit.ground_truth[i]))
        throw DataError("ground truth: line {} names class {}, which meta.mat does not list", i + 1,
                        devkit.ground_truth[i]);
    return devkit;
  } catch (const DataError& error) {
    throw DataError("{}: {}", path.string(), error.what());
  }
}

std::vector<std::uint8_t> serialize_devkit(const Devkit& devkit) {
  std::string truth;
  for (const int id : devkit.ground_truth) truth += fmt::format("{}\n", id);
  TarGzWriter writer;
  writer.add(kTruth, {reinterpret_cast<const std::uint8_t*>(truth.data()), truth.size()});
  writer.add(kMeta, serialize_meta(devkit.synsets));
  return writer.finish();
}

}  // namespace redline::data
