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
  std::vector<TelemetrySample> samples(8);  // a millisecond apart, from the first event on
  for (std::size_t i = 0; i < samples.size(); ++i) {
    samples[i].time = std::chrono::steady_clock::time_point(std::chrono::milliseconds(1 + i));
    samples[i].gpu.emplace().sm_clock_mhz = 1980 - static_cast<unsigned>(i);
    samples[i].gpu->power_mw = 686000;
  }
  write_trace(timeline, op_arguments({made.runs()}), samples, HandMade::subject(), argv[1], 1 << 20);
  std::int64_t kernels = 0;
  for (const DeviceEvent& event : timeline.events) {
    if (event.activity.kind == redline::backend::Activity::Kind::kernel)
      kernels += event.activity.end - event.activity.begin;
  }
  fmt::print("{} {}\n", timeline.steps.size(), kernels);
  return 0;
}
