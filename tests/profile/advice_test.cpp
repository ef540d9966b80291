#include "profile/advice.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "profile/hand_made.h"
#include "profile/session.h"
#include "profile/summary.h"
#include "profile/tracing_windows.h"

namespace redline::profile {
namespace {

// Everything is known, and no rule has a reason to speak.
Facts content() {
  Facts facts;
  RunFacts& r = facts.run;
  r.gpu = true;
  r.synthetic = true;
  r.shards = true;
  r.gpu_decodes = true;
  r.gpu_could = false;
  r.workers = r.cores = 8;
  r.threads = 4;
  r.batch = 64;
  r.ranks = 1;
  r.reading = 0.1;
  r.histograms = false;
  r.log_every = 10;
  r.deterministic = false;
  r.fused = true;
  r.narrower = false;
  TelemetrySummary& t = facts.telemetry.emplace();
  t.seconds = 60;
  t.cpu = CpuShares{0.95, 0.01, 0};
  t.sm_clock_mhz = t.max_sm_clock_mhz = 1980;
  t.power_w = 500;
  t.power_limit_w = t.max_power_limit_w = 700;
  facts.op = OpFacts{true, true, 1e-3};
  return facts;
}

using Change = std::function<void(Facts&)>;

struct RuleTest {
  Change speaks;                // what makes it true
  std::string says;             // a part of its text
  std::vector<Change> silent;   // each, after that, makes it false
  std::vector<Change> unknown;  // each, after that, takes a fact away
};

void files_on_cpu(Facts& f) {
  f.run.synthetic = false;
  f.run.shards = false;
  f.run.gpu_decodes = false;
}

void neighbours(Facts& f) { f.telemetry->cpu = CpuShares{0.5, 0.45, 0}; }

const std::map<std::string, RuleTest>& rule_tests() {
  static const RuleTest decode{
      [](Facts& f) {
        files_on_cpu(f);
        f.run.gpu_could = true;
      },
      "--decode gpu",
      {[](Facts& f) { f.run.gpu_decodes = true; }, [](Facts& f) { f.run.gpu_could = false; },
       [](Facts& f) { f.run.gpu = false; }, [](Facts& f) { f.run.synthetic = true; }},
      {[](Facts& f) { f.run.gpu_decodes.reset(); }, [](Facts& f) { f.run.gpu_could.reset(); }}};
  static const std::map<std::string, RuleTest> all = {
      {"more_workers",
       {[](Facts& f) {
          files_on_cpu(f);
          f.run.workers = 3;
        },
        "more --workers: 3 of 8 cores",
        {[](Facts& f) { f.run.workers = 8; }, [](Facts& f) { f.run.gpu = false; },
         [](Facts& f) { f.run.synthetic = true; }},
        {[](Facts& f) { f.run.workers.reset(); }, [](Facts& f) { f.run.cores.reset(); }}}},
      {"decode_gpu", decode},
      {"send_files", decode},
      {"convert_to_shards",
       {[](Facts& f) {
          files_on_cpu(f);
          f.run.reading = 0.43;
        },
        "data convert` to shards, which are read in one piece: reading files takes 43%",
        {[](Facts& f) { f.run.shards = true; }, [](Facts& f) { f.run.synthetic = true; },
         [](Facts& f) { f.run.reading = 0.19; }},
        {[](Facts& f) { f.run.shards.reset(); }, [](Facts& f) { f.run.reading.reset(); }}}},
      {"bench_data", {files_on_cpu, "bench data", {[](Facts& f) { f.run.synthetic = true; }}, {[](Facts& f) {
                        f.run.synthetic.reset();
                      }}}},
      {"larger_launches",
       {[](Facts&) {}, "--batch-size", {[](Facts& f) { f.run.gpu = false; }}, {[](Facts& f) {
          f.run.gpu.reset();
        }}}},
      {"exchange_less",
       {[](Facts& f) { f.run.ranks = 4; },
        "--accumulate",
        {[](Facts& f) { f.run.ranks = 1; }},
        {[](Facts& f) { f.run.ranks.reset(); }}}},
      {"fewer_histograms",
       {[](Facts& f) { f.run.histograms = true; },
        "--histograms-every 0",
        {[](Facts& f) { f.run.histograms = false; }},
        {[](Facts& f) { f.run.histograms.reset(); }}}},
      {"fewer_lines",
       {[](Facts& f) { f.run.log_every = 1; },
        "--log-every",
        {[](Facts& f) { f.run.log_every = 10; }},
        {[](Facts& f) { f.run.log_every.reset(); }}}},
      {"own_cores",
       {neighbours,
        "no one else",
        {[](Facts& f) {
           f.telemetry->cpu = CpuShares{0.9, 0.05, 0};
         },
         [](Facts& f) { f.run.ranks = 2; }},
        {[](Facts& f) { f.telemetry->cpu.reset(); }, [](Facts& f) { f.telemetry.reset(); },
         [](Facts& f) { f.run.ranks.reset(); }}}},
      {"narrower_type",
       {[](Facts& f) { f.run.narrower = true; },
        "narrower --dtype",
        {[](Facts& f) { f.op->activations = false; }, [](Facts& f) { f.run.narrower = false; }},
        {[](Facts& f) { f.run.narrower.reset(); }, [](Facts& f) { f.op.reset(); }}}},
      {"fuse",
       {[](Facts& f) { f.run.fused = false; },
        "leave out --no-fuse",
        {[](Facts& f) { f.run.fused = true; }, [](Facts& f) { f.op->memory_bound = false; }},
        {[](Facts& f) { f.run.fused.reset(); }}}},
      {"any_kernel",
       {[](Facts& f) { f.run.deterministic = true; },
        "leave out --deterministic",
        {[](Facts& f) { f.run.deterministic = false; }, [](Facts& f) { f.run.gpu = false; },
         [](Facts& f) { f.op->activations = false; }},
        {[](Facts& f) { f.run.deterministic.reset(); }}}},
      {"longer_kernels",
       {[](Facts& f) { f.op->kernel_seconds = 5e-6; },
        "a kernel takes 5 us",
        {[](Facts& f) { f.op->kernel_seconds = 50e-6; }, [](Facts& f) { f.op->activations = false; },
         [](Facts& f) { f.run.gpu = false; }},
        {[](Facts& f) { f.run.gpu.reset(); }}}},
      {"divide_the_batch",
       {[](Facts& f) { f.run.batch = 6; },
        "multiple of the 4 threads",
        {[](Facts& f) { f.run.batch = 8; }, [](Facts& f) { f.run.threads = 1; },
         [](Facts& f) { f.run.threads = 0; }},
        {[](Facts& f) { f.run.batch.reset(); }, [](Facts& f) { f.run.threads.reset(); }}}},
      {"quiet_machine",
       {neighbours,
        "on a quiet machine",
        {[](Facts& f) {
           f.telemetry->cpu = CpuShares{0.2, 0.45, 0};
         },
         [](Facts& f) { f.run.ranks = 2; }},
        {[](Facts& f) { f.telemetry->cpu.reset(); }}}},
      {"raise_power_limit",
       {[](Facts& f) {
          f.telemetry->sm_clock_mhz = 1500;
          f.telemetry->power_w = f.telemetry->power_limit_w = 500;
        },
        "can be set to 700 W",
        {[](Facts& f) { f.telemetry->max_power_limit_w = 500; },  // it is as high as it can be
         [](Facts& f) { f.telemetry->power_w = 300; }, [](Facts& f) { f.telemetry->sm_clock_mhz = 1980; }},
        {[](Facts& f) { f.telemetry->max_power_limit_w.reset(); },
         [](Facts& f) { f.telemetry->max_sm_clock_mhz.reset(); }}}},
      {"cool",
       {[](Facts& f) {
          f.telemetry->throttle = 32;
          f.telemetry->faulted = 0.3;
        },
        "cooling",
        {[](Facts& f) { f.telemetry->faulted = 0; }, [](Facts& f) { f.telemetry->throttle = 128; },
         [](Facts& f) { f.telemetry->throttle = 8; }},  // the hardware does not say why
        {[](Facts& f) { f.telemetry.reset(); }}}},
      {"power_supply",
       {[](Facts& f) {
          f.telemetry->throttle = 128;
          f.telemetry->faulted = 0.3;
        },
        "power supply",
        {[](Facts& f) { f.telemetry->faulted = 0; }, [](Facts& f) { f.telemetry->throttle = 64; },
         [](Facts& f) { f.telemetry->throttle = 8; },
         [](Facts& f) { f.telemetry->throttle = 32 | 128; }},  // heat is what it asked for
        {[](Facts& f) { f.telemetry.reset(); }}}},
  };
  return all;
}

TEST(Advice, EveryRuleSpeaksWhereItIsTrueAndIsSilentWhereItIsNot) {
  for (const Rule& rule : rules()) {
    const auto found = rule_tests().find(rule.name);
    ASSERT_NE(found, rule_tests().end()) << rule.name << " has no test";
    const RuleTest& test = found->second;
    ASSERT_FALSE(test.silent.empty() || test.unknown.empty()) << rule.name;
    Facts facts = content();
    test.speaks(facts);
    const auto said = rule.advise(facts);
    ASSERT_TRUE(said) << rule.name;
    EXPECT_NE(said->find(test.says), std::string::npos) << rule.name << ": " << *said;
    EXPECT_NE(advice(rule.cause, facts).find(*said), std::string::npos) << rule.name;
    for (const auto* changes : {&test.silent, &test.unknown}) {
      for (std::size_t i = 0; i < changes->size(); ++i) {
        Facts other = facts;
        (*changes)[i](other);
        EXPECT_FALSE(rule.advise(other))
            << rule.name << (changes == &test.silent ? " false " : " unknown ") << i;
      }
    }
  }
  EXPECT_EQ(rule_tests().size(), rules().size());
}

TEST(Advice, EveryCauseHasItsOwnRules) {
  std::map<Cause, std::vector<std::string>> filed;
  for (const Rule& rule : rules()) filed[rule.cause].emplace_back(rule.name);
  const std::map<Cause, std::vector<std::string>> expected = {
      {Cause::input, {"more_workers", "decode_gpu", "convert_to_shards", "bench_data"}},
      {Cause::launch, {"larger_launches"}},
      {Cause::communication, {"exchange_less"}},
      {Cause::host, {"fewer_histograms", "fewer_lines", "own_cores"}},
      {Cause::op, {"narrower_type", "fuse", "any_kernel", "longer_kernels"}},
      {Cause::copies, {"send_files"}},
      {Cause::threads, {"divide_the_batch"}},
      {Cause::neighbours, {"quiet_machine"}},
      {Cause::power, {"raise_power_limit"}},
      {Cause::heat, {"cool", "power_supply"}}};
  EXPECT_EQ(filed, expected);
}

TEST(Advice, NothingKnownIsNothingSaid) {
  for (const Rule& rule : rules()) EXPECT_FALSE(rule.advise({})) << rule.name;
}

TEST(Advice, WorkersDoNotDecodeWhatTheGpuDoes) {
  Facts facts = content();
  facts.run.synthetic = false;
  facts.run.workers = 3;
  EXPECT_NE(advice(Cause::input, facts).find("3 of 8 cores read;"), std::string::npos)
      << advice(Cause::input, facts);
  facts.run.gpu_decodes = false;
  EXPECT_NE(advice(Cause::input, facts).find("3 of 8 cores read and decode;"), std::string::npos)
      << advice(Cause::input, facts);
}

TEST(Advice, ANarrowerTypeHelpsByWhatBoundsTheOp) {
  Facts facts = content();
  facts.run.narrower = true;
  EXPECT_EQ(advice(Cause::op, facts), "a narrower --dtype, which moves fewer bytes");
  facts.op->memory_bound = false;
  EXPECT_EQ(advice(Cause::op, facts), "a narrower --dtype, whose arithmetic is faster");
}

// Two steps on a CPU with an op that is far from the ceilings, and threads that wait.
Summary on_cpu(const TelemetrySummary& telemetry, const RunFacts& run) {
  Summary summary;
  summary.steps = 2;
  summary.elapsed = summary.busy = 2;
  summary.threads = {0.9, 0.7};
  Part conv;
  conv.name = conv.kind = "conv";
  conv.seconds = 0.8;
  conv.count = 10;
  conv.least = 0.3;
  conv.activations = true;
  summary.kinds = {conv};
  summary.telemetry = telemetry;
  find_losses(summary, /*host_computes=*/true, run);
  return summary;
}

// Advice about what happens every N steps is only for those that were traced.
TEST(SessionOptions, KnowWhatHappensInTheTracedSteps) {
  const SessionOptions traced{.start = 21, .steps = 10};
  for (const int every : {1, 10, 30}) EXPECT_TRUE(traced.covers(every)) << every;  // after step 30
  for (const int every : {0, 20, 31, 100}) EXPECT_FALSE(traced.covers(every)) << every;
}

TEST(Losses, OpsAreNotBlamedForWhatNeighboursTook) {
  Facts facts = content();
  facts.run.gpu = false;
  const Summary quiet = on_cpu(*facts.telemetry, facts.run);
  ASSERT_EQ(quiet.losses.size(), 2U);
  EXPECT_EQ(quiet.losses[0].what, "conv takes 800.00 ms, 37% of what the arithmetic allows");
  EXPECT_DOUBLE_EQ(quiet.losses[0].seconds, 0.5);
  EXPECT_EQ(quiet.losses[1].what, "threads compute 80% of the time and wait for each other the rest");
  EXPECT_NEAR(quiet.losses[1].seconds, 0.2, 1e-12) << "of a step, not of both";
  neighbours(facts);
  const Summary busy = on_cpu(*facts.telemetry, facts.run);
  ASSERT_EQ(busy.losses.size(), 1U);
  EXPECT_EQ(
      busy.losses[0].what,
      "time of other processes, at most: they took 45% of the CPU time, so ops and threads cannot be judged");
  EXPECT_DOUBLE_EQ(busy.losses[0].seconds, 0.45);
  EXPECT_NE(busy.losses[0].advice.find("quiet"), std::string::npos);
  facts.telemetry->cpu = CpuShares{0.8, 0.05, 0.1};
  EXPECT_NEAR(on_cpu(*facts.telemetry, facts.run).losses.at(0).seconds, 0.15, 1e-12) << "steal counts";
}

// One thread on two of its eight processors' worth of work: what others take of the rest costs it nothing.
TEST(Losses, ToNeighboursAreOfTheProcessorsThatTheRunCouldUse) {
  Facts facts = content();
  facts.run.gpu = false;
  facts.run.threads = facts.run.workers = 1;
  facts.telemetry->cpu = CpuShares{0.15, 0.84, 0};
  // It wants a quarter of the CPU time; 0.84 - 0.75 of it was taken.
  EXPECT_NEAR(lost_to_neighbours(facts), 0.09 / 0.25, 1e-12);
  EXPECT_NEAR(on_cpu(*facts.telemetry, facts.run).losses.at(0).seconds, 0.36, 1e-12);
  facts.telemetry->cpu = CpuShares{0.25, 0.7, 0};
  EXPECT_EQ(lost_to_neighbours(facts), 0) << "there was room";
  EXPECT_NE(on_cpu(*facts.telemetry, facts.run).losses.at(0).what.find("conv takes"), std::string::npos);
  facts.run.workers.reset();
  EXPECT_NEAR(lost_to_neighbours(facts), 0.7, 1e-12) << "as far as known, it could use all";
}

// Four steps on a GPU of which nothing is lost.
Summary on_gpu() {
  Summary summary;
  summary.steps = 4;
  summary.elapsed = summary.busy = 2;
  summary.telemetry = *content().telemetry;
  return summary;
}

std::vector<Loss> losses_of(Summary summary, const RunFacts& run = content().run) {
  find_losses(summary, /*host_computes=*/false, run);
  return summary.losses;
}

TEST(Losses, AreSecondsOfAStep) {
  EXPECT_TRUE(losses_of(on_gpu()).empty());
  const std::pair<GapCause, std::string> gaps[] = {
      {GapCause::input, "the device waits for data"},
      {GapCause::launch, "the device waits for the next kernel to be launched"},
      {GapCause::communication, "the device waits for the exchange of gradients"},
      {GapCause::host, "the device waits while the host does other work"}};
  for (const auto& [cause, what] : gaps) {
    Summary summary = on_gpu();
    summary.gap_seconds[static_cast<std::size_t>(cause)] = 0.4;
    const std::vector<Loss> losses = losses_of(summary);
    ASSERT_EQ(losses.size(), 1U) << what;
    EXPECT_EQ(losses[0].what, what);
    EXPECT_DOUBLE_EQ(losses[0].seconds, 0.1) << what;
  }
  Summary exchange = on_gpu(), copies = on_gpu();
  exchange.exposed = 0.8;
  ASSERT_EQ(losses_of(exchange).size(), 1U);
  EXPECT_DOUBLE_EQ(losses_of(exchange)[0].seconds, 0.2);
  copies.copies_exposed = 1.2;
  ASSERT_EQ(losses_of(copies).size(), 1U);
  EXPECT_DOUBLE_EQ(losses_of(copies)[0].seconds, 0.3);
}

TEST(Losses, OnACpuAreNotOfLaunches) {
  Summary summary = on_gpu();
  summary.gap_seconds[static_cast<std::size_t>(GapCause::launch)] = 0.4;
  find_losses(summary, /*host_computes=*/true, content().run);
  ASSERT_EQ(summary.losses.size(), 1U);
  EXPECT_EQ(summary.losses[0].what, "nothing runs between one op and the next");
}

TEST(Losses, OfLessThanAThousandthOfTheStepAreNotTold) {
  Summary summary = on_gpu();
  summary.gap_seconds[1] = 0.0019;
  EXPECT_TRUE(losses_of(summary).empty());
  summary.gap_seconds[1] = 0.0021;
  EXPECT_EQ(losses_of(summary).size(), 1U);
}

TEST(Losses, TheThreeLargestAreTold) {
  Summary summary = on_gpu();
  summary.gap_seconds[0] = 0.1;
  summary.gap_seconds[1] = 0.3;
  summary.gap_seconds[3] = 0.2;
  summary.exposed = 0.4;
  const std::vector<Loss> losses = losses_of(summary);
  ASSERT_EQ(losses.size(), 3U);
  EXPECT_DOUBLE_EQ(losses[0].seconds, 0.1);
  EXPECT_DOUBLE_EQ(losses[1].seconds, 0.075);
  EXPECT_DOUBLE_EQ(losses[2].seconds, 0.05);
}

TEST(Losses, OfOpsAreOfThoseThatCouldBeFaster) {
  Summary summary = on_gpu();
  Part conv;
  conv.name = conv.kind = "conv";
  conv.seconds = 1e-3;
  conv.count = 100;
  conv.least = 0.4e-3;
  conv.activations = true;
  Part best = conv, sums = conv;
  best.least = best.seconds;  // it is as fast as the ceilings allow
  sums.kind = graph::name_of(graph::OpKind::all_reduce);
  summary.kinds = {best, sums};
  EXPECT_TRUE(losses_of(summary).empty());
  summary.kinds.push_back(conv);
  const std::vector<Loss> losses = losses_of(summary);
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_DOUBLE_EQ(losses[0].seconds, 0.6e-3);
  EXPECT_EQ(losses[0].advice, "a larger --batch-size: a kernel takes 10 us");
}

TEST(Losses, OfACpusThreadsAreNotAGpus) {
  Facts facts = content();
  neighbours(facts);
  Summary summary = on_gpu();
  summary.telemetry = *facts.telemetry;
  summary.threads = {0.5, 0.4};
  EXPECT_TRUE(losses_of(summary).empty()) << "the GPU computes: neither its host's threads nor neighbours";
  Summary alone = on_gpu();
  alone.threads = {0.5};
  find_losses(alone, /*host_computes=*/true, content().run);
  EXPECT_TRUE(alone.losses.empty()) << "one thread waits for no other";
}

TEST(Losses, OfTheClockAreItsPartBelowTheHighest) {
  Summary summary = on_gpu();
  summary.telemetry.sm_clock_mhz = 0.9 * 1980;
  summary.telemetry.throttle = 1 | 64;
  summary.telemetry.faulted = 0.25;
  const std::vector<Loss> losses = losses_of(summary);
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_EQ(losses[0].what, "the clock is held down in 25% of the samples (hw_thermal), at most");
  EXPECT_NEAR(losses[0].seconds, 0.05, 1e-9);
  EXPECT_EQ(losses[0].advice, "more cooling");
  summary.telemetry.faulted = 0.005;
  EXPECT_TRUE(losses_of(summary).empty());
}

TEST(Losses, WithoutAdviceALossStandsAlone) {
  Facts facts = content();
  const Summary summary = on_cpu(*facts.telemetry, facts.run);
  ASSERT_FALSE(summary.losses.empty());
  EXPECT_EQ(summary.losses[0].advice, "");
  EXPECT_EQ(summary_text(summary, 3).find("try"), std::string::npos);
}

TEST(Losses, ThePowerLimitIsNamedAsWhatBoundsTheSpeed) {
  Facts facts = content();
  facts.telemetry->power_w = 686;
  facts.telemetry->sm_clock_mhz = 1680;
  Summary summary;
  summary.steps = 4;
  summary.elapsed = summary.busy = 2;
  summary.telemetry = *facts.telemetry;
  find_losses(summary, false, facts.run);
  EXPECT_EQ(
      summary.bound,
      "the power limit sets the speed: 686 of 700 W on average over 1:00, the clock at 1680 of 1980 MHz");
  EXPECT_TRUE(summary.losses.empty()) << "the limit is as high as it can be: there is nothing to try";
  summary.telemetry.max_power_limit_w = 1000;
  find_losses(summary, false, facts.run);
  ASSERT_EQ(summary.losses.size(), 1U);
  EXPECT_NE(summary.losses[0].advice.find("1000 W"), std::string::npos);
  EXPECT_NEAR(summary.losses[0].seconds, 0.5 * (1 - 1680.0 / 1980), 1e-12) << "of a step";
  summary.telemetry.power_w = 400;
  summary.bound.clear();
  find_losses(summary, false, facts.run);
  EXPECT_EQ(summary.bound, "");
  EXPECT_TRUE(summary.losses.empty());
}

TEST(Losses, CopiesBesideKernelsCostNothing) {
  const HandMade made;  // its first copy comes before its step, nothing overlaps the second
  const Summary summary = summarize(made.timeline(), {made.runs()}, {1e12, 1e9}, {});
  EXPECT_NEAR(summary.copies_exposed, 0.5e-3, 1e-12);
  std::vector<backend::Activity> records = made.records();
  for (backend::Activity& record : records) {
    if (record.kind != backend::Activity::Kind::copy || record.correlation != 20) continue;
    record.begin -= 3000 * HandMade::kUs;  // while the first step's convolution runs
    record.end -= 3000 * HandMade::kUs;
  }
  const Timeline overlapped = make_timeline(records, made.timeline().steps, {}, false);
  EXPECT_EQ(copy_time(overlapped).exposed, 0);
  EXPECT_GT(copy_time(overlapped).total, 0);
}

using Kind = TracingWindows::Kind;

// The cost that windows find when a step takes `untraced` or `traced` seconds and the machine slows down.
TracingCost measured(std::int64_t end, double untraced, double traced, double drift) {
  TracingWindows windows(4, end);
  Kind under_way = Kind::none;
  double seconds = 0;
  for (std::int64_t step = 1; step <= end; ++step) {
    if (windows.turns(step)) {
      windows.add(under_way, seconds);
      under_way = windows.at(step);
      seconds = 0;
    }
    const double jitter = 1 + 1e-3 * static_cast<double>(step * 7 % 5);
    seconds +=
        (under_way == Kind::traced ? traced : untraced) * (1 + drift * static_cast<double>(step)) * jitter;
  }
  return windows.cost();
}

TEST(TracingWindows, FindWhatRecordingCostsOnAMachineThatSlowsDown) {
  for (const std::int64_t end : {21, 101, 1001}) {
    const TracingCost cost = measured(end, 0.010, 0.0105, 0.005);
    EXPECT_GE(cost.pairs, 6U);
    EXPECT_TRUE(cost.change.beyond_noise()) << end;
    EXPECT_NEAR(cost.change.change, 0.05, 0.01) << end;
    // Of a step, however long the windows are; the machine is slower in the middle than at first.
    const double slower = 1 + 0.005 * static_cast<double>(4 + end) / 2;
    EXPECT_NEAR(cost.untraced_step, 0.010 * slower, 0.1 * 0.010 * slower) << end;
    EXPECT_NEAR(cost.traced_step, 0.0105 * slower, 0.1 * 0.0105 * slower) << end;
  }
}

TEST(TracingWindows, ClaimNothingWhereRecordingCostsNothing) {
  for (const double drift : {-0.005, 0.0, 0.01, 0.03}) {
    const TracingCost cost = measured(41, 0.010, 0.010, drift);
    EXPECT_FALSE(cost.change.beyond_noise()) << drift;
    Summary summary;
    summary.tracing = cost;
    EXPECT_NE(summary_text(summary, 0).find("the cost of recording is within the noise"), std::string::npos);
  }
}

TEST(TracingWindows, AreNoneWithTooFewSteps) {
  EXPECT_EQ(measured(15, 1, 2, 0).pairs, 0U);
  EXPECT_EQ(measured(16, 1, 2, 0).pairs, 6U);
  EXPECT_FALSE(TracingWindows(4, 2).turns(4));
}

}  // namespace
}  // namespace redline::profile
