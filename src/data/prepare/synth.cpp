#include "data/prepare/synth.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/random.h"
#include "base/staging.h"
#include "data/file.h"
#include "data/images/encode.h"
#include "data/parallel.h"
#include "data/prepare/convert.h"
#include "data/prepare/synth_image.h"
#include "data/sources/devkit.h"
#include "data/sources/ilsvrc.h"
#include "data/sources/record_source.h"
#include "data/sources/tar.h"

namespace redline::data {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kSynthStream = 0x73796e74;
constexpr std::uint64_t kSizeStream = 0x73697a65;

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

// The images of a data set, by split and number.
class Album {
 public:
  explicit Album(const SynthOptions& options) : options_(options), artist_(options.classes) {}

  const std::vector<std::string>& classes() const { return artist_.names(); }
  std::int64_t count(Split split) const { return split == Split::train ? options_.train : options_.val; }
  int label(std::int64_t number) const { return static_cast<int>(number % options_.classes); }
  const std::string& class_of(std::int64_t number) const {
    return classes()[static_cast<std::size_t>(label(number))];
  }

  // Any thread.
  std::vector<std::uint8_t> jpeg(Split split, std::int64_t number) const {
    const std::uint64_t stream =
        mix(mix(kSynthStream, static_cast<std::uint64_t>(split)), static_cast<std::uint64_t>(number));
    const auto [width, height] = size(stream);
    const std::vector<std::uint8_t> pixels =
        artist_.draw(label(number), width, height, Random(options_.seed, stream));
    return encode_jpeg(pixels.data(), width, height, options_.quality);
  }

 private:
  // Photographs are mostly 500 pixels wide or high, at 4:3 or 3:2; some are smaller or larger.
  std::pair<int, int> size(std::uint64_t stream) const {
    if (!options_.imagenet_sizes) return {options_.width, options_.height};
    Random random(options_.seed, mix(kSizeStream, stream));
    const double kind = random.uniform();
    if (kind < 0.5) return {500, 375};
    if (kind < 0.65) return {375, 500};
    if (kind < 0.75) return {500, 333};
    if (kind < 0.8) return {333, 500};
    const int width = static_cast<int>(random.uniform(320, 640));
    return {width, static_cast<int>(width * random.uniform(0.65, 1.0))};
  }

  const SynthOptions& options_;
  SynthArtist artist_;
};

void write_folders(const Album& album, const fs::path& path, int threads, const Progress& progress) {
  for (const Split split : {Split::train, Split::val}) {
    if (album.count(split) == 0) continue;
    for (const std::string& name : album.classes()) {
      std::error_code error;
      fs::create_directories(path / split_name(split) / name, error);
      if (error) throw IoError("cannot create a folder in {}: {}", path.string(), error.message());
    }
  }
  const std::int64_t train = album.count(Split::train);
  const auto classes = static_cast<std::int64_t>(album.classes().size());
  parallel_for(
      train + album.count(Split::val), threads,
      [&](std::int64_t item, int) {
        const Split split = item < train ? Split::train : Split::val;
        const std::int64_t number = split == Split::train ? item : item - train;
        write_whole(
            path / split_name(split) / album.class_of(number) / fmt::format("{:06}.jpg", number / classes),
            album.jpeg(split, number));
      },
      progress);
}

struct TarFile {
  std::string name;
  std::vector<std::uint8_t> content;

  std::uint64_t bytes_in_tar() const { return 512 + content.size() + tar_padding(content.size()); }
};

void write_zeros(AtomicFile& out, std::size_t count) { out.write(std::string(count, '\0')); }

void append(AtomicFile& out, const TarFile& file) {
  out.write(std::as_bytes(std::span<const std::uint8_t>(tar_header(file.name, file.content.size()))));
  out.write(std::as_bytes(std::span(file.content)));
  write_zeros(out, tar_padding(file.content.size()));
}

// Draws some of the images at a time and hands them on in their order.
class TarWriter {
 public:
  TarWriter(const Album& album, int threads, const Progress& progress)
      : album_(album),
        threads_(threads),
        progress_(progress),
        total_(album.count(Split::train) + album.count(Split::val)) {}

  // A tar for each class, one after the other.
  void write_train(AtomicFile& out) {
    const auto classes = static_cast<std::int64_t>(album_.classes().size());
    for (std::int64_t label = 0; label < classes; ++label) {
      std::vector<std::int64_t> numbers;
      for (std::int64_t n = label; n < album_.count(Split::train); n += classes) numbers.push_back(n);
      const std::string& name = album_.class_of(label);
      const std::vector<TarFile> files = draw(Split::train, numbers, [&](std::int64_t number) {
        return fmt::format("{}_{}.JPEG", name, number / classes);
      });
      std::uint64_t size = kTarEnd;
      for (const TarFile& file : files) size += file.bytes_in_tar();
      out.write(std::as_bytes(std::span<const std::uint8_t>(tar_header(name + ".tar", size))));
      for (const TarFile& file : files) append(out, file);
      write_zeros(out, kTarEnd + tar_padding(size));
    }
    write_zeros(out, kTarEnd);
    out.commit();
  }

  void write_val(AtomicFile& out) {
    constexpr std::int64_t kAtATime = 1024;
    for (std::int64_t begin = 0; begin < album_.count(Split::val); begin += kAtATime) {
      std::vector<std::int64_t> numbers(
          static_cast<std::size_t>(std::min(kAtATime, album_.count(Split::val) - begin)));
      std::iota(numbers.begin(), numbers.end(), begin);
      for (const TarFile& file : draw(Split::val, numbers, [](std::int64_t number) {
             return fmt::format("ILSVRC2012_val_{:08}.JPEG", number + 1);
           }))
        append(out, file);
    }
    write_zeros(out, kTarEnd);
    out.commit();
  }

 private:
  template <typename Name>
  std::vector<TarFile> draw(Split split, const std::vector<std::int64_t>& numbers, Name&& name) {
    std::vector<TarFile> files(numbers.size());
    parallel_for(
        static_cast<std::int64_t>(numbers.size()), threads_,
        [&](std::int64_t item, int) {
          const std::int64_t number = numbers[static_cast<std::size_t>(item)];
          files[static_cast<std::size_t>(item)] = {name(number), album_.jpeg(split, number)};
        },
        [&](std::int64_t done, std::int64_t) { return !progress_ || progress_(done_ + done, total_); });
    done_ += static_cast<std::int64_t>(files.size());
    return files;
  }

  const Album& album_;
  int threads_;
  const Progress& progress_;
  std::int64_t total_;
  std::int64_t done_ = 0;
};

// Numbers the classes from the last, since ImageNet's kit does not number them by name either: a reader has
// to look them up.
Devkit make_devkit(const Album& album) {
  std::vector<int> ids(album.classes().size());
  std::iota(ids.rbegin(), ids.rend(), 1);
  Devkit devkit;
  for (std::size_t i = 0; i < ids.size(); ++i)
    devkit.synsets.push_back({ids[i], album.classes()[i], "pictures of " + album.classes()[i], true});
  std::sort(devkit.synsets.begin(), devkit.synsets.end(),
            [](const Synset& a, const Synset& b) { return a.id < b.id; });
  for (std::int64_t number = 0; number < album.count(Split::val); ++number)
    devkit.ground_truth.push_back(ids[static_cast<std::size_t>(album.label(number))]);
  return devkit;
}

void write_tars(const Album& album, const fs::path& path, const SynthOptions& o, const Progress& progress) {
  TarWriter writer(album, o.threads, progress);
  AtomicFile train(path / kIlsvrcTrain, Sync::no);
  writer.write_train(train);
  if (o.val > 0) {
    AtomicFile val(path / kIlsvrcVal, Sync::no);
    writer.write_val(val);
  }
  write_whole(path / kIlsvrcDevkit, serialize_devkit(make_devkit(album)));
}

void write_tfrecord(const Album& album, const fs::path& path, const SynthOptions& o,
                    const Progress& progress) {
  fs::path beside = path;
  beside += ".images";
  const StagingFolder images(beside);  // gone at the end, whatever happens
  write_folders(album, images.path(), o.threads, progress);
  ConvertOptions convert;
  convert.source = images.path();
  convert.target = path;
  convert.train_shards = o.train_shards;
  convert.val_shards = o.val_shards;
  convert.seed = o.seed;
  convert.threads = o.threads;
  convert_to_tfrecord(convert, progress);
}

}  // namespace

void write_synth(const SynthOptions& o, const Progress& progress) {
  validate(o);
  const Album album(o);
  StagingFolder staging(o.path);
  switch (o.format) {
    case SynthFormat::folders:
      write_folders(album, staging.path(), o.threads, progress);
      break;
    case SynthFormat::tfrecord:
      write_tfrecord(album, staging.path(), o, progress);
      break;
    case SynthFormat::tars:
      write_tars(album, staging.path(), o, progress);
      break;
  }
  staging.commit();
}

}  // namespace redline::data
