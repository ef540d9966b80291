#include "data/archive_reader.h"

#include <archive.h>
#include <archive_entry.h>

#include "base/error.h"

namespace redline::data {
namespace {

bool is_safe(const std::string& name) {
  if (name.empty() || name.front() == '/') return false;
  for (const std::filesystem::path& part : std::filesystem::path(name))
    if (part == "..") return false;
  return true;
}

}  // namespace

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
  if (!std::filesystem::is_regular_file(path, error)) throw IoError("there is no file {}", path.string());
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
    if (!is_safe(name_))
      throw DataError("{} has a member named '{}'; names must stay inside the archive", path_.string(),
                      name_);
    return true;
  }
}

std::vector<std::uint8_t> ArchiveReader::read(std::size_t max_bytes) {
  constexpr std::size_t kStep = 1 << 18;
  std::vector<std::uint8_t> content;
  for (;;) {
    const std::size_t before = content.size();
    content.resize(before + kStep);
    const la_ssize_t got = archive_read_data(state_->handle, content.data() + before, kStep);
    if (got < 0) throw DataError("{} is damaged: {}: {}", path_.string(), name_, state_->reason());
    content.resize(before + static_cast<std::size_t>(got));
    if (content.size() > max_bytes)
      throw DataError("{} in {} is larger than {} bytes", name_, path_.string(), max_bytes);
    if (got == 0) return content;
  }
}

}  // namespace redline::data
