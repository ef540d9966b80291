// Simulated studies with known answers: noise must not be flagged, and what was planted must be found.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "base/statistics.h"
#include "report/outlying.h"
#include "report/variability.h"

namespace redline::report {
namespace {

// Student's t: heavy tails for few degrees of freedom.
double student(Random& random, int degrees) {
  double sum = 0;
  for (int i = 0; i < degrees; ++i) sum += std::pow(random.normal(), 2);
  return random.normal() / std::sqrt(sum / degrees);
}

struct Study {
  int devices = 8, repeats = 3, per_node = 4, nodes_per_cabinet = 4;
  int steps = 0;               // 0: medians alone, as in a table
  double autocorrelation = 0;  // of steps, whose standard deviation is 1%
  double stragglers = 0;       // part of the steps that take up to three times as long
  double device_spread = 0;    // devices differ by nature
  std::function<double(Random&)> run_noise = [](Random& random) { return 0.01 * random.normal(); };
  std::function<double(int, int)> factor = [](int, int) { return 1.0; };           // of device and run
  std::function<double(int, double)> over_time = [](int, double) { return 1.0; };  // of device, 0..1
};

std::vector<double> steps_of(const Study& study, int device, double level, Random& random) {
  std::vector<double> times;
  double state = random.normal();
  for (int i = 0; i < study.steps; ++i) {
    const double rho = study.autocorrelation;
    if (i > 0) state = rho * state + std::sqrt(1 - rho * rho) * random.normal();
    double time =
        level * std::exp(0.01 * state) * study.over_time(device, static_cast<double>(i) / study.steps);
    if (study.stragglers > 0 && random.uniform() < study.stragglers) time *= random.uniform(1, 3);
    times.push_back(time);
  }
  return times;
}

Variability simulate(const Study& study, std::uint64_t seed) {
  std::vector<DeviceRun> runs;
  for (int device = 0; device < study.devices; ++device) {
    Random random(seed, static_cast<std::uint64_t>(device));
    const double nature = study.device_spread * random.normal();
    for (int repeat = 0; repeat < study.repeats; ++repeat) {
      DeviceRun run;
      const int node = device / study.per_node;
      run.run = fmt::format("run{}", repeat);
      run.device =
          fmt::format("gpu{}", device % study.per_node);  // numbered within nodes, as nodes in cabinets
      run.node = fmt::format("node{}", node % study.nodes_per_cabinet);
      run.cabinet = fmt::format("rack{}", node / study.nodes_per_cabinet);
      run.median = 0.1 * std::exp(nature + study.run_noise(random)) * study.factor(device, repeat);
      run.deviation = run.clock_mhz = run.memory_clock_mhz = run.temperature_c = run.power_w = kNaN;
      run.change = run.change_at = kNaN;
      if (study.steps > 0) {
        const std::vector<double> times = steps_of(study, device, run.median, random);
        run.median = median(times);
        run.history = speed_history(times);
      }
      runs.push_back(std::move(run));
    }
  }
  return analyze(std::move(runs));
}

bool flags_anything(const Variability& found) {
  for (const Level* level : {&found.devices, &found.nodes, &found.cabinets})
    for (const Group& group : level->groups)
      if (group.outlier || group.changes > 0) return true;
  return false;
}

// In how many of `studies` something is flagged.
int flagged(const std::vector<Study>& kinds, int studies) {
  int count = 0;
  for (int i = 0; i < studies; ++i)
    count += flags_anything(
        simulate(kinds[static_cast<std::size_t>(i) % kinds.size()], 1000 + static_cast<std::uint64_t>(i)));
  return count;
}

std::vector<Study> sizes(const Study& like) {
  std::vector<Study> list;
  for (const auto& [devices, repeats] :
       {std::pair(4, 3), {8, 1}, {8, 3}, {16, 2}, {16, 5}, {32, 3}, {32, 1}, {74, 3}, {74, 10}, {200, 3}}) {
    Study study = like;
    study.devices = devices;
    study.repeats = repeats;
    list.push_back(study);
  }
  return list;
}

constexpr int kStudies = 1000, kAllowed = 50;  // 5%

TEST(VariabilityNoise, RunsThatDiffer) { EXPECT_LE(flagged(sizes({}), kStudies), kAllowed); }

TEST(VariabilityNoise, DevicesThatDifferByNature) {
  Study study;
  study.device_spread = 0.015;
  study.run_noise = [](Random& random) { return 0.002 * random.normal(); };
  EXPECT_LE(flagged(sizes(study), kStudies), kAllowed);
}

TEST(VariabilityNoise, HeavyTails) {
  Study study;
  study.run_noise = [](Random& random) { return 0.01 * student(random, 3); };
  std::vector<Study> repeated = sizes(study);
  // A single run with such a tail is a slow device as far as anybody can tell.
  std::erase_if(repeated, [](const Study& entry) { return entry.repeats == 1; });
  EXPECT_LE(flagged(repeated, kStudies), kAllowed);
  // One run in twenty is disturbed by a neighbour.
  study.run_noise = [](Random& random) {
    return 0.01 * random.normal() + (random.uniform() < 0.05 ? 0.1 : 0);
  };
  for (Study& entry : repeated) entry.run_noise = study.run_noise;
  EXPECT_LE(flagged(repeated, kStudies), kAllowed);
}

TEST(VariabilityNoise, StepsThatAreAlikeInTime) {
  for (const double rho : {0.0, 0.5, 0.9, 0.99}) {
    Study study;
    study.steps = 100;
    study.autocorrelation = rho;
    study.stragglers = 0.03;
    study.devices = 8;
    Study longer = study;
    longer.steps = 400;
    longer.repeats = 1;
    EXPECT_LE(flagged({study, longer}, kStudies / 2), kAllowed / 2) << rho;
  }
}

const Group& find_device(const Variability& found, const std::string& name) {
  for (const Group& group : found.devices.groups)
    if (group.name == name) return group;
  throw std::runtime_error("no device " + name);
}

// In how many of 100 studies `holds`.
int found_in(const Study& study, const std::function<bool(const Variability&)>& holds) {
  int count = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) count += holds(simulate(study, seed));
  return count;
}

TEST(VariabilityPlanted, ASlowDeviceIsFound) {
  Study study;
  study.devices = 32;
  study.factor = [](int device, int) { return device == 5 ? 1.05 : 1.0; };
  const auto slow = [](const Variability& found) {
    const Group& group = find_device(found, "rack0/node1/gpu1");
    return group.outlier && group.kind == "slow" && std::abs(group.score - 1 / 1.05) < 0.03;
  };
  EXPECT_GE(found_in(study, slow), 90);
  const auto another = [](const Variability& found) {
    for (const Group& group : found.devices.groups)
      if (group.outlier && group.name != "rack0/node1/gpu1") return true;
    return false;
  };
  EXPECT_LE(found_in(study, another), 5);
}

TEST(VariabilityPlanted, SeveralSlowDevicesDoNotHideEachOther) {
  Study study;
  study.devices = 32;
  study.factor = [](int device, int) { return device % 8 == 5 ? 1.08 : 1.0; };
  EXPECT_GE(found_in(study,
                     [](const Variability& found) {
                       return std::ranges::count_if(found.devices.groups, &Group::outlier) == 4;
                     }),
            90);
}

TEST(VariabilityPlanted, ASlowNodeIsFound) {
  Study study;
  study.devices = 64;
  study.factor = [](int device, int) { return device / 4 == 6 ? 1.03 : 1.0; };
  const auto node = [](const Variability& found) {
    for (const Group& group : found.nodes.groups)
      if (group.outlier) return group.name == "rack1/node2";
    return false;
  };
  EXPECT_GE(found_in(study, node), 90);
  // Its devices are slow too, whether or not each of them could be told by itself.
  const auto devices = [](const Variability& found) {
    std::size_t slow = 0;
    for (const Group& group : found.devices.groups)
      slow += group.kind == "slow" && group.cabinet == "rack1" && group.node == "node2" ? 1 : 0;
    return slow >= 3;
  };
  EXPECT_GE(found_in(study, devices), 90);
}

TEST(VariabilityPlanted, OneSlowDeviceIsNoSlowNode) {
  Study study;
  study.devices = 64;
  study.factor = [](int device, int) { return device == 24 ? 1.5 : 1.0; };
  EXPECT_LE(found_in(study,
                     [](const Variability& found) {
                       return std::ranges::any_of(found.nodes.groups, &Group::outlier);
                     }),
            3);
}

TEST(VariabilityPlanted, LateThrottlingIsFound) {
  for (const double rho : {0.0, 0.9}) {
    Study study;
    study.devices = 8;
    study.repeats = 2;
    study.steps = 200;
    study.autocorrelation = rho;
    study.stragglers = 0.03;
    study.over_time = [](int device, double at) { return device == 3 && at >= 0.6 ? 1.15 : 1.0; };
    const auto late = [](const Variability& found) {
      const Group& group = find_device(found, "node0/gpu3");
      if (group.changes != 2 || group.kind != "unstable") return false;
      for (const DeviceRun& run : found.runs)
        if (run.group == group.name &&
            (std::abs(run.change_at - 0.6) > 0.03 || std::abs(run.change - 0.15) > 0.03))
          return false;
      return group.score < 0.97;  // the median of its runs does not show it
    };
    EXPECT_GE(found_in(study, late), 90) << rho;
    const auto other = [](const Variability& found) {
      for (const Group& group : found.devices.groups)
        if (group.changes > 0 && group.name != "node0/gpu3") return true;
      return false;
    };
    EXPECT_LE(found_in(study, other), 5) << rho;
  }
}

TEST(VariabilityPlanted, WhatAllRunsDoIsNoDevice) {
  Study study;
  study.steps = 200;
  study.repeats = 1;
  study.over_time = [](int, double at) { return at >= 0.5 ? 1.4 : 1.0; };  // larger images from the middle on
  const Variability found = simulate(study, 1);
  EXPECT_FALSE(flags_anything(found));
  ASSERT_FALSE(found.problems.empty());
  EXPECT_NE(found.problems.back().find("the workload, not a device"), std::string::npos);
}

TEST(VariabilityPlanted, SlowAndFastInTurnsIsNotOneChange) {
  Study study;
  study.steps = 200;
  study.repeats = 1;
  study.over_time = [](int device, double at) {
    return device == 3 && std::fmod(at, 0.4) >= 0.2 ? 1.1 : 1.0;
  };
  EXPECT_LE(
      found_in(study, [](const Variability& found) { return find_device(found, "node0/gpu3").changes > 0; }),
      5);
}

// Jobs of four devices on a node: their times are one measurement and not four that agree.
TEST(VariabilityNoise, DevicesThatRanTogetherCountOnce) {
  int count = 0;
  for (std::uint64_t seed = 0; seed < kStudies; ++seed) {
    Random random(seed);
    std::vector<DeviceRun> runs;
    for (int job = 0; job < 16; ++job) {
      const double time = 0.1 * std::exp(0.01 * student(random, 3));
      for (int device = 0; device < 4; ++device) {
        DeviceRun run;
        run.run = fmt::format("job{}", job);
        run.node = fmt::format("n{}", job);
        run.device = fmt::format("{}/{}", run.node, device);
        run.median = time;
        run.together = 4;
        run.deviation = run.change = run.change_at = kNaN;
        runs.push_back(std::move(run));
      }
    }
    count += flags_anything(analyze(std::move(runs)));
  }
  EXPECT_LE(count, kAllowed);
}

// Values from R: pt(t, df, lower.tail = FALSE).
TEST(Outlying, StudentsTail) {
  EXPECT_NEAR(student_tail(0, 3), 0.5, 1e-12);
  EXPECT_NEAR(student_tail(2.353363, 3), 0.05, 1e-7);
  EXPECT_NEAR(student_tail(4.604095, 4), 0.005, 1e-8);
  EXPECT_NEAR(student_tail(1.644854, 1e9), 0.05, 1e-6);
}

TEST(Outlying, RoundedTimesDoNotLookExact) {
  // Times told to a millisecond: most are equal, and one unit more is not far out.
  std::vector<std::vector<double>> groups(12, {std::log(100.0), std::log(100.0), std::log(100.0)});
  groups[4] = {std::log(101.0), std::log(101.0), std::log(101.0)};
  EXPECT_GT(standing_out(groups)[4], 0.02);
  groups[4] = {std::log(120.0), std::log(121.0), std::log(120.0)};
  EXPECT_LT(standing_out(groups)[4], 0.02);
  EXPECT_EQ(standing_out({{0.1}, {5}, {0.1}}), (std::vector<double>{1, 1, 1}));
}

}  // namespace
}  // namespace redline::report
