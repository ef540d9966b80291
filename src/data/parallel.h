// A loop over independent items on several threads.
#pragma once

#include <cstdint>
#include <functional>

#include "data/progress.h"

namespace redline::data {

// Calls body(item, worker) for every item in [0, count), each once, on `threads` threads (worker is 0 ..
// threads-1, for scratch memory of its own). Items are begun in order. The first exception ends the loop and
// is thrown again here; so is Stopped when progress asks to stop.
void parallel_for(std::int64_t count, int threads,
                  const std::function<void(std::int64_t item, int worker)>& body,
                  const Progress& progress = {});

}  // namespace redline::data
