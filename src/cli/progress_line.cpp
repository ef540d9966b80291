#include "cli/progress_line.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "base/quantity.h"
#include "base/text.h"

namespace redline::cli {

double RecentRate::at(double seconds, std::int64_t done) {
  constexpr double kLeast = 15;  // seconds
  if (seconds - recent_.seconds > kLeast) from_ = std::exchange(recent_, {seconds, done});
  return static_cast<double>(done - from_.done) / (seconds - from_.seconds);
}

ProgressLine::ProgressLine(std::string what, std::string unit)
    : what_(std::move(what)),
      unit_(std::move(unit)),
      terminal_(::isatty(STDERR_FILENO) == 1),
      line_(stderr) {}

void ProgressLine::update(std::int64_t done, std::int64_t total) {
  // Another pass has its own rate. Threads may report slightly out of order.
  if (total != total_ || done < done_ / 2) {
    watch_.restart();
    last_ = 0;
    rate_ = {};
  }
  total_ = total;
  done_ = done;
  const double now = watch_.seconds();
  if (now - last_ < (terminal_ ? 0.1 : 10.0) || !log_shown(LogKind::info)) return;
  last_ = now;
  const double rate = rate_.at(now, done);
  const std::string text =
      fmt::format("{} {} of {} {}, {}/s, {} left", what_, format_grouped(done), format_grouped(total), unit_,
                  format_count(rate), format_duration(static_cast<double>(total - done) / rate));
  if (terminal_)
    line_.draw(text);
  else
    print_stderr("{}\n", text);
}

}  // namespace redline::cli
