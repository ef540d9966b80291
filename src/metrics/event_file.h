// TensorBoard's event files: a sequence of framed records, each an Event with a step. tensorboard.h decides
// what goes into the events.
#pragma once

#include <filesystem>

#include "metrics/records.h"

namespace redline::metrics {

// A name for a new event file in a folder that sorts after the existing ones: readers go through a run's
// files in order of name and never go back.
std::filesystem::path new_event_file(const std::filesystem::path& folder);

// Cuts each event file of a folder at the first event that the resumed run will repeat, at the end-of-run
// event, or at a damaged record. Throws IoError.
void rewind_events(const std::filesystem::path& folder, const Resumed& resumed);

}  // namespace redline::metrics
