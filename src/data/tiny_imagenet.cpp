#include "data/tiny_imagenet.h"

#include <map>
#include <memory>
#include <string>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/staging.h"
#include "data/archive_reader.h"
#include "data/file.h"
#include "data/image_folder.h"
#include "data/val_annotations.h"

namespace redline::data {
namespace fs = std::filesystem;
namespace {

constexpr const char* kFolder = "tiny-imagenet-200";

void unzip(const fs::path& zip, const fs::path& target, std::size_t max_bytes, const Progress& progress) {
  std::int64_t files = 0, done = 0;
  for (ArchiveReader archive(zip); archive.next();) ++files;
  ArchiveReader archive(zip);
  while (archive.next()) {
    const fs::path path = target / archive.name();
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    if (error) throw IoError("cannot make the folder {}: {}", path.parent_path().string(), error.message());
    if (fs::exists(path)) throw DataError("{} holds {} twice", zip.string(), archive.name());
    write_whole(path, archive.read(max_bytes));
    if (progress && !progress(++done, files)) throw Stopped{};
  }
}

// The folder with train and val in it.
fs::path root_of(const fs::path& path) {
  for (const fs::path& root : {path, path / kFolder})
    if (fs::exists(root / "val" / kValAnnotations) && fs::is_directory(root / "train")) return root;
  throw UsageError("{} is not Tiny ImageNet: it has no train folder and val/{}", path.string(),
                   kValAnnotations);
}

// Only where the images are: a class may have none in val.
void write_boxes(const fs::path& class_folder, const std::string& name, const std::string& text) {
  if (fs::is_directory(class_folder))
    write_file_atomically(class_folder / (name + "_boxes.txt"), text, Sync::no);
}

void copy_val_boxes(const fs::path& root, const fs::path& target) {
  std::map<std::string, std::string> boxes;  // by class
  for (const ValAnnotation& one : parse_val_annotations(read_file(root / "val" / kValAnnotations)))
    if (!one.box.empty()) boxes[one.wnid] += one.file + "\t" + one.box + "\n";
  for (const auto& [name, lines] : boxes) write_boxes(target / "val" / name, name, lines);
}

void copy_train_boxes(const fs::path& root, const fs::path& target) {
  for (const fs::directory_entry& entry : fs::directory_iterator(root / "train")) {
    const std::string name = entry.path().filename().string();
    if (const fs::path list = entry.path() / (name + "_boxes.txt"); fs::exists(list))
      write_boxes(target / "train" / name, name, read_file(list));
  }
}

}  // namespace

UnpackResult prepare_tiny_imagenet(const UnpackOptions& options, const Progress& progress) {
  UnpackOptions unpack = options;
  std::unique_ptr<StagingFolder> unzipped;
  if (fs::is_regular_file(options.source)) {
    fs::path beside = fs::absolute(options.target).lexically_normal();
    if (!beside.has_filename()) beside = beside.parent_path();
    beside += ".unzipped";
    unzipped = std::make_unique<StagingFolder>(beside);
    unzip(options.source, unzipped->path(), static_cast<std::size_t>(options.limits_of_source.max_bytes),
          progress);
    unpack.source = unzipped->path();
  }
  unpack.source = root_of(unpack.source);
  const UnpackResult result = unpack_to_folders(unpack, progress);
  copy_train_boxes(unpack.source, unpack.target);
  copy_val_boxes(unpack.source, unpack.target);
  return result;
}

}  // namespace redline::data
