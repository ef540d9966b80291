#include "data/image_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <string_view>
#include <utility>

#include "base/atomic_file.h"
#include "base/error.h"
#include "data/class_words.h"
#include "data/file.h"
#include "data/val_annotations.h"

namespace redline::data {
namespace fs = std::filesystem;
namespace {

struct Entry {
  std::string name;
  bool folder = false;
};

// Sorted by name, so that samples are numbered the same on every file system. Hidden entries are left out.
std::vector<Entry> list_folder(const fs::path& folder) {
  std::error_code error;
  std::vector<Entry> entries;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::string name = it->path().filename().string();
    if (name.front() == '.') continue;
    std::error_code ignored;  // a dangling link is neither a folder nor an image
    const bool is_folder = it->is_directory(ignored);
    entries.push_back({std::move(name), is_folder});
  }
  if (error) throw IoError("cannot list {}: {}", folder.string(), error.message());
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return entries;
}

std::vector<std::string> class_names(const fs::path& split) {
  std::vector<std::string> names;
  for (Entry& entry : list_folder(split))
    if (entry.folder) names.push_back(std::move(entry.name));
  if (names.empty())
    throw DataError("{} has no class folders; put each class's images into a folder of its own there",
                    split.string());
  return names;
}

class ImageFolder final : public RecordSource {
 public:
  ImageFolder(const fs::path& path, Split split, const SourceOptions& options)
      : path_(path), root_(split_folder(path, split)), options_(options) {
    if (root_.empty())
      throw UsageError("{} has no {} folder; it needs {}/<class>/<image>.jpg", path.string(),
                       split_name(split), split_name(split));
    const fs::path train = split_folder(path, Split::train);
    classes_ = class_names(train.empty() ? root_ : train);
    if (split == Split::val && fs::exists(root_ / kValAnnotations))
      add_annotated(path);
    else
      add_class_folders(train);
    names_.shrink_to_fit();
  }

  std::int64_t count() const override { return static_cast<std::int64_t>(labels_.size()); }
  std::int32_t label(std::int64_t index) const override {
    return labels_.at(static_cast<std::size_t>(index));
  }
  std::string name(std::int64_t index) const override { return (root_ / relative(index)).string(); }
  const std::vector<std::string>& classes() const override { return classes_; }
  const char* kind() const override { return "image folder"; }

  std::span<const std::uint8_t> read(std::int64_t index, std::vector<std::uint8_t>& scratch) const override {
    return read_whole(root_ / relative(index), options_.max_bytes, scratch);
  }

  DetailedSample read_detailed(std::int64_t index, std::vector<std::uint8_t>& scratch) const override {
    std::call_once(words_read_, [this] { words_ = read_words(path_, classes_); });
    DetailedSample sample = RecordSource::read_detailed(index, scratch);
    sample.class_text = words_[static_cast<std::size_t>(label(index))];
    return sample;
  }

 private:
  using FileId = std::pair<dev_t, ino_t>;

  std::string_view relative(std::int64_t index) const {
    return names_.data() + offsets_.at(static_cast<std::size_t>(index));
  }

  void add_class_folders(const fs::path& train) {
    for (const std::string& name : class_names(root_)) {
      const std::int32_t label = label_of(name);
      if (label < 0)
        throw DataError("class {} is in {} but not in {}; remove it from the one or add it to the other",
                        name, root_.string(), train.string());
      const std::size_t before = labels_.size();
      std::vector<FileId> parents;
      add_images(name, label, parents);
      if (labels_.size() == before)
        throw DataError("{} has no .jpg, .jpeg or .png files; add images or remove the folder",
                        (root_ / name).string());
    }
  }

  void add_annotated(const fs::path& path) {
    if (split_folder(path, Split::train).empty())
      throw DataError("{} has no train folder, which names the classes", path.string());
    const fs::path list = root_ / kValAnnotations;
    try {
      for (const ValAnnotation& one : parse_val_annotations(read_file(list))) {
        const std::int32_t label = label_of(one.wnid);
        if (label < 0) throw DataError("{} is of class '{}', which train does not have", one.file, one.wnid);
        add("images/" + one.file, label);
      }
    } catch (const DataError& error) {
      throw DataError("{}: {}", list.string(), error.what());
    }
    if (labels_.empty()) throw DataError("{} names no images", list.string());
  }

  std::int32_t label_of(const std::string& name) const {
    const auto found = std::lower_bound(classes_.begin(), classes_.end(), name);
    return found == classes_.end() || *found != name ? -1
                                                     : static_cast<std::int32_t>(found - classes_.begin());
  }

  void add(const std::string& file, std::int32_t label) {
    offsets_.push_back(names_.size());
    labels_.push_back(label);
    names_.append(file).push_back('\0');
  }

  // parents: the folders on the way here; meeting one of them again means that a link leads back up.
  void add_images(const std::string& folder, std::int32_t label, std::vector<FileId>& parents) {
    const fs::path path = root_ / folder;
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0)
      throw IoError("cannot look at {}: {}", path.string(), std::strerror(errno));
    const FileId id{status.st_dev, status.st_ino};
    if (std::find(parents.begin(), parents.end(), id) != parents.end())
      throw DataError("{} is a link back to a folder that holds it; remove the link", path.string());
    parents.push_back(id);
    for (const Entry& entry : list_folder(path)) {
      if (entry.folder) {
        add_images(folder + "/" + entry.name, label, parents);
      } else if (is_image_name(entry.name)) {
        add(folder + "/" + entry.name, label);
      }
    }
    parents.pop_back();
  }

  fs::path path_;
  fs::path root_;  // of the split
  SourceOptions options_;
  std::vector<std::string> classes_;
  std::vector<std::int32_t> labels_;
  // Paths under root_, each ended by a zero: a million strings of their own would cost four times the memory.
  std::string names_;
  std::vector<std::size_t> offsets_;
  mutable std::once_flag words_read_;
  mutable std::vector<std::string> words_;  // by label
};

}  // namespace

bool is_image_name(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || name.front() == '.') return false;
  std::string extension(name.substr(dot + 1));
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return extension == "jpg" || extension == "jpeg" || extension == "png";
}

bool is_image_folder(const fs::path& path) {
  return !split_folder(path, Split::train).empty() || !split_folder(path, Split::val).empty();
}

fs::path split_folder(const fs::path& path, Split split) {
  const std::vector<const char*> names = split == Split::train
                                             ? std::vector<const char*>{"train"}
                                             : std::vector<const char*>{"val", "validation"};
  for (const char* name : names) {
    std::error_code ignored;
    if (fs::is_directory(path / name, ignored)) return path / name;
  }
  return {};
}

std::unique_ptr<RecordSource> open_image_folder(const fs::path& path, Split split,
                                                const SourceOptions& options) {
  return std::make_unique<ImageFolder>(path, split, options);
}

}  // namespace redline::data
