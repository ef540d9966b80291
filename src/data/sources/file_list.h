// Samples that are separate files with a label each: the form of every image folder, however the labels were
// found.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "data/images/image.h"
#include "data/sources/record_source.h"

namespace redline::data {

// The list while it is made.
struct FileListing {
  std::filesystem::path root;        // names are relative to it
  std::filesystem::path words;       // the folder where words.txt may be (class_words.h)
  std::vector<std::string> classes;  // by label
  std::vector<std::int32_t> labels;  // by sample
  std::string names;                 // each ended by a zero: a million strings of their own would cost four
  std::vector<std::size_t> offsets;  // times the memory
  std::map<std::string, LeftOut> left;  // by what it is

  void add(std::string_view name, std::int32_t label);
  // add() for an image, leave_out() for any other file; the name tells.
  void sort_in(const std::string& name, std::int32_t label);
  // Notes a file that is not an image, one of a format that is not read, or one whose class is unknown.
  void leave_out(const std::string& name, bool has_class = true);
};

class FileList final : public RecordSource {
 public:
  FileList(FileListing listing, const SourceOptions& options);

  std::int64_t count() const override { return static_cast<std::int64_t>(listing_.labels.size()); }
  std::int32_t label(std::int64_t index) const override {
    return listing_.labels.at(static_cast<std::size_t>(index));
  }
  std::string name(std::int64_t index) const override { return path(index).string(); }
  const std::vector<std::string>& classes() const override { return listing_.classes; }
  const char* kind() const override { return "image folder"; }
  std::vector<LeftOut> left_out() const override;
  std::int64_t encoded_bytes(std::int64_t index) const override;
  bool sizes_known() const override { return false; }
  std::span<const std::uint8_t> read(std::int64_t index, FileBytes& memory) const override;
  DetailedSample read_detailed(std::int64_t index, FileBytes& memory) const override;

 private:
  std::filesystem::path path(std::int64_t index) const;

  FileListing listing_;
  SourceOptions options_;
  mutable std::once_flag words_read_;
  mutable std::vector<std::string> words_;  // by label
};

// Whether a file of this name counts as an image: .jpg, .jpeg, .jpe, .jfif, .png and what codecs.h lists, in
// any case, and not hidden.
bool is_image_name(std::string_view name);
std::string_view base_name(std::string_view name);  // what follows the last slash

// The format that images of this name usually have: JPEG unless its ending is another format's.
ImageFormat format_of_name(std::string_view name);

// Whether it is an image of a format that is not read: .avif, .heic, .jp2 and the like, and .webp, .tiff or
// .gif in a build without their libraries.
bool is_other_image_name(std::string_view name);

}  // namespace redline::data
