#include "data/sources/archive_reader.h"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>

#include "base/error.h"

namespace redline::data {

struct ArchiveReader::State {
  struct archive* handle = archive_read_new();

  ~State() { archive_read_free(handle); }
  std::string reason() const {
    const char* text = archive_error_string(handle);
    return text ? text : "unknown reason";
  }
};

ArchiveReader::ArchiveReader(const std::filesystem::path& path)
    : state_(std::make_unique<State>()), path_(path) {
  archive_read_support_filter_gzip(state_->handle);
  archive_read_support_format_tar(state_->handle);
  archive_read_support_format_zip(state_->handle);
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) throw IoError("{}: no such file", path.string());
  if (archive_read_open_filename(state_->handle, path.c_str(), 1 << 18) != ARCHIVE_OK)
    throw DataError("{} is not an archive: {}", path.string(), state_->reason());
}

ArchiveReader::~ArchiveReader() = default;

bool ArchiveReader::next() {
  for (;;) {
    struct archive_entry* entry = nullptr;
    const int code = archive_read_next_header(state_->handle, &entry);
    if (code == ARCHIVE_EOF) return false;
    if (code != ARCHIVE_OK && code != ARCHIVE_WARN)
      throw DataError("{} is damaged: {}", path_.string(), state_->reason());
    if (archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry)) continue;
    const char* name = archive_entry_pathname(entry);
    name_ = name ? name : "";
    if (!is_safe_name(name_))
      throw DataError("{} has a member named '{}'; names must stay inside the archive", path_.string(),
                      name_);
    return true;
  }
}

std::vector<std::uint8_t> ArchiveReader::read(std::size_t max_bytes) {
  std::vector<std::uint8_t> content;
  for (;;) {
    const void* block = nullptr;
    std::size_t size = 0;
    la_int64_t offset = 0;
    const int code = archive_read_data_block(state_->handle, &block, &size, &offset);
    if (code == ARCHIVE_EOF) return content;
    if (code != ARCHIVE_OK && code != ARCHIVE_WARN)
      throw DataError("{} is damaged: {}: {}", path_.string(), name_, state_->reason());
    // A sparse file's holes would come out as nothing.
    if (offset != static_cast<la_int64_t>(content.size()))
      throw DataError("{} in {} is a sparse file", name_, path_.string());
    if (size > max_bytes - std::min(max_bytes, content.size()))
      throw DataError("{} in {} is larger than {} bytes", name_, path_.string(), max_bytes);
    const auto* bytes = static_cast<const std::uint8_t*>(block);
    content.insert(content.end(), bytes, bytes + size);
  }
}

}  // namespace redline::data
