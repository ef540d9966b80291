// Where samples come from: a list of encoded images with labels, read at random by index. Whatever the data
// looks like on disk (an image folder, a tar, record files), the sampler and the loader see this.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/example.h"

namespace redline::data {

enum class Split { train, val };

const char* split_name(Split split);

// A sample with what is known about it beside its label.
struct DetailedSample {
  std::span<const std::uint8_t> bytes;  // as read() gives them
  std::string file_name;                // a plain name, without folders; may be empty
  std::string class_text;               // what the class is in words; may be empty
  std::vector<BoundingBox> boxes;
};

// Immutable once opened: every call is safe from any thread.
class RecordSource {
 public:
  virtual ~RecordSource() = default;

  virtual std::int64_t count() const = 0;
  virtual std::int32_t label(std::int64_t index) const = 0;  // 0 .. classes().size() - 1
  virtual std::string name(std::int64_t index) const = 0;    // for messages: where a user finds the sample
  virtual const std::vector<std::string>& classes() const = 0;
  virtual const char* kind() const = 0;  // "image folder", …

  // Parts of the data set that could not even be listed as samples (the rest of a record file after a damaged
  // length), each with its place and reason.
  virtual std::vector<std::string> damage() const { return {}; }

  // The encoded image. The bytes live in scratch or in the source, and are valid until scratch changes.
  // Throws DataError or IoError naming what is wrong, without the sample's name (the caller has it).
  virtual std::span<const std::uint8_t> read(std::int64_t index,
                                             std::vector<std::uint8_t>& scratch) const = 0;

  // As read(), for turning a data set into another.
  virtual DetailedSample read_detailed(std::int64_t index, std::vector<std::uint8_t>& scratch) const;
};

struct SourceOptions {
  std::int64_t max_bytes = std::int64_t{256} << 20;  // an encoded image larger than this is refused
};

// Opens one split of the data set at path, whatever kind it is. Throws UsageError when path is not a data
// set, DataError when it is one but broken; both name the path and say what to do.
std::unique_ptr<RecordSource> open_source(const std::filesystem::path& path, Split split,
                                          const SourceOptions& options = {});

// Whether the data set at path has the split at all (a data set may come without val).
bool has_split(const std::filesystem::path& path, Split split);
// Whether it is one of TFRecord shards.
bool is_tfrecord(const std::filesystem::path& path);

}  // namespace redline::data
