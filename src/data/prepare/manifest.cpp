#include "data/prepare/manifest.h"

#include <algorithm>
#include <system_error>

#include "base/atomic_file.h"
#include "base/crc32c.h"
#include "base/error.h"

namespace redline::data {
namespace fs = std::filesystem;

void remove_partials(const fs::path& folder, const std::string& prefix) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    std::error_code ignored;
    if (name.starts_with(prefix) && name.ends_with(".partial")) fs::remove(entry.path(), ignored);
  }
}

void require_target(const fs::path& source, const fs::path& target) {
  if (target.empty()) throw UsageError("the name of the folder to write to is empty");
  const auto plain = [](const fs::path& path) {
    std::error_code ignored;
    const fs::path known = fs::weakly_canonical(path, ignored);
    return known.empty() ? fs::absolute(path).lexically_normal() : known;
  };
  for (const fs::path& parent : class_parents(source)) {
    const fs::path above = plain(parent), below = plain(target);
    if (std::mismatch(above.begin(), above.end(), below.begin(), below.end()).first == above.end())
      throw UsageError("{} is in {}, whose folders are classes; choose a folder elsewhere", target.string(),
                       parent.string());
  }
}

std::unique_ptr<FolderLock> claim_folder(const fs::path& folder, const char* note_name,
                                         const std::string& note) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw IoError("cannot create the folder {}: {}", folder.string(), error.message());
  if (!fs::exists(folder / note_name)) {
    // Of a process that was killed while it wrote the note.
    remove_partials(folder, fmt::format(".{}.", note_name));
    if (!fs::is_empty(folder)) throw UsageError("{} is not empty; choose a new folder", folder.string());
    write_file_atomically(folder / note_name, note);
  }
  auto lock = std::make_unique<FolderLock>(folder / note_name);
  if (read_file(folder / note_name) != note)
    throw UsageError("{} contains a conversion of other data or with other options; choose another folder",
                     folder.string());
  remove_partials(folder);  // all of dead processes, since this one has the lock
  write_file_atomically(folder / kUnfinishedFile,
                        "Something is missing in this folder as long as this file is here.\n", Sync::no);
  return lock;
}

void finish_folder(const fs::path& folder) {
  std::error_code error;
  fs::remove(folder / kUnfinishedFile, error);
  if (error) throw IoError("cannot remove {}: {}", (folder / kUnfinishedFile).string(), error.message());
}

std::string fingerprint(const RecordSource& source) {
  std::string names;
  for (std::int64_t i = 0; i < source.count(); ++i)
    names += fmt::format("{}\t{}\n", fs::path(source.name(i)).filename().string(), source.label(i));
  return fmt::format("{:08x}", crc32c({reinterpret_cast<const std::uint8_t*>(names.data()), names.size()}));
}

}  // namespace redline::data
