#include "base/log.h"

#include <memory>
#include <utility>

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace redline {

void set_up_logging(LogLevel level) {
  auto logger =
      std::make_shared<spdlog::logger>("redline", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_pattern("redline: %^%l%$: %v");
  logger->set_level(level == LogLevel::quiet     ? spdlog::level::warn
                    : level == LogLevel::verbose ? spdlog::level::debug
                                                 : spdlog::level::info);
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace redline
