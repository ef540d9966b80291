#include "data/sources/record_source.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/quantity.h"
#include "data/sources/boxes.h"
#include "data/sources/cifar.h"
#include "data/sources/folder.h"
#include "data/sources/hold_out.h"
#include "data/sources/ilsvrc.h"
#include "data/sources/image_folder.h"
#include "data/sources/shard_names.h"
#include "data/sources/tar_shards.h"
#include "data/sources/tfrecord_folder.h"
#include "data/sources/tiny_imagenet_zip.h"

namespace redline::data {
namespace fs = std::filesystem;
namespace {

// Throws UsageError unless something readable is there.
void require_path(const fs::path& path) {
  if (path.empty()) throw UsageError("the path of the data set is empty");
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found)
    throw UsageError("{}: no such file or folder; 'redline data synth {}' would draw a data set there",
                     path.string(), path.string());
  if (error) throw IoError("cannot access {}: {}", path.string(), error.message());
}

bool is_tfrecord_folder(const fs::path& path) {
  return !shard_names(path, Split::train).empty() || !shard_names(path, Split::val).empty();
}

enum class Kind {
  image_folder,
  class_folders,
  ilsvrc,
  tfrecord_folder,
  tiny_imagenet_zip,
  web_dataset,
  cifar
};

std::optional<Kind> find_kind(const fs::path& path) {
  if (is_zip_name(path)) return Kind::tiny_imagenet_zip;
  if (!fs::is_directory(path)) return {};
  if (is_image_folder(path)) return Kind::image_folder;
  if (is_ilsvrc(path)) return Kind::ilsvrc;
  if (is_tfrecord_folder(path)) return Kind::tfrecord_folder;
  if (is_cifar(path)) return Kind::cifar;
  if (!tar_names(path, Split::train).empty() || !tar_names(path, Split::val).empty())
    return Kind::web_dataset;
  if (is_class_folders(path)) return Kind::class_folders;
  return {};
}

// " (flowers/images is one)", of the data sets in a folder that is none.
std::string nested_hint(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->is_directory(ignored) && find_kind(it->path()))
      return fmt::format(" ({} in it is one)", it->path().filename().string());
  }
  return {};
}

// What somebody who meant a folder as a data set missed, where it is plain; else empty.
std::string missing_in(const fs::path& folder) {
  const std::vector<FolderEntry> entries = list_folder(folder);
  if (entries.empty()) return "it is empty";
  for (const fs::path& pickles : {folder, folder / "cifar-10-batches-py", folder / "cifar-100-python"}) {
    std::error_code ignored;
    if (fs::is_regular_file(pickles / "data_batch_1", ignored) ||
        (fs::is_regular_file(pickles / "meta", ignored) && fs::is_regular_file(pickles / "train", ignored)))
      return "these are CIFAR's files for Python; fetch the binary version, or use its images in class "
             "folders";
  }
  const auto images_in = [](const std::vector<FolderEntry>& listed) {
    return std::ranges::count_if(listed, [](const auto& e) { return !e.folder && is_image_name(e.name); });
  };
  const auto folders = std::ranges::count_if(entries, &FolderEntry::folder);
  if (const auto images = images_in(entries); images > 0 && folders == 0)
    return fmt::format("{} in it, but no class folders; put those of each class into a folder of their own",
                       counted(images, "image"));
  const auto shard = std::ranges::find_if(entries, [](const FolderEntry& e) {
    return !e.folder && (e.name.ends_with(".tar") || e.name.find(".tfrecord") != e.name.npos);
  });
  if (shard != entries.end() && folders == 0)
    return fmt::format("the name of {} does not say a split; {}rename it to train-{}", shard->name,
                       shard->name.ends_with(".tar") ? "unpack it, or if it is WebDataset's " : "",
                       shard->name);
  const auto only = std::ranges::find_if(entries, &FolderEntry::folder);
  if (folders == 1 && images_in(list_folder(folder / only->name)) > 0)
    return fmt::format("only {} in it has images; a classifier needs two classes, a folder each", only->name);
  return {};
}

// The data set that lies around a file or folder; else empty. Folders beside each other are no sign of one.
fs::path data_set_around(const fs::path& path) {
  fs::path plain = path.lexically_normal();
  if (!plain.has_filename()) plain = plain.parent_path();
  const fs::path around = plain.has_parent_path() ? plain.parent_path() : fs::path(".");
  const std::optional<Kind> kind = find_kind(around);
  return kind && kind != Kind::class_folders ? around : fs::path();
}

constexpr const char* kUnfinished =
    "is incomplete: the command that writes it is still at work, or was interrupted; repeat that command";

bool is_unfinished(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path / kUnfinishedFile, ignored);
}

// Throws UsageError for what is not a data set.
Kind kind_of(const fs::path& path) {
  require_path(path);
  if (const std::optional<Kind> kind = find_kind(path)) return *kind;
  if (const fs::path around = data_set_around(path); !around.empty())
    throw UsageError("{} is not a data set but part of one: give {}", path.string(), around.string());
  if (!fs::is_directory(path))
    throw UsageError("{} is not a data set; {}give a folder with train/<class>/<image>.jpg", path.string(),
                     is_archive_name(path.filename().string()) ? "unpack it, and " : "");
  if (is_unfinished(path)) throw UsageError("{} {}", path.string(), kUnfinished);
  if (const std::string missing = missing_in(path); !missing.empty())
    throw UsageError("{} is not a data set: {}", path.string(), missing);
  throw UsageError(
      "{} is not a data set{}: it has neither a train nor a val folder (train/<class>/<image>.jpg), nor "
      "folders of images (<class>/<image>.jpg), nor TFRecord shards (train-00000-of-00001), nor ImageNet's "
      "tars ({}), nor another layout of docs/data.md",
      path.string(), nested_hint(path), kIlsvrcTrain);
}

}  // namespace

bool is_tfrecord(const fs::path& path) { return kind_of(path) == Kind::tfrecord_folder; }

const char* split_name(Split split) { return split == Split::train ? "train" : "val"; }

DetailedSample RecordSource::read_detailed(std::int64_t index, FileBytes& memory) const {
  DetailedSample sample;
  sample.bytes = read(index, memory);
  sample.file_name = fs::path(name(index)).filename().string();
  return sample;
}

namespace {

std::unique_ptr<RecordSource> open_kind(Kind kind, const fs::path& path, Split split,
                                        const SourceOptions& options) {
  switch (kind) {
    case Kind::image_folder:
      return open_image_folder(path, split, options);
    case Kind::class_folders:
      return open_class_folders(path, options);
    case Kind::tfrecord_folder:
      return open_tfrecord_folder(path, split, options);
    case Kind::ilsvrc:
      return open_ilsvrc(path, split, options);
    case Kind::web_dataset:
      return open_web_dataset(path, split, options);
    case Kind::cifar:
      return open_cifar(path, split, options);
    case Kind::tiny_imagenet_zip:
      return open_tiny_imagenet_zip(path, split, options);
  }
  throw InternalError("a kind of data set without a reader");
}

std::unique_ptr<RecordSource> warned(std::unique_ptr<RecordSource> source, const SourceOptions& options) {
  if (options.warn_of_left_out)
    for (const LeftOut& one : source->left_out())
      if (one.image) log_warning("skipped {}, the first {}: {}", describe(one), one.first, one.why);
  return source;
}

std::unique_ptr<RecordSource> open_val_dir(const fs::path& path, const std::vector<std::string>& classes,
                                           const SourceOptions& options) {
  std::error_code ignored;
  if (!fs::exists(path, ignored) && !ignored) throw UsageError("--val-dir {}: no such folder", path.string());
  require_path(path);
  if (!find_kind(path) || !has_split(path, Split::val))
    return warned(open_labelled_folder(path, classes, options), options);
  std::unique_ptr<RecordSource> val = open_source(path, Split::val, options);
  if (val->classes() != classes)
    throw DataError("{} has other classes, or in another order, than the training images", path.string());
  return val;
}

// If the validation images are known, class folders may have their images at any depth.
std::unique_ptr<RecordSource> open_to_train(const fs::path& path, const SourceOptions& options) {
  require_path(path);
  if (!find_kind(path) && fs::is_directory(path) && !class_folders(path).empty())
    return warned(open_class_folders(path, options), options);
  return open_source(path, Split::train, options);
}

}  // namespace

std::unique_ptr<RecordSource> open_source(const fs::path& path, Split split, const SourceOptions& options) {
  const Kind kind = kind_of(path);
  if (is_unfinished(path) && (split == Split::train || !has_split(path, Split::train)))
    log_warning("{} {}", path.string(), kUnfinished);
  return warned(open_kind(kind, path, split, options), options);
}

OpenSplits open_splits(const fs::path& path, const fs::path& val_dir, const SourceOptions& options) {
  OpenSplits splits;
  if (val_dir.empty()) {
    splits.train = open_source(path, Split::train, options);
    if (has_split(path, Split::val)) splits.val = open_source(path, Split::val, options);
    return splits;
  }
  splits.train = open_to_train(path, options);
  splits.val = open_val_dir(val_dir, splits.train->classes(), options);
  return splits;
}

OpenSplits open_with_held_out(const fs::path& path, double share, std::uint64_t seed,
                              const SourceOptions& options) {
  require_path(path);
  if (find_kind(path) && has_split(path, Split::val))
    throw UsageError("{} has validation images: leave out --val-split", path.string());
  return hold_out(open_to_train(path, options), share, seed);
}

bool has_split(const fs::path& path, Split split) {
  switch (kind_of(path)) {
    case Kind::image_folder:
      return !split_folder(path, split).empty();
    case Kind::class_folders:
      return split == Split::train;
    case Kind::tfrecord_folder:
      return !shard_names(path, split).empty();
    case Kind::ilsvrc:
      return fs::exists(ilsvrc_tar(path, split));
    case Kind::web_dataset:
      return !tar_names(path, split).empty();
    case Kind::cifar:
      return cifar_has_split(path, split);
    case Kind::tiny_imagenet_zip:
      return true;
  }
  throw InternalError("a kind of data set without a reader");
}

std::vector<fs::path> class_parents(const fs::path& path) {
  const Kind kind = kind_of(path);
  if (kind == Kind::class_folders) return {path};
  std::vector<fs::path> parents;
  if (kind == Kind::image_folder)
    for (const Split split : {Split::train, Split::val})
      if (fs::path folder = split_folder(path, split); !folder.empty()) parents.push_back(std::move(folder));
  return parents;
}

std::vector<LeftOut> unused_in(const fs::path& path) {
  switch (kind_of(path)) {
    case Kind::image_folder:
      return unused_entries(path);
    case Kind::tfrecord_folder:
    case Kind::web_dataset:
      return entries_beside(path, [](const FolderEntry& entry) {
        const NamedSplit split = split_in_name(entry.name);
        return !entry.folder && (split == NamedSplit::train || split == NamedSplit::val);
      });
    case Kind::ilsvrc:
      return entries_beside(path, [&](const FolderEntry& entry) {
        const fs::path at = path / entry.name;
        return at == ilsvrc_tar(path, Split::train) || at == ilsvrc_tar(path, Split::val) ||
               entry.name == kIlsvrcDevkit || is_box_source(at);
      });
    case Kind::tiny_imagenet_zip:
      return unused_in_zip(path);
    case Kind::class_folders:  // all of them are classes
    case Kind::cifar:
      return {};
  }
  throw InternalError("a kind of data set without a reader");
}

std::string describe(const LeftOut& one) {
  if (one.first.empty()) return one.what;
  std::string what = one.what;
  if (one.count == 1) {  // the first word in the plural
    std::size_t end = what.find("s ");
    if (end == what.npos) end = what.size() - 1;
    what.erase(end, 1);
  }
  return fmt::format("{} {}", format_grouped(one.count), what);
}

}  // namespace redline::data
