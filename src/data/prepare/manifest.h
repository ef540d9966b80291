// The note that a long conversion leaves in its target folder, so that the same call can continue after an
// interruption and a different call cannot mix with it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/staging.h"
#include "data/sources/record_source.h"

namespace redline::data {

// Before anything is read: throws UsageError if target has no name, or is where it would be taken for a class
// of source.
void require_target(const std::filesystem::path& source, const std::filesystem::path& target);

// Creates the folder if needed, and locks it for this process. The note is written to a new or empty folder;
// an existing note must be the same. Partial files that a killed process left directly in the folder are
// removed. Throws UsageError if the folder contains something else or another note, TryAgainError if another
// process uses it.
std::unique_ptr<FolderLock> claim_folder(const std::filesystem::path& folder, const char* note_name,
                                         const std::string& note);

// Says that all is written: until then the folder is marked as unfinished (record_source.h).
void finish_folder(const std::filesystem::path& folder);

// Removes the half-written files of atomic writes from a folder that this process has claimed.
void remove_partials(const std::filesystem::path& folder, const std::string& prefix = ".");

// The names and labels of all samples in one number, to tell one source from another.
std::string fingerprint(const RecordSource& source);

}  // namespace redline::data
