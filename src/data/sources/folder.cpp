#include "data/sources/folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "data/progress.h"
#include "data/sources/file_list.h"
#include "data/sources/shard_names.h"

namespace redline::data {
namespace fs = std::filesystem;
namespace {

constexpr std::array<std::string_view, 7> kMadeBySystems{
    "__MACOSX",   "@eaDir",     "#recycle", "$RECYCLE.BIN", "System Volume Information",
    "lost+found", "__pycache__"};

class Walk {
 public:
  Walk(const fs::path& root, const std::function<void(const std::string&)>& file,
       const std::function<bool()>& stop)
      : root_(root), file_(file), stop_(stop) {}

  void visit(const std::string& folder) {
    if (stop_ && stop_()) throw Stopped{};
    const fs::path path = root_ / folder;
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0)
      throw IoError("cannot look at {}: {}", path.string(), std::strerror(errno));
    const FileId id{status.st_dev, status.st_ino};
    if (std::ranges::find(parents_, id) != parents_.end())
      throw DataError("{} is a link back to a folder that holds it; remove the link", path.string());
    parents_.push_back(id);
    const std::string before = folder.ends_with('/') ? folder : folder + "/";
    for (const FolderEntry& entry : list_folder(path)) {
      const std::string name = before + entry.name;
      if (entry.folder)
        visit(name);
      else
        file_(name);
    }
    parents_.pop_back();
  }

 private:
  using FileId = std::pair<dev_t, ino_t>;

  const fs::path& root_;
  const std::function<void(const std::string&)>& file_;
  const std::function<bool()>& stop_;
  std::vector<FileId> parents_;  // the folders on the way here
};

}  // namespace

std::vector<FolderEntry> list_folder(const fs::path& folder) {
  std::error_code error;
  std::vector<FolderEntry> entries;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::string name = it->path().filename().string();
    if (name.front() == '.') continue;
    std::error_code ignored;  // a dangling link is neither a folder nor an image
    const bool is_folder = it->is_directory(ignored);
    if (is_folder && std::ranges::find(kMadeBySystems, name) != kMadeBySystems.end()) continue;
    entries.push_back({std::move(name), is_folder});
  }
  if (error) throw IoError("cannot list {}: {}", folder.string(), error.message());
  std::ranges::sort(entries, {}, &FolderEntry::name);
  return entries;
}

void walk_files(const fs::path& root, const std::string& folder,
                const std::function<void(const std::string&)>& file, const std::function<bool()>& stop) {
  Walk(root, file, stop).visit(folder);
}

bool is_archive_name(const std::string& name) {
  return std::ranges::any_of(std::initializer_list<const char*>{".tar", ".tar.gz", ".tar.xz", ".tar.bz2",
                                                                ".tgz", ".zip", ".7z", ".rar"},
                             [&](const char* ending) { return name.ends_with(ending); });
}

std::vector<LeftOut> entries_beside(const fs::path& folder,
                                    const std::function<bool(const FolderEntry&)>& is_used) {
  std::vector<LeftOut> list;
  LeftOut images{"images", 0, {}, true, {}}, archives{"archives", 0, {}, false, {}},
      shards{"shards", 0, {}, false, {}};
  for (const FolderEntry& entry : list_folder(folder)) {
    if (is_used(entry)) continue;
    if (entry.folder) {
      list.push_back({entry.name + "/", 1, {}, false, {}});
      continue;
    }
    LeftOut* const kind = is_image_name(entry.name) || is_other_image_name(entry.name) ? &images
                          : is_archive_name(entry.name)                                ? &archives
                          : is_shard_name(entry.name)                                  ? &shards
                                                                                       : nullptr;
    if (kind != nullptr && kind->count++ == 0) kind->first = (folder / entry.name).string();
  }
  for (LeftOut& kind : {std::ref(images), std::ref(archives), std::ref(shards)})
    if (kind.count > 0) list.push_back(std::move(kind));
  return list;
}

}  // namespace redline::data
