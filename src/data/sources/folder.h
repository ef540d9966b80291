// What lies in a folder of images, in an order that is the same on every file system.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/sources/record_source.h"

namespace redline::data {

struct FolderEntry {
  std::string name;
  bool folder = false;  // or a link to one
};

// Sorted by name. Left out are hidden entries, and folders that systems make beside people's files: __MACOSX
// of a Mac's zip, @eaDir of a NAS and the like. Throws IoError when the folder cannot be listed.
std::vector<FolderEntry> list_folder(const std::filesystem::path& folder);

// Calls `file` with every file under root / folder, at any depth, by its path relative to root. Links are
// followed; one that leads back up is a DataError. `stop`, if not empty, is asked at every folder: true
// throws Stopped.
void walk_files(const std::filesystem::path& root, const std::string& folder,
                const std::function<void(const std::string&)>& file, const std::function<bool()>& stop = {});

// Whether a file of this name is an archive: .tar, .tar.gz, .zip and the like.
bool is_archive_name(const std::string& name);

// What lies in a data set's folder beside what is used of it, where it might be meant to be used: folders by
// name; images, archives and record shards with their numbers.
std::vector<LeftOut> entries_beside(const std::filesystem::path& folder,
                                    const std::function<bool(const FolderEntry&)>& is_used);

}  // namespace redline::data
