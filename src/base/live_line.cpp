#include "base/live_line.h"

#include <mutex>
#include <utility>
#include <vector>

namespace redline {
namespace {

// Global, like the logger: code that logs does not know what draws.
struct Shown {
  std::mutex mutex;
  std::vector<LiveLine*> lines;
};

Shown& shown() {
  static Shown lines;
  return lines;
}

}  // namespace

void LiveLine::erase() const {
  std::fputs("\r\x1b[K", out_);
  std::fflush(out_);
}

void LiveLine::redraw() const {
  // Wrapping is off while the line is drawn: a narrow terminal cuts it instead of scrolling.
  std::fprintf(out_, "\r\x1b[K\x1b[?7l%s\x1b[?7h", text_.c_str());
  std::fflush(out_);
}

void LiveLine::draw(std::string text) {
  const std::lock_guard lock(shown().mutex);
  text_ = std::move(text);
  redraw();
  if (!std::exchange(shown_, true)) shown().lines.push_back(this);
}

void LiveLine::clear() {
  const std::lock_guard lock(shown().mutex);
  if (!std::exchange(shown_, false)) return;
  std::erase(shown().lines, this);
  erase();
}

void print_above_live_lines(const std::function<void()>& print) {
  const std::lock_guard lock(shown().mutex);
  for (const LiveLine* line : shown().lines) line->erase();
  print();
  for (const LiveLine* line : shown().lines) line->redraw();
}

}  // namespace redline
