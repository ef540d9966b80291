// A run in a few numbers, its energy, and both as text.
#include "report/summary.h"

#include <algorithm>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "made_run.h"
#include "report/terminal.h"

namespace redline::report {
namespace {

// Two devices of 100 and 300 W over 20 steps of half a second in two epochs, an evaluation between them.
TEST(Energy, OfStepsEpochsAndTheRun) {
  report::Run run = made_run("run", std::vector<double>(20, 0.5));
  for (std::size_t i = 10; i < 20; ++i) {
    run.steps.epoch[i] = 1;
    run.steps.elapsed[i] += 2;
  }
  run.steps.gap_seconds[10] = run.steps.evaluation_seconds[10] = 2;
  for (const char* device : {"0000:01", "0000:02", "0000:02"}) {  // two ranks share the second
    Telemetry telemetry;
    telemetry.source = device;
    telemetry.add_line("seconds,gpu_power_mw,gpu_throttle,rank,host,device");
    const int milliwatts = std::string(device) == "0000:01" ? 100'000 : 300'000;
    for (int i = 0; i <= 24; ++i)
      telemetry.add_line(
          fmt::format("{},{},{},0,box,{}", 0.5 * i, milliwatts, i < 12 ? "none" : "sw_power_cap", device));
    run.telemetry.push_back(telemetry);
  }
  const RunSummary summary = summarize(run);
  ASSERT_TRUE(summary.energy);
  EXPECT_NEAR(summary.energy->power_w, 400, 1e-3);
  EXPECT_NEAR(*summary.energy->joules, 400 * 12, 1e-2);
  EXPECT_NEAR(*summary.energy->joules_per_step, 200, 1e-3) << "the evaluation is left out";
  EXPECT_NEAR(*summary.energy->images_per_joule, 64 / 200.0, 1e-6);
  ASSERT_EQ(summary.energy->epochs.size(), 2u);
  EXPECT_NEAR(summary.energy->epochs[1].joules, 2000, 1e-2);
  EXPECT_EQ(summary.energy->epochs[1].images, 640);
  ASSERT_EQ(summary.throttling.size(), 1u);
  EXPECT_EQ(summary.throttling[0].reason, "sw_power_cap");
  EXPECT_NEAR(summary.throttling[0].share, 0.5, 1e-9);
  const std::string text = terminal_text({&run});
  EXPECT_NE(text.find("  energy      4.8 kJ, 200 J a step, 2 kJ an epoch, 0.32 images/J\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("  throttled   power cap 50% of the time\n"), std::string::npos) << text;
  run.resumes = 1;
  run.steps.samples[3] = 0;  // a step without images counts neither way
  EXPECT_TRUE(energy_of(run)->epochs.empty()) << "where a process ended, the axes part";
  EXPECT_NEAR(*energy_of(run)->joules_per_step, 200, 1e-3);
  EXPECT_NEAR(*energy_of(run)->images_per_joule, 64 / 200.0, 1e-6);
}

// 100 W for the first two of four steps; then the process that sampled is gone, or its counter begins anew.
TEST(Energy, IsOfWhatTheSamplesCover) {
  report::Run run = made_run("run", std::vector<double>(4, 1));
  Telemetry telemetry;
  telemetry.add_line("seconds,gpu_power_mw,gpu_energy_mj");
  for (int i = 0; i <= 2; ++i) telemetry.add_line(fmt::format("{},100000,{}", i, i == 2 ? 7 : 110'000 * i));
  run.telemetry.push_back(telemetry);
  const auto energy = energy_of(run);
  ASSERT_TRUE(energy && energy->joules && energy->joules_per_step);
  EXPECT_NEAR(*energy->joules, 200, 1e-2) << "by its power: the counter went back";
  EXPECT_NEAR(*energy->joules_per_step, 100, 1e-2) << "of the two steps that were sampled";
  ASSERT_EQ(energy->epochs.size(), 1u);
  EXPECT_EQ(energy->epochs[0].steps, 2u);
}

// The processor of two ranks on one machine, and devices of which one was sampled for half of the run.
TEST(Energy, OfAMachineCountsOnceAndOfStepsWhereAllWereSampled) {
  report::Run run = made_run("run", std::vector<double>(4, 1));
  const auto sampled = [](const char* column, const char* host, const char* source, int seconds) {
    Telemetry telemetry;
    telemetry.source = source;
    telemetry.add_line(fmt::format("seconds,{},host,device", column));
    for (int i = 0; i <= seconds; ++i) telemetry.add_line(fmt::format("{},100000,{},{}", i, host, source));
    return telemetry;
  };
  run.telemetry = {sampled("cpu_power_mw", "box", "rank0", 4), sampled("cpu_power_mw", "box", "rank1", 4)};
  EXPECT_NEAR(energy_of(run)->power_w, 100, 1e-9);
  EXPECT_NEAR(*energy_of(run)->joules_per_step, 100, 1e-3);
  run.telemetry = {sampled("gpu_power_mw", "box", "0000:01", 4),
                   sampled("gpu_power_mw", "box", "0000:02", 2)};
  EXPECT_NEAR(*energy_of(run)->joules_per_step, 200, 1e-3);
  EXPECT_EQ(energy_of(run)->epochs.at(0).steps, 2u);
}

TEST(Energy, IsTheCountersWhereThereIsOne) {
  report::Run run = made_run("run", std::vector<double>(4, 1));
  Telemetry telemetry;
  telemetry.add_line("seconds,gpu_power_mw,gpu_energy_mj");
  for (int i = 0; i <= 4; ++i) telemetry.add_line(fmt::format("{},100000,{}", i, 5000 + 110'000 * i));
  run.telemetry.push_back(telemetry);
  EXPECT_NEAR(*energy_of(run)->joules, 440, 1e-2);
  EXPECT_NEAR(*energy_of(run)->joules_per_step, 110, 1e-2);
}

// A driver that is loaded for a month has counted more than a float can tell joules of.
TEST(Energy, IsExactHoweverFarTheCounterIs) {
  report::Run run = made_run("run", std::vector<double>(4, 1));
  Telemetry telemetry;
  telemetry.add_line("seconds,gpu_power_mw,gpu_energy_mj");
  for (int i = 0; i <= 4; ++i)
    telemetry.add_line(fmt::format("{},100000,{}", i, 1'800'000'000'000 + 110'000 * i));
  run.telemetry.push_back(telemetry);
  EXPECT_NEAR(*energy_of(run)->joules, 440, 1e-2);
}

// 100 W for ten seconds, an hour in which the run was not there, and 100 W for ten seconds.
TEST(Energy, LeavesOutThePauseBeforeARunWasResumed) {
  for (const bool counted : {false, true}) {
    report::Run run = made_run("run", std::vector<double>(4, 1));
    run.resumes = 1;
    Telemetry telemetry;
    telemetry.add_line(counted ? "seconds,gpu_power_mw,gpu_energy_mj" : "seconds,gpu_power_mw");
    for (int i = 0; i <= 20; ++i) {
      const int later = i > 10 ? 3600 : 0;
      telemetry.add_line(fmt::format("{},100000", i + later) +
                         (counted ? fmt::format(",{}", 100'000 * i + (i > 10 ? 70'000'000 : 0)) : ""));
    }
    run.telemetry.push_back(telemetry);
    EXPECT_NEAR(*energy_of(run)->joules, 1900, 1) << counted;  // a second of them joins the two
  }
}

TEST(Terminal, TellsOfRanksProfileAndWhatDisturbed) {
  report::Run run = made_run("run", std::vector<double>(20, 40.0));
  run.info.ranks = 2;
  for (std::size_t i = 0; i < 20; ++i) {
    run.steps.slowest_rank[i] = i < 15 ? 1 : 0;
    run.steps.communication_seconds[i] = 4;
    run.steps.gap_seconds[i] = run.steps.exchange_seconds[i] = i == 0 ? 400 : 10;  // the first warms up
  }
  run.notices.push_back({9, "disturbed", "other processes used 35% of the CPU time"});
  run.notices.push_back({20, "bound", "the power limit bounds the speed"});
  run.steps.skipped = 1;
  run.checkpoints.resize(2);
  run.checkpoints[1].step = 10;
  run.checkpoints[1].error = "no space left";
  run.profile =
      Profile{"profile/summary.json",
              R"({"steps":4,"utilisation":0.953,"busy_seconds":0.2,"kinds":[{"name":"conv","seconds":0.04}],)"
              R"("losses":[{"what":"norms move 2.1 GB","seconds":0.006}]})"};
  const std::string text = terminal_text({&run});
  for (const char* line :
       {"  ranks       2 ranks, 28.0% of the training time waiting for each other, rank 1 "
        "the slowest in 75% of the steps\n",
        "  step        median 40 s, 90% 40 s, slowest 40 s, without 1 step of warm-up (440 s)\n",
        "  profile     4 steps profiled, device busy 95.3% of them: conv 80%\n",
        "  lost        norms move 2.1 GB: 6 ms a step\n", "  bound       the power limit bounds the speed\n",
        "  disturbed   other processes used 35% of the CPU time\n",
        "  warning     1 checkpoint could not be written, the last after step 10: no space left\n",
        "  warning     1 step was skipped: a gradient was not finite\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  run.resumes = 1;  // then each process says how far it got
  EXPECT_NE(terminal_text({&run}).find("used 35% of the CPU time (up to step 9)\n"), std::string::npos);
  run.profile = Profile{"profile/summary.json", R"({"steps":"many","kinds":7})"};
  EXPECT_EQ(terminal_text({&run}).find("  profile"), std::string::npos);
}

TEST(Terminal, NamesALossThatIsNotTheValidationLoss) {
  report::Run run = made_run("run", std::vector<double>(4, 1));
  const auto text = [&](const char* option, const char* value) {
    run.options = {{"optimizer.label_smoothing", "0"}, {"augment.mixup_alpha", "0"}};
    std::ranges::find(run.options, option, &Pairs::value_type::first)->second = value;
    return terminal_text({&run});
  };
  EXPECT_NE(text("optimizer.label_smoothing", "0").find("  0 to 0\n"), std::string::npos);
  EXPECT_NE(text("optimizer.label_smoothing", "0.1").find("  0 to 0, with label smoothing\n"),
            std::string::npos);
  EXPECT_NE(text("augment.mixup_alpha", "0.2").find("  0 to 0, of mixed images\n"), std::string::npos);
}

// Long names are told apart by their ends; a value that is too wide for its column has a line of its own.
TEST(Terminal, ListsDifferencesThatCanBeReadWhateverTheirLength) {
  std::vector<report::Run> runs;
  for (const char* name : {"resnet50-imagenet-20261115-044113", "resnet50-imagenet-20261116-010203"}) {
    runs.push_back(made_run(name, std::vector<double>(4, 1)));
    runs.back().options = {{"optimizer.label_smoothing", std::to_string(runs.size())},
                           {"data.path", std::string("/data/") + name}};
  }
  const std::string two = terminal_text({&runs[0], &runs[1]});
  EXPECT_NE(two.find("Settings that differ:\n"
                     "                             …20261115-044113      …20261116-010203    \n"
                     "  optimizer.label_smoothing  1                     2                   \n"
                     "  data.path                \n"
                     "    …20261115-044113      /data/resnet50-imagenet-20261115-044113\n"
                     "    …20261116-010203      /data/resnet50-imagenet-20261116-010203\n"),
            std::string::npos)
      << two;
  while (runs.size() < 6) runs.push_back(runs.back());
  runs[4].options.clear();
  std::vector<const report::Run*> many;
  for (const report::Run& run : runs) many.push_back(&run);
  const std::string text = terminal_text(many);
  EXPECT_NE(text.find("  optimizer.label_smoothing: - (1 run), 1 (1 run), 2 (4 runs)\n"), std::string::npos)
      << text;
  runs[0].name = std::string(30, 'a') + "ä";  // no words in common, and cut between characters
  runs[1].name = std::string(18, 'b') + "äää";
  EXPECT_NE(terminal_text({&runs[0], &runs[1]})
                .find("  " + std::string(19, 'a') + "…  " + std::string(18, 'b') + "ä…\n"),
            std::string::npos)
      << terminal_text({&runs[0], &runs[1]});
}

TEST(Terminal, TellsOnlyWhatOneOfTheTwoHas) {
  report::Run before = made_run("before", std::vector<double>(40, 1), std::vector<double>(40, 0.00001)),
              after = made_run("after", std::vector<double>(40, 1)), third = after;
  third.name = "third";
  third.info.dtype = "bf16";
  third.telemetry.emplace_back();
  third.telemetry.back().add_line("seconds,cpu_clock_mhz");
  third.telemetry.back().add_line("0,2600");
  before.info.ranks = 2;
  const std::string text = terminal_text({&before, &after, &third});
  const std::size_t second = text.find("third against");
  EXPECT_EQ(text.find("- -> -"), std::string::npos) << text;
  EXPECT_NE(text.find("median clock", second), std::string::npos) << text;
  EXPECT_NE(text.find("+0.00 points"), std::string::npos) << text;
  EXPECT_EQ(text.find("-0.00"), std::string::npos) << "of a thousandth of a point less: " << text;
}

// One device, whose power is `watts` by the second.
report::Run run_of_power(const std::vector<double>& watts, const std::vector<std::string>& throttle = {}) {
  report::Run run = made_run("run", std::vector<double>(watts.size() - 1, 1));
  Telemetry telemetry;
  telemetry.add_line("seconds,gpu_power_mw,gpu_throttle,gpu_sm_clock_mhz");
  for (std::size_t i = 0; i < watts.size(); ++i)
    telemetry.add_line(fmt::format("{},{},{},{}", i, 1000 * watts[i],
                                   i < throttle.size() ? throttle[i] : "none", i == 0 ? 300 : 1980));
  run.telemetry.push_back(telemetry);
  return run;
}

TEST(Terminal, TellsEnergyInTheUnitThatFits) {
  report::Run run = run_of_power(std::vector<double>(11, 797));
  EXPECT_NE(terminal_text({&run}).find("  energy      7.97 kJ, 797 J a step, 7.97 kJ an epoch, "),
            std::string::npos)
      << terminal_text({&run});
  run = run_of_power(std::vector<double>(11, 720'000));
  EXPECT_NE(terminal_text({&run}).find("  energy      2 kWh, "), std::string::npos) << terminal_text({&run});
  run = run_of_power({500, 500, 500, 500});
  run.steps.epoch = {0, 0, 1};
  EXPECT_NE(terminal_text({&run}).find(" 1 kJ an epoch"), std::string::npos)
      << "the last one ended early: " << terminal_text({&run});
}

TEST(Energy, IsTheAreaBelowThePower) {
  EXPECT_NEAR(*energy_of(run_of_power({100, 300}))->joules, 200, 1e-3);
  EXPECT_NEAR(*energy_of(run_of_power({300, 100}))->joules, 200, 1e-3);
}

TEST(Energy, LeavesOutWhereThePowerIsUnknown) {
  report::Run run = made_run("run", std::vector<double>(3, 1));
  Telemetry telemetry;
  telemetry.add_line("seconds,gpu_power_mw");
  for (const char* line : {"0,100000", "1,", "2,100000", "3,100000"}) telemetry.add_line(line);
  run.telemetry = {telemetry};
  EXPECT_NEAR(*energy_of(run)->joules, 100, 1e-3) << "of the last second";
  EXPECT_NEAR(energy_of(run)->power_w, 100, 1e-3);
}

// At the limit for six seconds, of which a part is asked for.
TEST(Throttle, IsOfTheTimeAskedFor) {
  Telemetry telemetry;
  telemetry.add_line("seconds,gpu_throttle");
  for (int i = 0; i <= 10; ++i) telemetry.add_line(fmt::format("{},{}", i, i < 6 ? "sw_power_cap" : "none"));
  EXPECT_NEAR(throttle_of(telemetry, 0, 10).at(0).share, 0.6, 1e-9);
  EXPECT_NEAR(throttle_of(telemetry, 5, 10).at(0).share, 0.2, 1e-9);
  EXPECT_TRUE(throttle_of(telemetry, 6, 10).empty());
}

// More changes than are kept: what came after them is not known, and counts neither way.
TEST(Throttle, IsOfTheTimeThatWasKept) {
  Telemetry telemetry;
  telemetry.add_line("seconds,gpu_throttle");
  const int most = static_cast<int>(Telemetry::kMostMarks);
  for (int i = 0; i < 3 * most; ++i)
    telemetry.add_line(fmt::format("{},{}", i, i % 2 == 1 && i < 2 * most ? "sw_power_cap" : "none"));
  EXPECT_NEAR(throttle_of(telemetry, 0, 3 * most).at(0).share, 0.5, 0.01);
}

TEST(Summary, TellsWhatHeldTheClockDownTheLongestFirst) {
  const report::Run run = run_of_power(std::vector<double>(11, 500),
                                       {"idle", "idle", "hw_thermal", "sw_power_cap", "sw_power_cap",
                                        "sw_power_cap|sw_thermal", "sw_power_cap", "none"});
  const RunSummary summary = summarize(run);
  ASSERT_EQ(summary.throttling.size(), 3u) << "an idle clock is not held down";
  EXPECT_EQ(summary.throttling[0].reason, "sw_power_cap");
  EXPECT_NEAR(summary.throttling[0].share, 0.4, 1e-9);
  EXPECT_NEAR(summary.throttling[1].share, 0.1, 1e-9);
  EXPECT_EQ(summary.clock_mhz, 1980) << "the median: a slow start is no slow run";
}

// A run on four processors that did not end, in whose samples it kept `busy` of them.
report::Run cut_off(double steal, double others, double busy, int processes) {
  report::Run run = made_run("run", std::vector<double>(4, 1));
  run.facts = {{"cores", "4"}, {"device_address", ""}};
  Telemetry telemetry;
  telemetry.add_line("seconds,cpu_steal_pct,cpu_others_pct,cpu_use,gpu_other_processes");
  for (int i = 0; i < 4; ++i)
    telemetry.add_line(fmt::format("{},{},{},{},{}", i, steal, others, busy, i % 2 * processes));
  run.telemetry = {telemetry};
  return run;
}

// By the rules that a run has for itself (profile/disturbance.h).
TEST(Summary, NamesWhatDisturbedARunThatDidNotEnd) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(summarize(cut_off(1.9, 9, 3.6, 0)).disturbances, Texts{}) << "less than matters";
  const report::Run run = cut_off(4, 30, 2.6, 3);
  EXPECT_EQ(
      summarize(run).disturbances,
      (Texts{"the host of this virtual machine took 4.0% of the CPU time (steal)",
             "other processes used 30.0% of the CPU time", "3 other processes computed on this GPU too"}));
  const report::Run quiet = made_run("quiet", std::vector<double>(4, 1));
  const std::string compared = terminal_text({&quiet, &run});
  EXPECT_NE(compared.find("  disturbed, run: other processes used 30.0% of the CPU time\n"),
            std::string::npos)
      << compared;
  EXPECT_EQ(summarize(cut_off(0, 30, 1.9, 0)).disturbances, Texts{}) << "processors stood idle";
  report::Run other = cut_off(0, 30, 2.8, 0);
  other.facts.clear();
  EXPECT_EQ(summarize(other).disturbances, Texts{}) << "who knows how many stood idle";
  other = cut_off(0, 30, 2.8, 0);
  other.info.ranks = 2;
  EXPECT_EQ(summarize(other).disturbances, Texts{}) << "the other rank is another process";
  other = cut_off(0, 30, 2.8, 0);
  other.facts.back().second = "0000:1b:00.0";
  EXPECT_EQ(summarize(other).disturbances, Texts{}) << "the GPU computes";
}

TEST(Summary, ARunThatEndedSaidWhatDisturbedIt) {
  report::Run run = cut_off(4, 30, 2.6, 3);
  run.end.emplace();
  EXPECT_TRUE(summarize(run).disturbances.empty()) << "it had the samples too, and found nothing";
  run.notices = {{3, "bound", "the power"}, {4, "disturbed", "a neighbour"}, {4, "disturbed", "a neighbour"}};
  EXPECT_EQ(summarize(run).disturbances, std::vector<std::string>{"a neighbour"});
  EXPECT_EQ(terminal_text({&run}).find("warning"), std::string::npos) << "it is told once, among the numbers";
  EXPECT_EQ(terminal_text({&run}).find("  ranks"), std::string::npos);
}

TEST(Summary, TheBestEvaluationIsNotTheLast) {
  report::Run run = made_run("run", std::vector<double>(4, 1));
  for (const double top1 : {0.5, 0.8, 0.7})
    run.evaluations.push_back({4, 1, "model", 1, top1, 0.9, 100, 1, 9});
  EXPECT_EQ(summarize(run).best->top1, 0.8);
  EXPECT_EQ(summarize(run).last->top1, 0.7);
}

TEST(Summary, HasPeaksOfMemoryAndHeatAndTheMedianClock) {
  report::Run run = made_run("run", std::vector<double>(4, 1));
  Telemetry telemetry;
  telemetry.add_line("seconds,gpu_temperature_c,cpu_temperature_c,gpu_memory_used_bytes,gpu_sm_clock_mhz");
  for (const char* line : {"0,40,90,1000,300", "1,75,90,9000,1900", "2,70,90,2000,1980"})
    telemetry.add_line(line);
  run.telemetry = {telemetry};
  const RunSummary summary = summarize(run);
  EXPECT_EQ(summary.temperature_c, 75) << "the GPU's";
  EXPECT_EQ(summary.memory_bytes, 9000);
  EXPECT_EQ(summary.clock_mhz, 1900);
}

TEST(Summary, NamesStalls) {
  std::vector<double> seconds(101, 0.1), gaps(101, 0);
  EXPECT_FALSE(summarize(made_run("even", seconds)).stalls);
  seconds[0] = 50;  // the warm-up
  seconds[30] = 8.1;
  gaps[60] = 2;       // before the step
  seconds[70] = 0.4;  // long, but no stall
  report::Run run = made_run("run", seconds, gaps);
  run.steps.gap_seconds[80] = run.steps.evaluation_seconds[80] = 30;
  const auto stalls = summarize(run).stalls;
  ASSERT_TRUE(stalls);
  EXPECT_EQ(stalls->steps, 2u);
  EXPECT_NEAR(stalls->seconds, 10, 1e-9);
  EXPECT_NEAR(stalls->share, 10 / (98 * 0.1 + 8.1 + 2.1 + 0.3), 1e-9);
  EXPECT_EQ(stalls->longest_step, 31);
  EXPECT_NEAR(stalls->longest_seconds, 8.1, 1e-9);
  EXPECT_NE(
      terminal_text({&run}).find("  stalls      2 steps took over 5 times the median: 10 s lost, 49% of the "
                                 "time (the longest: step 31, 8.1 s)\n"),
      std::string::npos)
      << terminal_text({&run});
  run.steps.seconds[30] = run.steps.seconds[70] = 0.1;
  run.steps.gap_seconds[60] = 0;
  run.steps.seconds[40] = 0.6;  // half a second, of ten and a half
  EXPECT_TRUE(summarize(run).stalls);
  const report::Run longer = [] {
    std::vector<double> many(2001, 0.1);
    many[40] = 0.6;
    return made_run("longer", many);
  }();
  EXPECT_FALSE(summarize(longer).stalls) << "too little to matter";
}

TEST(Summary, LastsUntilItsEndWhereThatIsKnown) {
  report::Run run = made_run("run", std::vector<double>(4, 1));
  EXPECT_EQ(summarize(run).seconds, 4);
  run.end = metrics::End{};
  run.end->seconds = 9;  // the last evaluation included
  EXPECT_EQ(summarize(run).seconds, 9);
}

TEST(Summary, TheFinalLossIsOfTheLastTenthAndOfAHundredStepsAtMost) {
  for (const std::size_t steps : {5u, 200u, 5000u}) {
    report::Run run = made_run("run", std::vector<double>(steps, 1));
    run.steps.loss = run.steps.step;
    const std::size_t last = std::clamp<std::size_t>(steps / 10, 1, 100);
    EXPECT_NEAR(*summarize(run).final_loss, static_cast<double>(2 * steps - last + 1) / 2, 1e-9) << steps;
  }
}

// The last step of an epoch may have fewer images.
TEST(Summary, TheSpeedAtTheMedianStepIsOfAUsualBatch) {
  report::Run run = made_run("run", std::vector<double>(20, 0.5));
  run.steps.samples[10] = run.steps.samples[19] = 1;
  run.steps.seconds[11] = 30;
  EXPECT_NEAR(*summarize(run).images_per_second_at_median, 128, 1e-9);
}

TEST(Terminal, FoldsManyWarnings) {
  report::Run run = made_run("run", std::vector<double>(20, 1));
  for (int i = 1; i <= 34; ++i) run.notices.push_back({i, "loss_spike", "the loss jumped"});
  const std::string text = terminal_text({&run});
  EXPECT_NE(text.find("  warning     step 10: the loss jumped\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("step 11: "), std::string::npos) << text;
  EXPECT_NE(text.find("and 24 more warnings\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace redline::report
