// Archives made for tests.
#pragma once

#include <archive.h>
#include <archive_entry.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace redline::data {

enum class ArchiveFormat { zip, stored_zip, tar_gz };

// `files`: pairs of a name and its content, text or bytes.
template <typename Files>
void write_archive(const std::filesystem::path& path, ArchiveFormat format, const Files& files) {
  struct archive* out = archive_write_new();
  if (format != ArchiveFormat::tar_gz) {
    archive_write_set_format_zip(out);
    if (format == ArchiveFormat::stored_zip) archive_write_zip_set_compression_store(out);
  } else {
    archive_write_set_format_ustar(out);
    archive_write_add_filter_gzip(out);
  }
  ASSERT_EQ(archive_write_open_filename(out, path.c_str()), ARCHIVE_OK);
  for (const auto& [name, content] : files) {
    struct archive_entry* entry = archive_entry_new();
    archive_entry_set_pathname(entry, name.c_str());
    archive_entry_set_size(entry, static_cast<la_int64_t>(content.size()));
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    EXPECT_EQ(archive_write_header(out, entry), ARCHIVE_OK);
    EXPECT_EQ(archive_write_data(out, content.data(), content.size()),
              static_cast<la_ssize_t>(content.size()));
    archive_entry_free(entry);
  }
  EXPECT_EQ(archive_write_free(out), ARCHIVE_OK);
}

}  // namespace redline::data
