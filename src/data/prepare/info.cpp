#include "data/prepare/info.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "data/images/decode.h"

namespace redline::data {
namespace {

std::string describe(const ImageInfo& info) {
  const std::string name = format_name(info.format);
  switch (info.channels) {
    case 1:
      return name + " grey";
    case 2:
      return name + " grey with alpha";
    case 4:
      return name + (info.format == ImageFormat::jpeg ? " CMYK" : " with alpha");
    default:
      return name;
  }
}

}  // namespace

void look_at_images(const RecordSource& source, std::int64_t sample, SplitInfo& info) {
  const std::int64_t wanted = std::min(sample, source.count());
  info.min_width = info.min_height = std::numeric_limits<int>::max();
  Decoder decoder;
  std::vector<std::uint8_t> scratch;
  std::int64_t good = 0;
  for (std::int64_t k = 0; k < wanted; ++k) {
    const std::int64_t index = k * source.count() / wanted;
    try {
      FileBytes memory(scratch);
      const std::span<const std::uint8_t> bytes = source.read(index, memory);
      const ImageInfo image = decoder.open(bytes);
      ++good;
      ++info.formats[describe(image)];
      info.mean_bytes += static_cast<double>(bytes.size());
      info.mean_width += image.width;
      info.mean_height += image.height;
      if (decoder.plain_jpeg()) info.mean_plain_pixels += static_cast<double>(image.width) * image.height;
      info.min_width = std::min(info.min_width, image.width);
      info.max_width = std::max(info.max_width, image.width);
      info.min_height = std::min(info.min_height, image.height);
      info.max_height = std::max(info.max_height, image.height);
      decoder.close();
    } catch (const Error& error) {
      if (info.unreadable++ == 0) info.first_unreadable = source.name(index) + ": " + error.what();
    }
  }
  info.looked_at = wanted;
  if (good == 0) {
    info.min_width = info.min_height = 0;
    return;
  }
  info.mean_bytes /= static_cast<double>(good);
  info.mean_width /= static_cast<double>(good);
  info.mean_height /= static_cast<double>(good);
  info.mean_plain_pixels /= static_cast<double>(good);
}

DataInfo inspect(const std::filesystem::path& path, std::int64_t sample) {
  DataInfo result;
  for (const Split split : {Split::train, Split::val}) {
    if (!has_split(path, split)) continue;
    SourceOptions options;
    options.warn_of_left_out = false;  // the result says it
    const std::unique_ptr<RecordSource> source = open_source(path, split, options);
    if (result.classes.empty()) result.classes = source->classes();
    SplitInfo& info = result.splits.emplace_back();
    info.split = split;
    info.kind = source->kind();
    info.images = source->count();
    info.classes = static_cast<int>(source->classes().size());
    std::vector<std::int64_t> counts(source->classes().size(), 0);
    for (std::int64_t i = 0; i < source->count(); ++i) ++counts[static_cast<std::size_t>(source->label(i))];
    info.without = static_cast<int>(std::count(counts.begin(), counts.end(), 0));
    std::erase(counts, 0);
    info.fewest = *std::min_element(counts.begin(), counts.end());
    info.most = *std::max_element(counts.begin(), counts.end());
    info.left_out = source->left_out();
    info.damage = source->damage();
    look_at_images(*source, sample, info);
  }
  result.unused = unused_in(path);
  return result;
}

}  // namespace redline::data
