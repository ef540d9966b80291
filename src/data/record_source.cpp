#include "data/record_source.h"

#include "base/error.h"
#include "data/ilsvrc.h"
#include "data/image_folder.h"
#include "data/tfrecord_folder.h"

namespace redline::data {
namespace fs = std::filesystem;
namespace {

// Throws UsageError unless something readable is there.
void require_path(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found)
    throw UsageError("there is no {}; make a data set with 'redline data synth {}'", path.string(),
                     path.string());
  if (error) throw IoError("cannot look at {}: {}", path.string(), error.message());
}

bool is_tfrecord_folder(const fs::path& path) {
  return !shard_names(path, Split::train).empty() || !shard_names(path, Split::val).empty();
}

enum class Kind { image_folder, ilsvrc, tfrecord_folder };

// Throws UsageError for what is no data set.
Kind kind_of(const fs::path& path) {
  require_path(path);
  if (!fs::is_directory(path))
    throw UsageError("{} is not a data set; give a folder with train/<class>/<image>.jpg", path.string());
  if (is_image_folder(path)) return Kind::image_folder;
  if (is_ilsvrc(path)) return Kind::ilsvrc;
  if (is_tfrecord_folder(path)) return Kind::tfrecord_folder;
  throw UsageError(
      "{} is not a data set: it has neither a train nor a val folder (train/<class>/<image>.jpg), nor "
      "TFRecord shards (train-00000-of-00001), nor ImageNet's tars ({})",
      path.string(), kIlsvrcTrain);
}

}  // namespace

bool is_tfrecord(const fs::path& path) { return kind_of(path) == Kind::tfrecord_folder; }

const char* split_name(Split split) { return split == Split::train ? "train" : "val"; }

DetailedSample RecordSource::read_detailed(std::int64_t index, std::vector<std::uint8_t>& scratch) const {
  DetailedSample sample;
  sample.bytes = read(index, scratch);
  sample.file_name = fs::path(name(index)).filename().string();
  return sample;
}

std::unique_ptr<RecordSource> open_source(const fs::path& path, Split split, const SourceOptions& options) {
  switch (kind_of(path)) {
    case Kind::image_folder:
      return open_image_folder(path, split, options);
    case Kind::tfrecord_folder:
      return open_tfrecord_folder(path, split, options);
    case Kind::ilsvrc:
      return open_ilsvrc(path, split, options);
  }
  throw InternalError("a kind of data set without a reader");
}

bool has_split(const fs::path& path, Split split) {
  switch (kind_of(path)) {
    case Kind::image_folder:
      return !split_folder(path, split).empty();
    case Kind::tfrecord_folder:
      return !shard_names(path, split).empty();
    case Kind::ilsvrc:
      return fs::exists(ilsvrc_tar(path, split));
  }
  throw InternalError("a kind of data set without a reader");
}

}  // namespace redline::data
