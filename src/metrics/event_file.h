// TensorBoard's event files: a sequence of framed records, each an Event with a step. This is the file alone;
// what goes into the events is tensorboard.h's.
#pragma once

#include <filesystem>

#include "metrics/records.h"

namespace redline::metrics {

// A name for a new event file in a folder, such that it sorts after those that are there: readers go through
// a run's files in the order of their names and never back.
std::filesystem::path new_event_file(const std::filesystem::path& folder);

// Drops from the event files of a folder every event that will happen again, and with them the word that the
// run ended and what is damaged: each file is cut at the first such record. Throws IoError.
void rewind_events(const std::filesystem::path& folder, const Resumed& resumed);

}  // namespace redline::metrics
