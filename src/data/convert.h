// Turns any data set into TFRecord shards: `redline data convert`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "data/decode.h"
#include "data/progress.h"
#include "data/record_source.h"
#include "data/verify.h"

namespace redline::data {

struct ConvertOptions {
  std::filesystem::path source;
  std::filesystem::path target;  // new, empty, or where the same conversion was interrupted
  std::filesystem::path boxes;   // annotation files with boxes (boxes.h); empty: those beside ImageNet's tars
  // Unset: as many as ImageNet's records usually have, 1024 and 128, or so few that a shard has a hundred
  // images.
  std::optional<int> train_shards, val_shards;
  std::uint64_t seed = 0;  // of the order in which samples are dealt to shards
  int threads = 1;
  double max_bad = 0.001;  // share of the images that may be bad and left out (bad_limit.h)
  SourceOptions limits_of_source;
  DecodeLimits limits;
};

struct ConvertResult {
  std::int64_t written = 0;    // images, in shards written now or found whole
  std::int64_t reencoded = 0;  // of those written now: CMYK images, stored as RGB JPEG of quality 95
  int shards_found = 0;        // whole already
  std::int64_t boxed = 0;      // of those written now: with boxes
  std::vector<Complaint> bad;  // left out, in the order of shards; of those written now
};

// Writes target/train-NNNNN-of-MMMMM and validation-…, a `.idx` beside each with the place of every record,
// for programs that read at random. Images are decoded to be sure of them, and stored as they are. Records
// get the class in words where the source knows it, and boxes from annotation files or the source's records.
// classes.txt lists the classes in the order of their labels, and the index that the shards are opened with
// (record_index.h) is written with them. Says before how much disk it needs, where the source knows.
//
// Shards compressed with gzip are unpacked beside the target first (gzip_shards.h).
//
// The same source and options give the same bytes. Each shard appears whole or not at all; when the work was
// stopped, even by kill, the same call goes on, keeping the shards whose checksums are right. Throws
// UsageError when target holds something else, DataError when more images are bad than allowed, IoError, and
// Stopped.
ConvertResult convert_to_tfrecord(const ConvertOptions& options, const Progress& progress = {});

}  // namespace redline::data
