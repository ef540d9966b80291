// Where samples come from: a list of encoded images with labels, read at random by index. Whatever the data
// looks like on disk (an image folder, a tar, record files), the sampler and the loader see this.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/file.h"
#include "data/sources/example.h"

namespace redline::data {

enum class Split { train, val };

const char* split_name(Split split);

// A sample with its metadata.
struct DetailedSample {
  std::span<const std::uint8_t> bytes;  // as read() gives them
  std::string file_name;                // a plain name, without folders; may be empty
  std::string class_text;               // what the class is in words; may be empty
  std::vector<BoundingBox> boxes;
};

// Files in a data set's folders that are not read, by kind.
struct LeftOut {
  std::string what;  // ".avif images", "test/"
  std::int64_t count = 0;
  std::string first;   // where the first of them is; empty where `what` says it
  bool image = false;  // it is an image
  std::string why;     // it is not read; of images
};

// "1 .avif image", "3 archives", "test/".
std::string describe(const LeftOut& one);

// Immutable once opened: every call is safe from any thread.
class RecordSource {
 public:
  virtual ~RecordSource() = default;

  virtual std::int64_t count() const = 0;
  virtual std::int32_t label(std::int64_t index) const = 0;  // 0 .. classes().size() - 1
  virtual std::string name(std::int64_t index) const = 0;    // for messages: where a user finds the sample
  virtual const std::vector<std::string>& classes() const = 0;
  virtual const char* kind() const = 0;  // "image folder", …

  // Parts of the data set that could not be listed as samples (the rest of a record file after a damaged
  // length), each with its position and the reason.
  virtual std::vector<std::string> damage() const { return {}; }

  // Files that were skipped.
  virtual std::vector<LeftOut> left_out() const { return {}; }

  // Bytes of the encoded image, where that is known without reading it; else -1. sizes_known() tells whether
  // this is without asking the file system, too.
  virtual std::int64_t encoded_bytes(std::int64_t) const { return -1; }
  virtual bool sizes_known() const { return true; }

  // The encoded image. The bytes live in memory or in the source, and are valid until memory is used again.
  // Throws DataError or IoError naming what is wrong, without the sample's name (the caller has it).
  virtual std::span<const std::uint8_t> read(std::int64_t index, FileBytes& memory) const = 0;

  // As read(), for converting a data set.
  virtual DetailedSample read_detailed(std::int64_t index, FileBytes& memory) const;
};

struct SourceOptions {
  std::int64_t max_bytes = std::int64_t{256} << 20;  // an encoded image larger than this is refused
  bool warn_of_left_out = true;                      // in the log, of images that are not read
  // Polled while a large data set is indexed: true ends that with Stopped. May be empty.
  std::function<bool()> stop;
};

// In a folder that a conversion is writing, or that one left when it was interrupted. Opening such a data set
// logs a warning.
constexpr const char* kUnfinishedFile = ".redline-unfinished";

// Opens one split of the data set at path, of any kind; for class folders without splits, all images. Throws
// UsageError if path is not a data set, DataError if it is damaged; both name the path and say what to do.
std::unique_ptr<RecordSource> open_source(const std::filesystem::path& path, Split split,
                                          const SourceOptions& options = {});

// Both splits of a data set.
struct OpenSplits {
  std::unique_ptr<RecordSource> train;
  std::unique_ptr<RecordSource> val;  // empty where there is none
};

// Opens the data set at path. val_dir, if not empty, has the validation images instead: a data set with a val
// split and the same classes, or a folder of class folders (or of images with a list of their classes, see
// image_folder.h). path may then be a folder of class folders itself. Throws as open_source does.
OpenSplits open_splits(const std::filesystem::path& path, const std::filesystem::path& val_dir,
                       const SourceOptions& options = {});

// Whether the data set at path has the split at all (a data set may come without val).
bool has_split(const std::filesystem::path& path, Split split);
// What lies next to its splits and is not used, but might be meant to be: "test/", images, archives, shards
// of other splits.
std::vector<LeftOut> unused_in(const std::filesystem::path& path);
// The folders whose subfolders are classes; empty for data of another kind.
std::vector<std::filesystem::path> class_parents(const std::filesystem::path& path);
// Whether it is one of TFRecord shards.
bool is_tfrecord(const std::filesystem::path& path);

}  // namespace redline::data
