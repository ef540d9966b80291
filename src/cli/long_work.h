// Work of the data commands that takes a while: shows its progress, and ends soon after a signal.
#pragma once

#include <functional>

#include "data/progress.h"

namespace redline::cli {

struct LongWork {
  const char* what;        // "checking"
  const char* unit;        // "images"
  const char* afterwards;  // said when a signal stopped it: "nothing was changed"
  // Nothing is lost, and nothing stays behind that the same command would not remove. A signal then ends the
  // process after a second, as some images take several to decode.
  bool may_be_killed = false;
};

// Runs work that takes a Progress; returns 128+signal if a signal stopped it, otherwise 0.
int run_with_progress(const LongWork& about, const std::function<void(const data::Progress&)>& work);

}  // namespace redline::cli
