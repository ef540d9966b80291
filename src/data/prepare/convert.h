// Turns any data set into TFRecord shards: `redline data convert`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/images/decode.h"
#include "data/prepare/verify.h"
#include "data/progress.h"
#include "data/sources/record_source.h"

namespace redline::data {

struct ConvertOptions {
  std::filesystem::path source;
  std::filesystem::path target;  // new, empty, or where the same conversion was interrupted
  std::filesystem::path boxes;   // annotation files with boxes (boxes.h); empty: those beside ImageNet's tars
  // Unset: 1024 and 128, as usual for ImageNet's records, or one per 100 images if that is fewer.
  std::optional<int> train_shards, val_shards;
  std::uint64_t seed = 0;  // of the order in which samples are dealt to shards
  int threads = 1;
  double max_bad = 0.001;  // share of the images that may be bad and left out (bad_limit.h)
  SourceOptions limits_of_source;
  DecodeLimits limits;
};

struct ConvertResult {
  std::int64_t written = 0;         // images, in shards written now or found whole
  std::int64_t reencoded = 0;       // of those written now: CMYK images, stored as RGB JPEG of quality 95
  int shards_found = 0;             // whole already
  std::int64_t boxed = 0;           // of those written now: with boxes
  std::vector<Complaint> bad;       // left out, in the order of shards; of those written now
  std::vector<std::string> damage;  // of the source (RecordSource::damage)
};

// Writes target/train-NNNNN-of-MMMMM and validation-…, a `.idx` beside each with the place of every record,
// for programs that read at random. Images are decoded as a check, and stored as they are. Records get the
// class in words if the source has it, and boxes from annotation files or the source's records. classes.txt
// lists the classes in the order of their labels, and the index for opening the shards (record_index.h) is
// written with them. Logs first how much disk space it needs, if the source knows.
//
// Shards compressed with gzip are first unpacked next to the target (gzip_shards.h).
//
// The same source and options give the same bytes. Each shard is written completely or not at all. After an
// interruption, even a kill, the same call continues and keeps the shards with correct checksums. Throws
// UsageError if target contains something else, DataError when more images are bad than allowed, IoError, and
// Stopped.
ConvertResult convert_to_tfrecord(const ConvertOptions& options, const Progress& progress = {});

}  // namespace redline::data
