#include <zlib.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/temporary_folder.h"
#include "profile/files.h"
#include "profile/hand_made.h"
#include "profile/summary.h"

namespace redline::profile {
namespace {

using backend::Activity;

std::string unzipped(const std::filesystem::path& path) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  std::string text;
  char part[4096];
  for (int count = gzread(file.get(), part, sizeof part); count > 0;
       count = gzread(file.get(), part, sizeof part))
    text.append(part, static_cast<std::size_t>(count));
  return text;
}

TEST(Timeline, AnEventBelongsToTheStepThatLaunchedIt) {
  const HandMade made;
  const Timeline timeline = made.timeline();
  ASSERT_EQ(timeline.steps.size(), 2U);
  // Two kernels and a copy a step; what was launched before the window is left out.
  ASSERT_EQ(timeline.events.size(), 6U);
  EXPECT_EQ(timeline.events[0].step, 0);
  // The second step was launched while the first ran.
  EXPECT_EQ(timeline.events[5].step, 1);
  EXPECT_EQ(timeline.steps[1].device_begin, 5500 * HandMade::kUs);  // its first kernel; the copy came before
  EXPECT_EQ(timeline.steps[1].device_end, 9000 * HandMade::kUs);
  const auto seconds = timeline.iteration_seconds();
  EXPECT_DOUBLE_EQ(seconds[0], 3.5e-3);
  EXPECT_DOUBLE_EQ(seconds[1], 4e-3);
}

TEST(Timeline, EventsOfOneLaneDoNotOverlap) {
  const std::string name = "kernel";
  std::vector<Activity> records = {HandMade::event(Activity::Kind::kernel, name, 100, 200, 1),
                                   HandMade::event(Activity::Kind::kernel, name, 150, 300, 1),
                                   HandMade::event(Activity::Kind::kernel, name, 200, 250, 1),
                                   HandMade::event(Activity::Kind::call, name, 10, 20, 1)};
  const Timeline timeline = make_timeline(records, {{1, 0, 400, 0, 0}}, {}, false);
  ASSERT_EQ(timeline.events.size(), 3U);
  EXPECT_EQ(timeline.events[0].lane, 7);  // its stream
  EXPECT_NE(timeline.events[1].lane, 7);
  EXPECT_EQ(timeline.events[2].lane, 7);
  EXPECT_EQ(busy_time(timeline), 200);
}

TEST(Timeline, OpsOfManyStreamsShareLanes) {
  const HandMade made;
  std::vector<Activity> records = {HandMade::event(Activity::Kind::call, made.launch, 10, 20, 1),
                                   HandMade::event(Activity::Kind::copy, made.copy, 100, 110, 1)};
  for (std::uint32_t branch = 0; branch < 20; ++branch) {  // of a graph, each a stream, two at a time
    Activity kernel =
        HandMade::event(Activity::Kind::kernel, made.conv, 100 + 10 * branch, 120 + 10 * branch, 1);
    kernel.stream = 7 + branch;
    kernel.op = &made.ops()[0];
    records.push_back(kernel);
  }
  std::set<int> copies, ops;
  for (const DeviceEvent& event : make_timeline(records, {{1, 0, 400, 0, 0}}, {}, false).events)
    (event.activity.op == nullptr ? copies : ops).insert(event.lane);
  EXPECT_EQ(ops.size(), 2U);
  ASSERT_EQ(copies.size(), 1U);
  EXPECT_FALSE(ops.contains(*copies.begin()));
}

TEST(Timeline, CommunicationIsExposedWhereNothingIsComputedBesideIt) {
  const std::string kernel = "kernel", nccl = "ncclDevKernel_AllReduce", call = "cudaGraphLaunch";
  const std::vector<Activity> records = {HandMade::event(Activity::Kind::call, call, 0, 1, 1),
                                         HandMade::event(Activity::Kind::kernel, kernel, 100, 200, 1),
                                         HandMade::event(Activity::Kind::kernel, nccl, 150, 250, 1),
                                         HandMade::event(Activity::Kind::kernel, kernel, 220, 230, 1),
                                         HandMade::event(Activity::Kind::kernel, nccl, 300, 340, 1),
                                         HandMade::event(Activity::Kind::kernel, kernel, 330, 400, 1)};
  const ExposedTime time = communication_time(make_timeline(records, {{1, 0, 900, 0, 0}}, {}, false));
  EXPECT_EQ(time.total, 100 + 40);
  EXPECT_EQ(time.exposed, (50 - 10) + 30);
}

TEST(Timeline, GapsHaveCauses) {
  const std::string kernel = "kernel", nccl = "ncclDevKernel_AllReduce", call = "cudaGraphLaunch";
  const auto k = Activity::Kind::kernel, c = Activity::Kind::call;
  const std::vector<Activity> records = {
      HandMade::event(c, call, 0, 1, 1),
      HandMade::event(k, kernel, 100, 200, 1),
      HandMade::event(k, kernel, 210, 300, 1),  // launched with the one before: it waited its turn
      HandMade::event(c, call, 390, 395, 2),
      HandMade::event(k, kernel, 400, 500, 2),  // after data came
      HandMade::event(k, nccl, 520, 600, 2),    // around an exchange
      HandMade::event(c, call, 680, 685, 3),
      HandMade::event(k, kernel, 700, 800, 3)};  // the host was elsewhere
  // The host also waits for data while launched work runs, which costs nothing.
  const Timeline timeline = make_timeline(records, {{1, 0, 900, 0, 0}},
                                          {{HostWork::data, 150, 250}, {HostWork::data, 305, 390}}, false);
  const std::vector<Gap> gaps = find_gaps(timeline);
  ASSERT_EQ(gaps.size(), 4U);
  EXPECT_EQ(gaps[0].cause, GapCause::launch);
  EXPECT_EQ(gaps[1].cause, GapCause::input);
  EXPECT_EQ(gaps[1].end - gaps[1].begin, 100);
  EXPECT_EQ(gaps[2].cause, GapCause::communication);
  EXPECT_EQ(gaps[3].cause, GapCause::communication);  // the kernel before it was the exchange
  EXPECT_EQ(busy_time(timeline), 100 + 90 + 100 + 80 + 100);
}

TEST(Timeline, ALateLaunchIsTheHosts) {
  const std::string kernel = "kernel", call = "cudaGraphLaunch";
  const std::vector<Activity> records = {HandMade::event(Activity::Kind::call, call, 0, 1, 1),
                                         HandMade::event(Activity::Kind::kernel, kernel, 100, 200, 1),
                                         HandMade::event(Activity::Kind::call, call, 480, 485, 2),
                                         HandMade::event(Activity::Kind::kernel, kernel, 500, 600, 2)};
  const std::vector<StepSpan> steps = {{1, 0, 900, 0, 0}};
  EXPECT_EQ(find_gaps(make_timeline(records, steps, {}, false)).at(0).cause, GapCause::host);
  EXPECT_EQ(find_gaps(make_timeline(records, steps, {{HostWork::launch, 210, 490}}, false)).at(0).cause,
            GapCause::launch);
}

TEST(Timeline, AKernelOfNoOpGoesByItsPlainName) {
  const auto label = [](const std::string& name, Activity::Kind kind = Activity::Kind::kernel) {
    return label_of(HandMade::event(kind, name, 0, 1, 1));
  };
  EXPECT_EQ(label("redline::backend::cuda::(anonymous namespace)::clears_kernel(redline::ClearItem const*)"),
            "clears");
  EXPECT_EQ(label("void redline::(anonymous namespace)::crop_kernel<__half, 8>(redline::Crop)"), "crop");
  EXPECT_EQ(label("ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
            "ncclDevKernel_AllReduce_Sum_f16_RING_LL");
  EXPECT_EQ(label("sm90_xmma_fprop"), "sm90_xmma_fprop");
  EXPECT_EQ(label("_kernel"), "_kernel");
  EXPECT_EQ(label("Memcpy (HtoD)", Activity::Kind::copy), "Memcpy (HtoD)");
}

TEST(Summary, AddsUpByOpLayerAndKind) {
  const HandMade made;
  const Ceilings ceilings{1e12, 1e9};
  const Summary summary = summarize(made.timeline(), {made.runs()}, ceilings, {});
  EXPECT_EQ(summary.first_step, 5);
  EXPECT_EQ(summary.steps, 2);
  EXPECT_DOUBLE_EQ(summary.elapsed, 7.5e-3);
  EXPECT_NEAR(summary.utilisation(), 6.5 / 7.5, 1e-12);
  ASSERT_GE(summary.ops.size(), 3U);
  EXPECT_EQ(summary.ops[0].name, "conv layer1.conv with relu");
  EXPECT_NEAR(summary.ops[0].seconds, 2e-3, 1e-12);
  EXPECT_DOUBLE_EQ(summary.ops[0].count, 1);
  EXPECT_DOUBLE_EQ(summary.ops[0].flops, made.conv_flops());
  // What is between the convolution and the relu is not stored: the input, the weights and the output are.
  EXPECT_DOUBLE_EQ(summary.ops[0].bytes, 2 * (2 * 16 * 8 * 8 * 4) + 16 * 16 * 9 * 4);
  EXPECT_EQ(summary.kinds[0].name, "conv with relu");
  EXPECT_EQ(summary.kinds[0].kind, "conv");
  EXPECT_GT(summary.ops[0].least, 0);
  EXPECT_LT(summary.named, 1);  // the copy belongs to no op
  ASSERT_FALSE(summary.losses.empty());
  ASSERT_LE(summary.losses.size(), 3U);
  for (std::size_t i = 1; i < summary.losses.size(); ++i)
    EXPECT_GE(summary.losses[i - 1].seconds, summary.losses[i].seconds);
  const auto json = to_json(summary);
  EXPECT_NEAR(json.at("gap_seconds").at("launch").get<double>() +
                  json.at("gap_seconds").at("host").get<double>() +
                  json.at("gap_seconds").at("input").get<double>() +
                  json.at("gap_seconds").at("communication").get<double>() + summary.busy,
              summary.elapsed, 1e-12);
}

TEST(Summary, WhatIsDoneTogetherGoesByItsConvolution) {
  const HandMade made;
  const Summary summary = summarize(made.timeline(), {made.runs()}, {1e12, 1e9}, {});
  EXPECT_EQ(summary.ops[0].name, "conv layer1.conv with relu");
  EXPECT_DOUBLE_EQ(summary.ops[0].flops, made.conv_flops());
}

// Ceilings that were measured on a busy machine are lower than what ops reach.
TEST(Summary, ArithmeticCanDoAtLeastWhatAnOpReached) {
  const HandMade made;
  const double reached = made.conv_flops() / 2e-3;
  const Summary summary = summarize(made.timeline(), {made.runs()}, {reached / 3, 1e15}, {});
  EXPECT_NEAR(summary.ceilings.flops, reached, 1e-6 * reached);
  EXPECT_NEAR(summary.ops[0].of_ceiling(), 1, 1e-9);
  EXPECT_DOUBLE_EQ(summary.ops[0].flops, made.conv_flops()) << "nothing is counted twice";
  EXPECT_NEAR(summary.ops[0].seconds, 2e-3, 1e-12);
  EXPECT_DOUBLE_EQ(summarize(made.timeline(), {made.runs()}, {1e12, 1e9}, {}).ceilings.flops, 1e12);
}

TEST(Summary, WorkIsCountedAsOftenAsItIsDone) {
  const HandMade made;
  PlanRuns accumulating = made.runs();
  accumulating.batches = 8;  // four for each of the two steps
  const Summary summary = summarize(made.timeline(), {accumulating}, {1e12, 1e9}, {});
  EXPECT_DOUBLE_EQ(summary.ops[0].flops, 4 * made.conv_flops());
}

TEST(Files, TheTraceHasEveryStepAndEvent) {
  const HandMade made;
  const TemporaryFolder folder;
  const TraceWritten written =
      write_trace(made.timeline(), {}, {}, made.subject(), folder / "t.json.gz", 1 << 20);
  EXPECT_EQ(written.steps, 2);
  EXPECT_EQ(written.steps_left_out, 0);
  const std::string text = unzipped(folder / "t.json.gz");
  EXPECT_NE(text.find("\"rank\": 0"), std::string::npos);
  const auto trace = nlohmann::json::parse(text);
  std::multiset<std::string> categories;
  for (const auto& event : trace.at("traceEvents"))
    if (event.at("ph") == "X") categories.insert(event.at("cat").get<std::string>());
  EXPECT_EQ(categories.count("kernel"), 4U);
  EXPECT_EQ(categories.count("gpu_memcpy"), 2U);
  EXPECT_EQ(categories.count("gpu_user_annotation"), 4U);
  EXPECT_EQ(categories.count("cuda_runtime"), 4U);
  EXPECT_EQ(categories.count("user_annotation"), 2U + 2U);  // steps, and data
  EXPECT_EQ(categories.size(), written.events);
}

TEST(Files, OpsOfATraceHaveShapesAndFlops) {
  const HandMade made;
  const TemporaryFolder folder;
  write_trace(made.timeline(), op_arguments({made.runs()}), {}, made.subject(), folder / "t.json.gz",
              1 << 20);
  const auto trace = nlohmann::json::parse(unzipped(folder / "t.json.gz"));
  int found = 0;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X" || (event.at("cat") != "kernel" && event.at("cat") != "gpu_user_annotation"))
      continue;
    const auto& args = event.at("args");
    if (event.at("name") != made.conv && event.at("name") != "conv layer1.conv") continue;
    ++found;
    EXPECT_EQ(args.at("Input Dims").dump(), "[[2,16,8,8],[16,16,3,3]]");
    EXPECT_EQ(args.at("Output Dims").dump(), "[[2,16,8,8]]");
    EXPECT_EQ(args.at("op FLOPs"), made.conv_flops());
    EXPECT_GT(args.at("op bytes").get<double>(), 0);
  }
  EXPECT_EQ(found, 4);  // a kernel and an op in each of two steps
}

TEST(Files, ATraceHasTracksOfClockAndPower) {
  const HandMade made;
  std::vector<TelemetrySample> samples(3);
  const std::int64_t times[] = {500, 3500, 99000};  // before, within and after the steps, in microseconds
  for (std::size_t i = 0; i < samples.size(); ++i) {
    samples[i].time = std::chrono::steady_clock::time_point(std::chrono::microseconds(times[i]));
    samples[i].gpu.emplace().sm_clock_mhz = 1980;
    samples[i].gpu->power_mw = 412345;
  }
  const TemporaryFolder folder;
  write_trace(made.timeline(), {}, samples, made.subject(), folder / "t.json.gz", 1 << 20);
  std::map<std::string, nlohmann::json> counters;
  const auto trace = nlohmann::json::parse(unzipped(folder / "t.json.gz"));
  for (const auto& event : trace.at("traceEvents"))
    if (event.at("ph") == "C") {
      const bool first = counters.emplace(event.at("name"), event).second;
      EXPECT_TRUE(first) << "one sample is within";
    }
  ASSERT_EQ(counters.size(), 2U);
  EXPECT_EQ(counters["GPU clock (MHz)"].at("args").at("MHz"), 1980);
  EXPECT_NEAR(counters["GPU power (W)"].at("args").at("W").get<double>(), 412.345, 1e-9);
  EXPECT_EQ(counters["GPU power (W)"].at("ts"), 3500 - 1000);  // since the first event
}

TEST(Files, AKernelOfNoOpHasAPlainNameInTheTrace) {
  const std::string name = "void redline::clears_kernel(int)", call = "cudaGraphLaunch";
  const Timeline timeline = make_timeline({HandMade::event(Activity::Kind::call, call, 0, 1, 1),
                                           HandMade::event(Activity::Kind::kernel, name, 100, 200, 1)},
                                          {{1, 0, 900, 0, 0}}, {}, false);
  const TemporaryFolder folder;
  write_trace(timeline, {}, {}, HandMade::subject(), folder / "t.json.gz", 1 << 20);
  std::map<std::string, nlohmann::json> events;  // by category
  const auto trace = nlohmann::json::parse(unzipped(folder / "t.json.gz"));
  for (const auto& event : trace.at("traceEvents"))
    if (event.at("ph") == "X") events[event.at("cat").get<std::string>()] = event;
  EXPECT_EQ(events["kernel"].at("name"), name);
  EXPECT_EQ(events["kernel"].at("args").at("op"), "clears");
  EXPECT_EQ(events["gpu_user_annotation"].at("name"), "clears");
}

TEST(Files, ATraceEndsWithTheLastWholeStepUnderItsBound) {
  const HandMade made;
  const TemporaryFolder folder;
  const Timeline timeline = made.timeline();
  const std::uint64_t whole =
      write_trace(timeline, {}, {}, made.subject(), folder / "w.json.gz", 1 << 20).bytes;
  const TraceWritten written = write_trace(timeline, {}, {}, made.subject(), folder / "t.json.gz", whole - 1);
  EXPECT_EQ(written.steps, 1);
  EXPECT_EQ(written.steps_left_out, 1);
  EXPECT_LT(written.bytes, whole);
  const std::string text = unzipped(folder / "t.json.gz");
  EXPECT_EQ(text.size(), written.bytes);
  const auto trace = nlohmann::json::parse(text);
  std::size_t complete = 0;
  for (const auto& event : trace.at("traceEvents")) {
    complete += event.at("ph") == "X" ? 1 : 0;
    EXPECT_NE(event.at("name"), "ProfilerStep#6");
  }
  EXPECT_EQ(complete, written.events);
  // A step, the data it waited for, two calls, a copy, two kernels and their ops.
  EXPECT_EQ(complete, 1U + 1U + 2U + 1U + 2U + 2U);
  EXPECT_EQ(write_trace(timeline, {}, {}, made.subject(), folder / "n.json.gz", 10).steps, 0);
  EXPECT_NO_THROW(nlohmann::json::parse(unzipped(folder / "n.json.gz")));
}

TEST(Files, TheTableHasKernelsAndSamplesInOrder) {
  const HandMade made;
  TelemetrySample sample;
  sample.time = std::chrono::steady_clock::time_point(std::chrono::microseconds(3500));
  sample.gpu.emplace().sm_clock_mhz = 1980;
  const TemporaryFolder folder;
  EXPECT_EQ(write_kernel_csv(made.timeline(), {sample}, made.subject(), folder / "k.csv", 1 << 20), 2);
  const std::string csv = read_file(folder / "k.csv");
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < csv.size(); at = csv.find('\n', at) + 1)
    lines.push_back(csv.substr(at, csv.find('\n', at) - at));
  ASSERT_EQ(lines.size(), 2U + 6U + 1U);
  const auto commas = std::ranges::count(lines[0], ',');
  for (const std::string& line : lines) {
    EXPECT_EQ(std::ranges::count(line, ','), commas) << line;
  }
  EXPECT_TRUE(lines[0].starts_with("Start,Duration,Grid X,"));
  EXPECT_TRUE(lines[1].starts_with("s,ms,"));
  EXPECT_NE(csv.find("\"[sample]\",,,1980,,,,\n"), std::string::npos);
  EXPECT_NE(csv.find("Pinned,Device"), std::string::npos);
}

TEST(Files, TheTableEndsWithAWholeStepToo) {
  const HandMade made;
  const TemporaryFolder folder;
  EXPECT_EQ(write_kernel_csv(made.timeline(), {}, made.subject(), folder / "k.csv", 1000), 1);
  const std::string csv = read_file(folder / "k.csv");
  EXPECT_LE(csv.size(), 1000U);
  EXPECT_EQ(std::ranges::count(csv, '\n'), 2 + 3);
}

TEST(Files, IterationsAreListed) {
  const std::string text = iteration_text(HandMade().timeline(), HandMade().subject());
  EXPECT_NE(text.find("\nIteration Duration 5 0 : 0.003500000\nIteration Duration 6 0 : 0.004000000\n"),
            std::string::npos)
      << text;
  EXPECT_TRUE(text.ends_with("Training time: 0:00:00.007500\n")) << text;
}

TEST(Files, OccupancyIsBoundByWhatABlockTakes) {
  Activity kernel;
  kernel.grid = {10000, 1, 1};
  kernel.block = {256, 1, 1};
  kernel.registers = 32;
  EXPECT_DOUBLE_EQ(estimated_occupancy(kernel, 132), 100);
  kernel.registers = 128;  // 32,768 registers a block: two of them
  EXPECT_DOUBLE_EQ(estimated_occupancy(kernel, 132), 25);
  kernel.dynamic_shared = 200 * 1024;  // one
  EXPECT_DOUBLE_EQ(estimated_occupancy(kernel, 132), 12.5);
  EXPECT_DOUBLE_EQ(estimated_occupancy(Activity{}, 132), 0);
}

}  // namespace
}  // namespace redline::profile
