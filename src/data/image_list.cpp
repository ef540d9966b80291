#include "data/image_list.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "data/file_list.h"

namespace redline::data {
namespace fs = std::filesystem;
namespace {

void add_folder(const fs::path& folder, FileListing& listing) {
  std::error_code error;
  std::vector<std::string> found;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    const bool hidden = it->path().filename().string().starts_with('.');
    if (hidden && it->is_directory(ignored)) it.disable_recursion_pending();
    if (hidden || it->is_directory(ignored)) continue;
    if (is_image_name(it->path().filename().string()))
      found.push_back(it->path().string());
    else
      listing.leave_out(it->path().string());
  }
  if (error) throw IoError("cannot list {}: {}", folder.string(), error.message());
  std::ranges::sort(found);
  for (const std::string& name : found) listing.add(name, 0);
}

}  // namespace

std::shared_ptr<const RecordSource> list_images(const std::vector<std::string>& paths) {
  FileListing listing;
  listing.classes = {"image"};
  for (const std::string& path : paths) {
    std::error_code ignored;
    if (fs::is_directory(path, ignored))
      add_folder(path, listing);
    else
      listing.add(path, 0);
  }
  if (listing.labels.empty()) throw UsageError("there are no images: name files, or folders that hold some");
  return std::make_shared<FileList>(std::move(listing), SourceOptions{});
}

}  // namespace redline::data
