// Logging: lines on stderr, so that stdout stays clean for results, from any thread. They appear above a live
// line (live_line.h) if there is one.
#pragma once

#include <cstdio>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace redline {

enum class LogLevel { quiet, normal, verbose };  // errors and warnings; and what happens; and details

// Called once at the start of the program, before other threads. Lines read "redline: warning: ...".
void set_up_logging(LogLevel level);

enum class LogKind { debug, info, warning };
bool log_shown(LogKind kind);
void log_line(LogKind kind, const std::string& line);

template <typename... Arguments>
void log_debug(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  if (log_shown(LogKind::debug))
    log_line(LogKind::debug, fmt::format(text, std::forward<Arguments>(arguments)...));
}

template <typename... Arguments>
void log_info(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  if (log_shown(LogKind::info))
    log_line(LogKind::info, fmt::format(text, std::forward<Arguments>(arguments)...));
}

template <typename... Arguments>
void log_warning(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  if (log_shown(LogKind::warning))
    log_line(LogKind::warning, fmt::format(text, std::forward<Arguments>(arguments)...));
}

// Prints to stderr as it is. If that fails there is nobody to tell, so nothing is thrown.
template <typename... Arguments>
void print_stderr(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  std::fputs(fmt::format(text, std::forward<Arguments>(arguments)...).c_str(), stderr);
}

}  // namespace redline
