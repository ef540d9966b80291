#include "data/sources/file_list.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "data/file.h"
#include "data/images/codecs.h"
#include "data/sources/class_words.h"

namespace redline::data {
namespace {

// In lower case, without the dot; empty for a hidden file or one without an ending.
std::string ending_of(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || name.front() == '.') return {};
  std::string ending(name.substr(dot + 1));
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return ending;
}

}  // namespace

std::string_view base_name(std::string_view name) { return name.substr(name.rfind('/') + 1); }

bool is_image_name(std::string_view name) { return !name.empty() && reads_ending(ending_of(name)); }

ImageFormat format_of_name(std::string_view name) {
  const std::string ending = ending_of(base_name(name));
  for (const Codec& codec : codecs())
    if (std::ranges::find(codec.endings, ending) != codec.endings.end()) return codec.format;
  return ImageFormat::jpeg;
}

bool is_other_image_name(std::string_view name) {
  static constexpr std::array<std::string_view, 7> kOther{"jp2", "avif", "heic", "heif", "jxl", "ppm", "tga"};
  const std::string ending = ending_of(name);
  return !ending.empty() && !reads_ending(ending) &&
         (std::ranges::find(kOther, ending) != kOther.end() ||
          std::ranges::any_of(codecs(), [&](const Codec& codec) {
            return std::ranges::find(codec.endings, ending) != codec.endings.end();
          }));
}

void FileListing::add(std::string_view name, std::int32_t label) {
  offsets.push_back(names.size());
  labels.push_back(label);
  names.append(name).push_back('\0');
}

void FileListing::sort_in(const std::string& name, std::int32_t label) {
  if (is_image_name(base_name(name)))
    add(name, label);
  else
    leave_out(name);
}

void FileListing::leave_out(const std::string& name, bool has_class) {
  const std::string_view base = base_name(name);
  const bool other = is_other_image_name(base), stray = !has_class && is_image_name(base);
  const std::string what = other   ? "." + ending_of(base) + " images"
                           : stray ? "images outside class folders"
                                   : "files other than images";
  LeftOut& one = left[what];
  if (one.count++ > 0) return;
  one.what = what;
  one.first = (root / name).string();
  one.image = other || stray;
  if (other) one.why = "Redline reads " + formats_text();
  if (stray) one.why = "move them into the folders of their classes";
}

FileList::FileList(FileListing listing, const SourceOptions& options)
    : listing_(std::move(listing)), options_(options) {
  listing_.names.shrink_to_fit();
}

std::filesystem::path FileList::path(std::int64_t index) const {
  return listing_.root / (listing_.names.data() + listing_.offsets.at(static_cast<std::size_t>(index)));
}

std::vector<LeftOut> FileList::left_out() const {
  std::vector<LeftOut> list;
  for (const auto& [what, one] : listing_.left) list.push_back(one);
  return list;
}

std::int64_t FileList::encoded_bytes(std::int64_t index) const {
  std::error_code error;
  const auto size = std::filesystem::file_size(path(index), error);
  return error ? 0 : static_cast<std::int64_t>(size);
}

std::span<const std::uint8_t> FileList::read(std::int64_t index, FileBytes& memory) const {
  return read_whole(path(index), options_.max_bytes, memory);
}

DetailedSample FileList::read_detailed(std::int64_t index, FileBytes& memory) const {
  std::call_once(words_read_, [this] { words_ = read_words(listing_.words, listing_.classes); });
  DetailedSample sample = RecordSource::read_detailed(index, memory);
  sample.class_text = words_[static_cast<std::size_t>(label(index))];
  return sample;
}

}  // namespace redline::data
