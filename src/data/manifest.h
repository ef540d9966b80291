// The note that a long piece of work leaves in its target folder, so that the same call can go on after an
// interruption and another call cannot mix with it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/staging.h"
#include "data/record_source.h"

namespace redline::data {

// Makes the folder where needed, and takes it for this process. The note is written into a new or empty
// folder; one that is there must be the same. Half-written files that a killed process left directly in the
// folder are removed. Throws UsageError when the folder holds something else or another note, TryAgainError
// when another process works there.
std::unique_ptr<FolderLock> claim_folder(const std::filesystem::path& folder, const char* note_name,
                                         const std::string& note);

// Removes the half-written files of atomic writes from a folder that this process has claimed.
void remove_partials(const std::filesystem::path& folder, const std::string& prefix = ".");

// The names and labels of all samples in one number, to tell one source from another.
std::string fingerprint(const RecordSource& source);

}  // namespace redline::data
