#include "data/sources/image_folder.h"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <utility>

#include "base/atomic_file.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/quantity.h"
#include "data/sources/class_list.h"
#include "data/sources/class_words.h"
#include "data/sources/folder.h"
#include "data/sources/tar_shards.h"
#include "data/sources/val_annotations.h"
#include "data/sources/val_labels.h"

namespace redline::data {
namespace fs = std::filesystem;
namespace {

// Fills in a FileListing whose root and classes are set.
class Lister {
 public:
  Lister(FileListing& listing, const std::function<bool()>& stop)
      : listing_(listing), labels_(listing.classes), stop_(stop) {}

  // where: what gave the classes, for messages.
  void add_class_folders(const std::string& where) {
    std::vector<std::string> folders;
    for (FolderEntry& entry : list_folder(listing_.root)) {
      if (entry.folder)
        folders.push_back(std::move(entry.name));
      else
        listing_.leave_out(entry.name, /*has_class=*/false);
    }
    for (const std::string& name : folders) {
      const int label = labels_.find(name);
      if (label < 0)
        throw DataError("class {} is in {} but not in {}; remove it from the one or add it to the other",
                        name, listing_.root.string(), where);
      const std::size_t before = listing_.labels.size();
      const std::map<std::string, LeftOut> left = listing_.left;
      walk_files(
          listing_.root, name, [&](const std::string& file) { listing_.sort_in(file, label); }, stop_);
      if (listing_.labels.size() == before)
        throw DataError("{} has no images; add some or remove the folder{}", (listing_.root / name).string(),
                        others_since(left));
      report(name, folders);
    }
  }

  void add_annotated() {
    const fs::path list = listing_.root / kValAnnotations;
    try {
      for (const ValAnnotation& one : parse_val_annotations(read_file(list))) {
        const int label = labels_.find(one.wnid);
        if (label < 0) throw DataError("{} is of class '{}', which train does not have", one.file, one.wnid);
        listing_.add("images/" + one.file, label);
      }
    } catch (const DataError& error) {
      throw DataError("{}: {}", list.string(), error.what());
    }
    if (listing_.labels.empty()) throw DataError("{} names no images", list.string());
  }

  void add_flat() {
    const std::unique_ptr<ValLabels> list = find_val_labels(listing_.root);
    if (!list)
      throw DataError(
          "{} has images but no class folders, and their classes are unknown; put ImageNet's development kit "
          "(ILSVRC2012_devkit_t12.tar.gz) or Kaggle's LOC_val_solution.csv next to it",
          listing_.root.string());
    for (const FolderEntry& entry : list_folder(listing_.root)) {
      if (entry.folder || !is_image_name(entry.name)) {
        listing_.leave_out(entry.name);
        continue;
      }
      const std::string name = list->class_of(entry.name);
      const int label = labels_.find(name);
      if (name.empty()) throw DataError("{} does not list the class of {}", list->from.string(), entry.name);
      if (label < 0) throw DataError("{} is of class '{}', which train does not have", entry.name, name);
      listing_.add(entry.name, label);
    }
  }

 private:
  // After a class: a network file system takes minutes to list a million files.
  void report(const std::string& name, const std::vector<std::string>& folders) {
    constexpr double kEvery = 5;  // seconds
    const double now = watch_.seconds();
    if (now - last_ < kEvery) return;
    last_ = now;
    const auto done = std::ranges::find(folders, name) - folders.begin() + 1;
    log_info("listing {}: {} of {} class folders, {} so far", listing_.root.string(), done, folders.size(),
             counted(std::ssize(listing_.labels), "image"));
  }

  // Images of other formats that were found since.
  std::string others_since(const std::map<std::string, LeftOut>& before) const {
    for (const auto& [what, one] : listing_.left) {
      const auto known = before.find(what);
      const std::int64_t more = one.count - (known == before.end() ? 0 : known->second.count);
      if (one.image && more > 0)
        return fmt::format("; it has {} {}, which are not read: convert them to PNG or JPEG", more, what);
    }
    return {};
  }

  FileListing& listing_;
  ClassLabels labels_;
  const std::function<bool()>& stop_;
  Stopwatch watch_;
  double last_ = 0;  // when progress was last logged, in seconds
};

bool has_flat_images(const fs::path& root) {
  bool any = false;
  for (const FolderEntry& entry : list_folder(root)) {
    if (entry.folder) return false;
    any = any || is_image_name(entry.name);
  }
  return any;
}

}  // namespace

std::vector<std::string> class_folders(const fs::path& split) {
  std::vector<std::string> names;
  for (FolderEntry& entry : list_folder(split))
    if (entry.folder) names.push_back(std::move(entry.name));
  return names;
}

std::unique_ptr<RecordSource> open_class_folders(const fs::path& path, const SourceOptions& options) {
  const std::optional<std::vector<std::string>> order = read_class_list(path);
  FileListing listing;
  listing.root = listing.words = path;
  listing.classes = order ? *order : class_folders(path);
  Lister(listing, options.stop).add_class_folders((path / kClassesFile).string());
  return std::make_unique<FileList>(std::move(listing), options);
}

std::unique_ptr<RecordSource> open_labelled_folder(const fs::path& root, std::vector<std::string> classes,
                                                   const SourceOptions& options) {
  FileListing listing;
  listing.root = root;
  listing.words = root.parent_path();
  listing.classes = std::move(classes);
  Lister lister(listing, options.stop);
  if (fs::exists(root / kValAnnotations))
    lister.add_annotated();
  else if (has_flat_images(root))
    lister.add_flat();
  else
    lister.add_class_folders("train");
  if (listing.labels.empty()) throw DataError("{} has no class folders and no images", root.string());
  return std::make_unique<FileList>(std::move(listing), options);
}

std::unique_ptr<RecordSource> open_image_folder(const fs::path& path, Split split,
                                                const SourceOptions& options) {
  FileListing listing;
  listing.root = split_folder(path, split);
  if (listing.root.empty())
    throw UsageError("{} has no {} folder; it needs {}/<class>/<image>.jpg", path.string(), split_name(split),
                     split_name(split));
  listing.words = path;
  const fs::path train = split_folder(path, Split::train);
  const std::optional<std::vector<std::string>> order = read_class_list(path);
  const bool tars = !train.empty() && is_class_tars(train);
  listing.classes = order  ? *order
                    : tars ? classes_of_tars(train)
                           : class_folders(train.empty() ? listing.root : train);
  if (const std::vector<std::string>& only = listing.classes;
      !order && only.size() == 1 && !train.empty() && is_class_folders(train / only[0]))
    throw DataError("{} has only the folder {}, in which are class folders; give {} as the data set",
                    train.string(), only[0], train.string());
  if (split == Split::train && tars) return open_class_tars(train, std::move(listing.classes), options);
  const bool by_list =
      split == Split::val && (fs::exists(listing.root / kValAnnotations) || has_flat_images(listing.root));
  if (by_list && train.empty() && !order)
    throw DataError("{} has no train folder, which names the classes", path.string());
  if (listing.classes.empty())
    throw DataError("{} has no class folders; put the images of each class into a separate folder there",
                    (train.empty() ? listing.root : train).string());
  Lister lister(listing, options.stop);
  if (by_list && fs::exists(listing.root / kValAnnotations))
    lister.add_annotated();
  else if (by_list)
    lister.add_flat();
  else
    lister.add_class_folders(order ? (path / kClassesFile).string() : train.string());
  if (listing.labels.empty())
    throw DataError("{} has no class folders; put the images of each class into a separate folder there",
                    listing.root.string());
  return std::make_unique<FileList>(std::move(listing), options);
}

bool is_class_folders(const fs::path& path) {
  const auto holds_images = [&](const std::string& name) {
    for (const fs::path& folder : {path / name, path / name / "images"}) {
      std::error_code error;
      for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
        if (is_image_name(it->path().filename().string())) return true;
    }
    return false;
  };
  int classes = 0;
  for (const std::string& name : class_folders(path)) {
    classes += holds_images(name) ? 1 : 0;
    if (classes == 2) return true;
  }
  return false;
}

bool is_image_folder(const fs::path& path) {
  return !split_folder(path, Split::train).empty() || !split_folder(path, Split::val).empty();
}

fs::path split_folder(const fs::path& path, Split split) {
  const std::initializer_list<const char*> train{"train", "training", "Train", "Training"};
  const std::initializer_list<const char*> val{"val", "validation", "valid", "Val", "Validation", "Valid"};
  for (const fs::path& root : {path, path / "ILSVRC/Data/CLS-LOC", path / "Data/CLS-LOC", path / "CLS-LOC"})
    for (const char* name : split == Split::train ? train : val) {
      std::error_code ignored;
      if (fs::is_directory(root / name, ignored)) return root / name;
    }
  return {};
}

std::vector<LeftOut> unused_entries(const fs::path& path) {
  const fs::path train = split_folder(path, Split::train), val = split_folder(path, Split::val);
  const fs::path root = (train.empty() ? val : train).parent_path();
  return entries_beside(root, [&](const FolderEntry& entry) {
    const fs::path at = root / entry.name;
    return at == train || at == val || is_val_labels(at);
  });
}

}  // namespace redline::data
