// Files that are complete or absent: written next to their final name, synced, then renamed. A reader never
// sees half a file, and a failure leaves the old content untouched and no new file. Only a process that is
// killed outright leaves its partial file; remove_partial_files removes those. A link is followed. What is
// not a file (/dev/stdout, /dev/null, a pipe) cannot be replaced, so it is written to as it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace redline {

// A synced file survives a power cut, but syncing costs milliseconds per file: right for checkpoints, wrong
// for a million prepared images, which can be made again.
enum class Sync { yes, no };

// A file being written. One thread at a time. All failures are IoError naming the final path and the reason.
class AtomicFile {
 public:
  // Creates the partial file in the folder of path, or of the file that it links to, which must exist.
  explicit AtomicFile(std::filesystem::path path, Sync sync = Sync::yes);
  // Without commit(), removes the partial file.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  std::uint64_t size() const { return size_; }  // bytes written so far

  // Gives the file its name. Nothing may be written after.
  void commit();

 private:
  void flush();
  void write_through(const std::byte* data, std::size_t count);
  void discard() noexcept;

  std::filesystem::path path_;
  std::filesystem::path partial_;  // empty: written in place
  Sync sync_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
  std::vector<std::byte> buffer_;
};

// The whole content at once.
void write_file_atomically(const std::filesystem::path& path, std::string_view content,
                           Sync sync = Sync::yes);

// Makes a file's content, or the names in a folder, survive a power cut. IoError on failure; a file system
// that cannot sync folders is not a failure.
void sync_file(const std::filesystem::path& path);
void sync_folder(const std::filesystem::path& folder);

// Removes from a folder the partial files of processes that no longer run on this machine; returns how many.
std::size_t remove_partial_files(const std::filesystem::path& folder);

// The whole of a file. IoError when it cannot be read, DataError when it has more than `most` bytes.
std::string read_file(const std::filesystem::path& path, std::size_t most = std::size_t{1} << 30);

}  // namespace redline
