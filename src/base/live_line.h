// The progress line at the bottom of a terminal, redrawn in place. Log lines and other output printed
// meanwhile appear above it instead of running into it.
#pragma once

#include <cstdio>
#include <functional>
#include <string>

namespace redline {

// Any thread. Output errors are ignored.
class LiveLine {
 public:
  // out is a terminal, borrowed. Nothing is drawn yet.
  explicit LiveLine(std::FILE* out) : out_(out) {}
  ~LiveLine() { clear(); }
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;

  void draw(std::string text);  // in place of what is there; too long a line is cut by the terminal
  void clear();                 // takes the line away, so that other output can follow

 private:
  friend void print_above_live_lines(const std::function<void()>& print);
  void erase() const;
  void redraw() const;

  std::FILE* out_;
  std::string text_;
  bool shown_ = false;
};

// Clears the live lines of the process, runs print, and redraws them below its output.
void print_above_live_lines(const std::function<void()>& print);

}  // namespace redline
