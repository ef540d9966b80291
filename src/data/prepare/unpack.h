// Turns any data set into an image folder: the second half of `redline data prepare`, and `redline data
// convert` back from TFRecord.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/images/decode.h"
#include "data/prepare/verify.h"
#include "data/progress.h"
#include "data/sources/record_source.h"

namespace redline::data {

struct UnpackOptions {
  std::filesystem::path source;
  std::filesystem::path target;  // new, empty, or where the same work was interrupted
  int threads = 1;
  double max_bad = 0.001;  // share of the images that may be bad and left out (bad_limit.h)
  SourceOptions limits_of_source;
  DecodeLimits limits;
};

// An image that could not keep its name.
struct Renamed {
  std::string from;  // the sample's name in the source
  std::filesystem::path to;
};

struct UnpackResult {
  std::int64_t written = 0;         // images written now
  std::int64_t found = 0;           // images that were there already, to the byte
  std::vector<Complaint> bad;       // left out, in the order of the data set
  std::vector<Renamed> renamed;     // in the order of their files
  std::vector<std::string> damage;  // of the source (RecordSource::damage)
  std::vector<LeftOut> unused;      // what lies beside the splits
};

struct SplitSource {
  Split split;
  std::unique_ptr<RecordSource> source;
};

// Writes target/<split>/<class>/<file name>: each image as it is stored in the source, decoded only as a
// check. Also writes target/words.txt (class_words.h) if the source has the classes in words, and
// target/classes.txt (class_list.h) if labels are not in the order of the class names. Samples without a file
// name get their number as one. If images of a class have the same name, the first in the data set keeps it,
// and the others get a number: 1.jpg, 1-2.jpg, 1-3.jpg. Logs first how much disk space it needs, if the
// source knows.
//
// Every file is written completely or not at all. After an interruption, even a kill, the same call
// continues: it compares the existing files with the source, rewrites those that differ, and removes partial
// files; the result is the same to the byte. Throws UsageError if target contains something else, DataError
// when more images are bad than allowed or a class's name cannot be a folder's; IoError, and Stopped.
UnpackResult unpack_to_folders(const UnpackOptions& options, const Progress& progress = {});
// The same, from splits that are open: train first where there is one. `unused` is left to the caller.
UnpackResult unpack_to_folders(const UnpackOptions& options, const std::vector<SplitSource>& splits,
                               const Progress& progress = {});

}  // namespace redline::data
