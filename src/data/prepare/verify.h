// Checks every image of a data set: `redline data verify`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/images/decode.h"
#include "data/progress.h"
#include "data/sources/record_source.h"

namespace redline::data {

struct Complaint {
  std::string name;  // of the sample
  std::string reason;
};

struct VerifiedSplit {
  Split split = Split::train;
  std::string kind;  // of source
  std::int64_t images = 0;
  std::int64_t bytes = 0;   // of the readable images, encoded
  std::int64_t pixels = 0;  // of the good ones
  int min_width = 0, max_width = 0, min_height = 0, max_height = 0;
  std::vector<std::int64_t> per_class;  // good images by label
  std::vector<Complaint> bad;           // cannot be used; in the order of the data set
  std::vector<Complaint> odd;           // decoded with a warning; training uses them
};

struct Verification {
  std::vector<std::string> classes;
  std::vector<VerifiedSplit> splits;  // those that are there

  std::int64_t images() const;
  std::int64_t bad() const;
};

struct VerifyOptions {
  SourceOptions source;
  DecodeLimits limits;
  int threads = 1;
};

// Reads and decodes everything. Bad images are the result, not an error; throws as open_source does, and
// Stopped.
Verification verify(const std::filesystem::path& path, const VerifyOptions& options,
                    const Progress& progress = {});

}  // namespace redline::data
