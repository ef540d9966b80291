// Logging: spdlog's default logger, on stderr, so that stdout stays clean for results. Include
// <spdlog/spdlog.h> and call spdlog::info, warn, debug from any thread. Lines
// appear above a live line (live_line.h) where one is drawn.
#pragma once

namespace redline {

enum class LogLevel { quiet, normal, verbose };  // errors and warnings; and what happens; and details

// Called once at the start of the program, before other threads. Lines read "redline: warning: ...".
void set_up_logging(LogLevel level);

}  // namespace redline
