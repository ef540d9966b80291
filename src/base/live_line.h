// The line at the foot of a terminal that is redrawn in place while work goes on. Log lines and others that
// are printed meanwhile appear above it, instead of running into it.
#pragma once

#include <cstdio>
#include <functional>
#include <string>

namespace redline {

// Any thread. Output that fails is nobody's concern.
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

// Takes the live lines of the process away while print runs, and draws them again below what it printed.
void print_above_live_lines(const std::function<void()>& print);

}  // namespace redline
