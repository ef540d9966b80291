#include "base/log.h"

#include <memory>
#include <utility>

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "base/live_line.h"
#include "base/printable.h"

namespace redline {
namespace {

class StderrSink final : public spdlog::sinks::stderr_color_sink_mt {
 public:
  void log(const spdlog::details::log_msg& message) override {
    print_above_live_lines([&] { spdlog::sinks::stderr_color_sink_mt::log(message); });
  }
};

spdlog::level::level_enum level_of(LogKind kind) {
  return kind == LogKind::debug  ? spdlog::level::debug
         : kind == LogKind::info ? spdlog::level::info
                                 : spdlog::level::warn;
}

}  // namespace

void set_up_logging(LogLevel level) {
  auto logger = std::make_shared<spdlog::logger>("redline", std::make_shared<StderrSink>());
  logger->set_pattern("redline: %^%l%$: %v");
  logger->set_level(level == LogLevel::quiet     ? spdlog::level::warn
                    : level == LogLevel::verbose ? spdlog::level::debug
                                                 : spdlog::level::info);
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
}

bool log_shown(LogKind kind) { return spdlog::should_log(level_of(kind)); }

// The line is formatted already: spdlog's own formatting would be compiled into every file that logs.
void log_line(LogKind kind, const std::string& line) {
  spdlog::log(level_of(kind), spdlog::string_view_t(printable(line, true)));
}

}  // namespace redline
