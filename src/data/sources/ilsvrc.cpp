#include "data/sources/ilsvrc.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/random_file.h"
#include "data/parallel.h"
#include "data/sources/devkit.h"
#include "data/sources/file_list.h"
#include "data/sources/pass_progress.h"
#include "data/sources/record_index.h"
#include "data/sources/tar.h"

namespace redline::data {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kValPrefix = "ILSVRC2012_val_";

RecordIndex::Container container_of(const RandomFile& file) {
  return {file.path().filename().string(), file.size(), file.modified_ns()};
}

// The tars in the training tar, by class.
std::map<std::string, TarMember> class_tars(const RandomFile& file, const SourceOptions& options) {
  PassProgress listing(fmt::format("listing {}", file.path().string()), file.size(), options.stop);
  std::map<std::string, TarMember> tars;
  for (TarMember& member : list_tar(file, file.path().string(), 0, file.size(), listing)) {
    std::string_view name = base_name(member.name);
    if (!name.ends_with(".tar") || name.size() == 4) continue;
    name.remove_suffix(4);
    if (!tars.emplace(std::string(name), member).second)
      throw DataError("{} holds {} twice", file.path().string(), member.name);
  }
  if (tars.empty())
    throw DataError("{} holds no tars; it should hold one for each class", file.path().string());
  return tars;
}

std::vector<std::string> class_names(const std::map<std::string, TarMember>& tars) {
  std::vector<std::string> names;
  for (const auto& [name, member] : tars) names.push_back(name);
  return names;
}

RecordIndex index_train(const RandomFile& file, const SourceOptions& options) {
  const std::map<std::string, TarMember> tars = class_tars(file, options);
  log_info("indexing {} class tars in {}; this is done once", tars.size(), file.path().string());
  PassProgress progress("indexing train", file.size(), options.stop);
  const std::vector<std::pair<std::string, TarMember>> order(tars.begin(), tars.end());
  std::vector<std::vector<TarMember>> images(order.size());
  parallel_for(static_cast<std::int64_t>(order.size()), inspect_machine().cores_allowed,
               [&](std::int64_t item, int) {
                 const auto i = static_cast<std::size_t>(item);
                 const TarMember& tar = order[i].second;
                 const std::string what = (file.path() / tar.name).string();
                 for (TarMember& member : list_tar(file, what, tar.offset, tar.offset + tar.size, progress))
                   if (is_image_name(base_name(member.name))) images[i].push_back(std::move(member));
                 std::ranges::sort(images[i], {}, &TarMember::name);
                 if (images[i].empty()) throw DataError("{} holds no images", what);
                 const auto twin = std::ranges::adjacent_find(images[i], {}, &TarMember::name);
                 if (twin != images[i].end()) throw DataError("{} holds {} twice", what, twin->name);
               });
  RecordIndex index;
  index.classes = class_names(tars);
  for (std::size_t label = 0; label < images.size(); ++label)
    for (const TarMember& image : images[label]) {
      index.entries.push_back({image.offset, image.size, 0, static_cast<std::int32_t>(label)});
      index.add_name(order[label].second.name + "/" + image.name);
    }
  return index;
}

// From the number of a class in the development kit to its label here.
std::map<int, std::int32_t> labels_by_id(const Devkit& devkit, const std::vector<std::string>& classes) {
  std::map<int, std::int32_t> labels;
  for (const Synset& synset : devkit.synsets) {
    const auto found = std::lower_bound(classes.begin(), classes.end(), synset.wnid);
    if (synset.leaf && found != classes.end() && *found == synset.wnid)
      labels[synset.id] = static_cast<std::int32_t>(found - classes.begin());
  }
  return labels;
}

// The development kit's name of each class; empty if it has none or is missing.
std::vector<std::string> words_of(const fs::path& devkit_path, const std::vector<std::string>& classes) {
  std::vector<std::string> words(classes.size());
  if (!fs::exists(devkit_path)) return words;
  const Devkit devkit = read_devkit(devkit_path);
  for (const Synset& synset : devkit.synsets) {
    const auto found = std::lower_bound(classes.begin(), classes.end(), synset.wnid);
    if (synset.leaf && found != classes.end() && *found == synset.wnid)
      words[static_cast<std::size_t>(found - classes.begin())] = synset.words;
  }
  return words;
}

// Without a training tar, the classes are all that the development kit lists.
RecordIndex index_val(const RandomFile& file, const RandomFile* train, const fs::path& devkit_path,
                      const SourceOptions& options) {
  const Devkit devkit = read_devkit(devkit_path);
  RecordIndex index;
  if (train) {
    index.classes = class_names(class_tars(*train, options));
  } else {
    for (const Synset& synset : devkit.synsets)
      if (synset.leaf) index.classes.push_back(synset.wnid);
    std::sort(index.classes.begin(), index.classes.end());
  }
  const std::map<int, std::int32_t> labels = labels_by_id(devkit, index.classes);
  std::map<int, TarMember> images;
  PassProgress progress("indexing val", file.size(), options.stop);
  for (TarMember& member : list_tar(file, file.path().string(), 0, file.size(), progress)) {
    const int number = ilsvrc_val_number(base_name(member.name));
    if (number == 0) continue;
    if (static_cast<std::size_t>(number) > devkit.ground_truth.size())
      throw DataError("{} contains {}, but {} has the classes of only {} images", file.path().string(),
                      member.name, devkit_path.string(), devkit.ground_truth.size());
    if (!images.emplace(number, member).second)
      throw DataError("{} holds {} twice", file.path().string(), member.name);
  }
  if (images.empty()) throw DataError("{} holds no {}NNNNNNNN.JPEG", file.path().string(), kValPrefix);
  for (const auto& [number, image] : images) {
    const int id = devkit.ground_truth[static_cast<std::size_t>(number) - 1];
    const auto label = labels.find(id);
    if (label == labels.end())
      throw DataError("{} has an image of class {} ({}), which {} lacks", file.path().string(), id,
                      image.name, kIlsvrcTrain);
    index.entries.push_back({image.offset, image.size, 0, label->second});
    index.add_name(image.name);
  }
  return index;
}

class IlsvrcTar final : public RecordSource {
 public:
  IlsvrcTar(const fs::path& path, Split split, const SourceOptions& options)
      : options_(options), devkit_(path / kIlsvrcDevkit), file_(open_tar(path, split)) {
    std::vector<RecordIndex::Container> containers{container_of(file_)};
    std::unique_ptr<RandomFile> train;
    if (split == Split::val) {
      if (!fs::exists(devkit_))
        throw UsageError("{} is missing; it has the classes of the validation images", devkit_.string());
      containers.push_back(container_of(RandomFile(devkit_)));
      if (const fs::path tar = ilsvrc_tar(path, Split::train); fs::exists(tar)) {
        train = std::make_unique<RandomFile>(tar);
        containers.push_back(container_of(*train));
      }
    }
    const fs::path kept = path / fmt::format(".redline-index-{}", split_name(split));
    if (load_index(kept, containers, index_)) return;
    index_ = split == Split::train ? index_train(file_, options_)
                                   : index_val(file_, train.get(), devkit_, options_);
    index_.containers = std::move(containers);
    save_index(kept, index_);
  }

  std::int64_t count() const override { return static_cast<std::int64_t>(index_.entries.size()); }
  std::int32_t label(std::int64_t index) const override { return entry(index).label; }
  std::string name(std::int64_t index) const override {
    return (file_.path() / index_.name(static_cast<std::size_t>(index))).string();
  }
  const std::vector<std::string>& classes() const override { return index_.classes; }
  const char* kind() const override { return "ILSVRC tar"; }

  std::int64_t encoded_bytes(std::int64_t index) const override {
    return static_cast<std::int64_t>(entry(index).size);
  }

  std::span<const std::uint8_t> read(std::int64_t index, FileBytes& memory) const override {
    return read_entry(file_, entry(index), options_.max_bytes, memory);
  }

  DetailedSample read_detailed(std::int64_t index, FileBytes& memory) const override {
    std::call_once(words_read_, [this] { words_ = words_of(devkit_, index_.classes); });
    DetailedSample sample = RecordSource::read_detailed(index, memory);
    sample.class_text = words_[static_cast<std::size_t>(label(index))];
    return sample;
  }

 private:
  static RandomFile open_tar(const fs::path& path, Split split) {
    const fs::path tar = ilsvrc_tar(path, split);
    if (!fs::exists(tar)) throw UsageError("{}: no such file", tar.string());
    return RandomFile(tar);
  }
  const RecordIndex::Entry& entry(std::int64_t index) const {
    return index_.entries.at(static_cast<std::size_t>(index));
  }

  SourceOptions options_;
  fs::path devkit_;  // may be missing for train
  RandomFile file_;
  RecordIndex index_;  // its first container is file_
  mutable std::once_flag words_read_;
  mutable std::vector<std::string> words_;  // by label
};

}  // namespace

bool is_ilsvrc(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path / kIlsvrcTrain, ignored) || fs::is_regular_file(path / kIlsvrcVal, ignored);
}

fs::path ilsvrc_tar(const fs::path& path, Split split) {
  return path / (split == Split::train ? kIlsvrcTrain : kIlsvrcVal);
}

int ilsvrc_val_number(std::string_view file_name) {
  if (!file_name.starts_with(kValPrefix) || !is_image_name(file_name)) return 0;
  file_name.remove_prefix(kValPrefix.size());
  const std::string_view digits = file_name.substr(0, file_name.find('.'));
  int number = 0;
  const auto [rest, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc{} && rest == digits.data() + digits.size() && number > 0 ? number : 0;
}

std::unique_ptr<RecordSource> open_ilsvrc(const fs::path& path, Split split, const SourceOptions& options) {
  return std::make_unique<IlsvrcTar>(path, split, options);
}

}  // namespace redline::data
