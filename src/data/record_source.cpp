#include "data/record_source.h"

#include "base/error.h"
#include "data/image_folder.h"

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

[[noreturn]] void refuse(const fs::path& path) {
  if (fs::is_directory(path))
    throw UsageError(
        "{} is not a data set: it has neither a train nor a val folder (train/<class>/<image>.jpg)",
        path.string());
  throw UsageError("{} is not a data set; give a folder with train/<class>/<image>.jpg", path.string());
}

}  // namespace

const char* split_name(Split split) { return split == Split::train ? "train" : "val"; }

std::unique_ptr<RecordSource> open_source(const fs::path& path, Split split, const SourceOptions& options) {
  require_path(path);
  if (is_image_folder(path)) return open_image_folder(path, split, options);
  refuse(path);
}

bool has_split(const fs::path& path, Split split) {
  require_path(path);
  if (is_image_folder(path)) return !split_folder(path, split).empty();
  refuse(path);
}

}  // namespace redline::data
