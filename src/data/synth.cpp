#include "data/synth.h"

#include <string>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "data/encode.h"
#include "data/file.h"
#include "data/parallel.h"
#include "data/record_source.h"
#include "data/staging.h"
#include "data/synth_image.h"

namespace redline::data {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kSynthStream = 0x73796e74;

void validate(const SynthOptions& o) {
  if (o.classes < 2 || o.classes > max_synth_classes())
    throw UsageError("--classes {} is not between 2 and {}", o.classes, max_synth_classes());
  if (o.train < o.classes)
    throw UsageError("--train {} is fewer than one image for each of {} classes", o.train, o.classes);
  if (o.val < 0) throw UsageError("--val {} is negative", o.val);
  if (o.val > 0 && o.val < o.classes)
    throw UsageError("--val {} is fewer than one image for each of {} classes; give more, or 0 for none",
                     o.val, o.classes);
  if (o.width < 16 || o.height < 16 || o.width > 8192 || o.height > 8192)
    throw UsageError("--size {}x{}: sides go from 16 to 8192 pixels", o.width, o.height);
  if (o.quality < 1 || o.quality > 100) throw UsageError("--quality {} is not between 1 and 100", o.quality);
}

}  // namespace

void write_synth(const SynthOptions& o, const Progress& progress) {
  validate(o);
  const SynthArtist artist(o.classes);
  StagingFolder staging(o.path);
  for (const Split split : {Split::train, Split::val}) {
    if (split == Split::val && o.val == 0) continue;
    for (const std::string& name : artist.names()) {
      std::error_code error;
      fs::create_directories(staging.path() / split_name(split) / name, error);
      if (error) throw IoError("cannot make a folder in {}: {}", staging.path().string(), error.message());
    }
  }
  parallel_for(
      o.train + o.val, o.threads,
      [&](std::int64_t item, int) {
        const Split split = item < o.train ? Split::train : Split::val;
        const std::int64_t number = split == Split::train ? item : item - o.train;
        const int label = static_cast<int>(number % o.classes);
        const Random random(o.seed, mix(mix(kSynthStream, static_cast<std::uint64_t>(split)),
                                        static_cast<std::uint64_t>(number)));
        const std::vector<std::uint8_t> pixels = artist.draw(label, o.width, o.height, random);
        write_whole(staging.path() / split_name(split) / artist.names()[static_cast<std::size_t>(label)] /
                        fmt::format("{:06}.jpg", number / o.classes),
                    encode_jpeg(pixels.data(), o.width, o.height, o.quality));
      },
      progress);
  staging.commit();
}

}  // namespace redline::data
