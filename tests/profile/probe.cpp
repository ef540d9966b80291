// Writes the hand-made timeline of two GPU steps as a trace, for tests that hand it to other programs:
//     profile_probe FILE
// and prints its steps and the nanoseconds of its kernels.
#include <cstdio>

#include <fmt/format.h>

#include "profile/hand_made.h"

int main(int argc, char** argv) {
  using namespace redline::profile;
  if (argc != 2) return 64;
  const HandMade made;
  const Timeline timeline = made.timeline();
  write_trace(timeline, HandMade::subject(), argv[1], 1 << 20);
  std::int64_t kernels = 0;
  for (const DeviceEvent& event : timeline.events) {
    if (event.activity.kind == redline::backend::Activity::Kind::kernel)
      kernels += event.activity.end - event.activity.begin;
  }
  fmt::print("{} {}\n", timeline.steps.size(), kernels);
  return 0;
}
