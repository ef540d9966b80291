#include "data/sources/tar_shards.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/quantity.h"
#include "base/random_file.h"
#include "data/images/codecs.h"
#include "data/parallel.h"
#include "data/sources/class_list.h"
#include "data/sources/class_words.h"
#include "data/sources/file_list.h"
#include "data/sources/pass_progress.h"
#include "data/sources/record_index.h"
#include "data/sources/shard_names.h"
#include "data/sources/tar.h"

namespace redline::data {
namespace fs = std::filesystem;
namespace {

// An image in a tar, with its label.
struct Found {
  TarMember member;
  std::int32_t label = 0;
};

struct TarContent {
  std::vector<Found> images;
  std::vector<std::string> others;  // images of formats that are not read
};

bool is_image(const TarMember& member, TarContent& content) {
  const std::string_view name = base_name(member.name);
  if (is_other_image_name(name)) content.others.push_back(member.name);
  return is_image_name(name);
}

TarContent images_of_class(const RandomFile& file, std::int32_t label, PassProgress& progress) {
  TarContent content;
  std::vector<Found>& found = content.images;
  for (TarMember& member : list_tar(file, file.path().string(), 0, file.size(), progress))
    if (is_image(member, content)) found.push_back({std::move(member), label});
  const auto name_of = [](const Found& one) -> const std::string& { return one.member.name; };
  std::ranges::sort(found, {}, name_of);
  const auto twin = std::ranges::adjacent_find(found, {}, name_of);
  if (twin != found.end()) throw DataError("{} holds {} twice", file.path().string(), twin->member.name);
  return content;
}

// WebDataset's rule: a sample's parts share the name up to the first dot after the last slash.
std::string key_of(const std::string& name) { return name.substr(0, name.find('.', name.rfind('/') + 1)); }

std::int32_t read_label(const RandomFile& file, const TarMember& member) {
  char text[16] = {};
  std::int32_t label = -1;
  if (member.size > 0 && member.size < sizeof(text)) {
    file.read(member.offset, {reinterpret_cast<std::uint8_t*>(text), member.size});
    const auto [rest, error] = std::from_chars(text, text + member.size, label);
    const std::string_view after(rest, static_cast<std::size_t>(text + member.size - rest));
    if (error != std::errc{} || after.find_first_not_of(" \r\n") != after.npos) label = -1;
  }
  if (label < 0 || label > kMaxLabel)
    throw DataError("{}: {} is not the number of a class", file.path().string(), member.name);
  return label;
}

TarContent web_images(const RandomFile& file, PassProgress& progress) {
  TarContent content;
  std::unordered_map<std::string, std::int32_t> labels;
  for (TarMember& member : list_tar(file, file.path().string(), 0, file.size(), progress)) {
    if (member.name.ends_with(".cls")) {
      const std::int32_t label = read_label(file, member);
      const auto [known, first] = labels.emplace(key_of(member.name), label);
      if (!first && known->second != label)
        throw DataError("{}: there are several {} with different classes; give each sample its own key",
                        file.path().string(), member.name);
    } else if (is_image(member, content)) {
      content.images.push_back({std::move(member), 0});
    }
  }
  for (Found& one : content.images) {
    const auto label = labels.find(key_of(one.member.name));
    if (label == labels.end())
      throw DataError("{}: {} has no .cls file with its class", file.path().string(), one.member.name);
    one.label = label->second;
  }
  return content;
}

class TarShards final : public RecordSource {
 public:
  // index: names its file; what: a tar, for messages; images: of one tar, by its number, with the progress to
  // add to.
  template <typename Images>
  TarShards(const fs::path& folder, const std::vector<std::string>& names, const char* index,
            const std::string& what, const char* kind, const SourceOptions& options, Images&& images)
      : folder_(folder), kind_(kind), options_(options) {
    std::vector<RecordIndex::Container> containers;
    files_.reserve(names.size());
    for (const std::string& name : names) {
      files_.emplace_back(folder / name);
      containers.push_back({name, files_.back().size(), files_.back().modified_ns()});
    }
    const fs::path kept = folder / fmt::format(".redline-index-{}", index);
    if (load_index(kept, containers, index_)) return;
    log_info("indexing {} in {}; this is done once", counted(std::ssize(names), what), folder.string());
    std::vector<TarContent> found(files_.size());
    std::uint64_t bytes = 0;
    for (const RandomFile& file : files_) bytes += file.size();
    PassProgress progress(fmt::format("indexing {}s", what), bytes, options_.stop);
    parallel_for(static_cast<std::int64_t>(files_.size()), inspect_machine().cores_allowed,
                 [&](std::int64_t item, int) {
                   const auto i = static_cast<std::size_t>(item);
                   found[i] = images(files_[i], static_cast<std::int32_t>(i), progress);
                   if (found[i].images.empty())
                     throw DataError("{} holds no images", files_[i].path().string());
                 });
    std::int32_t classes = 0;
    FileListing others;  // sorts them by format
    others.root = folder;
    for (std::size_t i = 0; i < found.size(); ++i) {
      for (const std::string& name : found[i].others) others.leave_out(names[i] + "/" + name);
      for (const Found& one : found[i].images) {
        index_.entries.push_back(
            {one.member.offset, one.member.size, static_cast<std::uint32_t>(i), one.label});
        index_.add_name(one.member.name);
        classes = std::max(classes, one.label + 1);
      }
    }
    for (const auto& [format, one] : others.left)
      index_.skipped.push_back({format, static_cast<std::uint64_t>(one.count), one.first});
    for (std::int32_t label = 0; label < classes; ++label) index_.classes.push_back(std::to_string(label));
    index_.containers = std::move(containers);
    save_index(kept, index_);
  }

  // From the labels of the index to those that the classes have.
  void relabel(const std::vector<std::int32_t>& labels) {
    index_.classes.clear();
    for (RecordIndex::Entry& entry : index_.entries)
      entry.label = labels.at(static_cast<std::size_t>(entry.label));
  }

  // Names by label, at least as many as there are labels.
  void set_classes(std::vector<std::string> classes) {
    if (classes.size() < index_.classes.size())
      throw DataError("{} has images of class {}, but only {} classes are known", folder_.string(),
                      index_.classes.size() - 1, classes.size());
    index_.classes = std::move(classes);
  }

  std::int64_t count() const override { return static_cast<std::int64_t>(index_.entries.size()); }
  std::int32_t label(std::int64_t index) const override { return entry(index).label; }
  std::string name(std::int64_t index) const override {
    return (files_[entry(index).container].path() / index_.name(static_cast<std::size_t>(index))).string();
  }
  const std::vector<std::string>& classes() const override { return index_.classes; }
  const char* kind() const override { return kind_; }
  std::vector<LeftOut> left_out() const override {
    std::vector<LeftOut> list;
    for (const RecordIndex::Skipped& one : index_.skipped)
      list.push_back({one.what, static_cast<std::int64_t>(one.count), one.first, true,
                      "Redline reads " + formats_text()});
    return list;
  }
  std::int64_t encoded_bytes(std::int64_t index) const override {
    return static_cast<std::int64_t>(entry(index).size);
  }

  std::span<const std::uint8_t> read(std::int64_t index, FileBytes& memory) const override {
    const RecordIndex::Entry& e = entry(index);
    return read_entry(files_[e.container], e, options_.max_bytes, memory);
  }

 private:
  const RecordIndex::Entry& entry(std::int64_t index) const {
    return index_.entries.at(static_cast<std::size_t>(index));
  }

  fs::path folder_;
  const char* kind_;
  SourceOptions options_;
  std::vector<RandomFile> files_;
  RecordIndex index_;
};

std::unique_ptr<TarShards> open_web_split(const fs::path& folder, Split split, const SourceOptions& options) {
  const std::vector<std::string> names = tar_names(folder, split);
  if (names.empty()) throw UsageError("{} has no {} tars", folder.string(), split_name(split));
  return std::make_unique<TarShards>(folder, names, split_name(split),
                                     fmt::format("{} tar", split_name(split)), "WebDataset", options,
                                     [](const RandomFile& file, std::int32_t, PassProgress& progress) {
                                       return web_images(file, progress);
                                     });
}

}  // namespace

std::vector<std::string> tar_names(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::string name = it->path().filename().string();
    if (name.ends_with(".tar") && !name.starts_with('.') && name.size() > 4) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> tar_names(const fs::path& folder, Split split) {
  std::vector<std::string> names = tar_names(folder);
  const NamedSplit wanted = split == Split::train ? NamedSplit::train : NamedSplit::val;
  std::erase_if(names, [&](const std::string& name) { return split_in_name(name) != wanted; });
  return names;
}

bool is_class_tars(const fs::path& folder) {
  std::error_code error;
  bool tars = false;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename().string().starts_with('.')) continue;
    std::error_code ignored;
    if (it->is_directory(ignored)) return false;
    tars = tars || it->path().extension() == ".tar";
  }
  return tars;
}

std::vector<std::string> classes_of_tars(const fs::path& folder) {
  std::vector<std::string> classes;
  for (const std::string& name : tar_names(folder)) classes.push_back(name.substr(0, name.size() - 4));
  return classes;
}

std::unique_ptr<RecordSource> open_class_tars(const fs::path& folder, std::vector<std::string> classes,
                                              const SourceOptions& options) {
  const ClassLabels labels(classes);
  std::vector<std::int32_t> label_of_tar;
  for (const std::string& name : classes_of_tars(folder)) {
    label_of_tar.push_back(labels.find(name));
    if (label_of_tar.back() < 0) throw DataError("{} has no class {}", kClassesFile, name);
  }
  // The index holds the tars' own numbers, so that it does not change with classes.txt.
  auto source = std::make_unique<TarShards>(
      folder, tar_names(folder), "tars", "class tar", "tar for each class", options,
      [](const RandomFile& file, std::int32_t number, PassProgress& progress) {
        return images_of_class(file, number, progress);
      });
  source->relabel(label_of_tar);
  source->set_classes(std::move(classes));
  return source;
}

std::unique_ptr<RecordSource> open_web_dataset(const fs::path& folder, Split split,
                                               const SourceOptions& options) {
  std::unique_ptr<TarShards> source = open_web_split(folder, split, options);
  if (auto listed = read_class_list(folder))
    source->set_classes(std::move(*listed));
  else if (split == Split::val && !tar_names(folder, Split::train).empty())
    source->set_classes(open_web_split(folder, Split::train, options)->classes());
  return source;
}

}  // namespace redline::data
