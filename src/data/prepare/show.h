// A page that shows what a network sees: a batch from the loader, with labels. `redline data show`.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "data/loader.h"
#include "data/sources/record_source.h"

namespace redline::data {

struct ShowOptions {
  std::filesystem::path page;  // the HTML file to write; replaced if it is there
  std::string title;           // the data set and split, for people
  LoaderOptions loader;        // batch_size is the number of images
  std::int64_t epoch = 0;      // of whose order and crops the first batch is shown
};

struct ShownBatch {
  int images = 0;              // on the page
  int classes = 0;             // different labels among them
  std::vector<BadSample> bad;  // met on the way and replaced or left out
};

// Writes one self-contained HTML page. Throws as the loader does, and IoError.
ShownBatch write_sample_page(std::shared_ptr<const RecordSource> source, const ShowOptions& options);

}  // namespace redline::data
