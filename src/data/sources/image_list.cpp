#include "data/sources/image_list.h"

#include <filesystem>
#include <utility>

#include "base/error.h"
#include "data/sources/file_list.h"
#include "data/sources/folder.h"

namespace redline::data {
namespace fs = std::filesystem;
namespace {

class ImageList final : public RecordSource {
 public:
  ImageList(FileListing listing, std::vector<std::uint8_t> piped)
      : files_(std::move(listing), SourceOptions{}), piped_(std::move(piped)) {}

  std::int64_t count() const override { return files_.count(); }
  std::int32_t label(std::int64_t index) const override { return files_.label(index); }
  std::string name(std::int64_t index) const override { return files_.name(index); }
  const std::vector<std::string>& classes() const override { return files_.classes(); }
  const char* kind() const override { return "images"; }
  std::vector<LeftOut> left_out() const override { return files_.left_out(); }
  std::span<const std::uint8_t> read(std::int64_t index, FileBytes& memory) const override {
    if (!piped_.empty() && name(index) == kPiped) return piped_;
    return files_.read(index, memory);
  }

 private:
  FileList files_;
  std::vector<std::uint8_t> piped_;
};

}  // namespace

std::shared_ptr<const RecordSource> list_images(const std::vector<std::string>& paths,
                                                std::vector<std::uint8_t> piped) {
  FileListing listing;
  listing.classes = {"image"};
  for (const std::string& path : paths) {
    std::error_code ignored;
    if (fs::is_directory(path, ignored))
      walk_files({}, path, [&](const std::string& file) { listing.sort_in(file, 0); });
    else
      listing.add(path, 0);
  }
  if (listing.labels.empty())
    throw UsageError("there are no images: give image files, or folders that contain some");
  return std::make_shared<ImageList>(std::move(listing), std::move(piped));
}

}  // namespace redline::data
