#include "report/variability.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "../base/temporary_folder.h"
#include "base/error.h"
#include "report/csv.h"
#include "report/summary.h"
#include "run_folder.h"

namespace redline::report {
namespace {

// Eight devices, two runs each: times 100 .. 107 ms, and one device at 130 ms, whose clock is low.
std::string study() {
  std::string text = "Job,GPU,Host,Rack,Iter Time,Power,SM Clock\n";
  for (int device = 0; device < 9; ++device) {
    for (int repeat = 0; repeat < 2; ++repeat) {
      const int time = device == 8 ? 130 : 100 + device;
      text += fmt::format("{}-{},gpu{},node{},r{},{},{},{}\n", device, repeat, device, device / 2, device / 4,
                          time + repeat, 300'000 - 1000 * device, 2000 - 10 * time);
    }
  }
  return text;
}

// What read_device_runs leaves out goes into `problems`.
std::vector<DeviceRun> read_table(const std::filesystem::path& path, const ColumnMap& map) {
  std::vector<std::string> problems;
  auto runs = read_device_runs(path, map, problems);
  EXPECT_TRUE(problems.empty()) << problems.front();
  return runs;
}

const char* const kMap =
    "run=Job,device=GPU,node=Host,cabinet=Rack,duration=Iter Time:ms,power=Power:mW,clock=SM Clock";

TEST(Variability, FollowsTheMethod) {
  const TemporaryFolder folder;
  write_text(folder / "theirs.csv", study());
  const Variability found = analyze(read_table(folder / "theirs.csv", parse_map(kMap)));
  ASSERT_EQ(found.runs.size(), 18u);
  EXPECT_NEAR(found.runs[0].median, 0.100, 1e-12);
  EXPECT_NEAR(found.runs[0].power_w, 300, 1e-9);
  // Devices' medians are 100.5 .. 107.5 and 130.5 ms, so the median over devices is 104.5 ms; their quartiles
  // are 102.5 and 106.5 ms.
  EXPECT_NEAR(found.runs[0].normalized, 100 / 104.5, 1e-12);
  EXPECT_NEAR(found.devices.box.q1, 102.5 / 104.5, 1e-12);
  EXPECT_NEAR(found.devices.box.variability(), 4 * 4.0 / 104.5, 1e-12);
  // Over runs, numpy's quartiles of the 18 times are 102.25 and 106.75 ms, and their median is 104.5 ms.
  EXPECT_NEAR(found.box.variability(), 4 * 4.5 / 104.5, 1e-12);
  EXPECT_EQ(found.devices.groups.front().name, "gpu8");
  EXPECT_TRUE(found.devices.groups.front().outlier);
  EXPECT_FALSE(found.devices.groups[1].outlier);
  EXPECT_EQ(found.devices.groups.front().outlier_runs, 2u);
  EXPECT_EQ(found.nodes.groups.front().name, "node4");
  EXPECT_EQ(found.cabinets.groups.size(), 3u);
  const auto clock = std::ranges::find(found.correlations, "clock_mhz", &Correlation::with);
  ASSERT_NE(clock, found.correlations.end());
  EXPECT_LT(clock->pearson, -0.99);
  EXPECT_EQ(clock->pairs, 18u);
}

TEST(Variability, ItsTablesReadBack) {
  const TemporaryFolder folder;
  write_text(folder / "theirs.csv", study());
  const Variability found = analyze(read_table(folder / "theirs.csv", parse_map(kMap)));
  write_text(folder / "all_data.csv", all_data_csv(found));
  const Variability again = analyze(read_table(folder / "all_data.csv", {}));
  EXPECT_EQ(all_data_csv(again), all_data_csv(found));
  const CsvTable devices = parse_csv(aggregated_data_csv(found), "aggregated_data.csv");
  EXPECT_EQ(devices.rows.size(), 9u);
  EXPECT_EQ(devices.rows[0][0], "gpu8");
  const auto json = nlohmann::json::parse(to_json(found));
  EXPECT_EQ(json["devices"]["groups"][0]["outlier"], true);
  EXPECT_NE(terminal_text(found).find("device        gpu8 24.88% slower than the median"), std::string::npos)
      << terminal_text(found);
}

TEST(Variability, ReadsRunFolders) {
  const TemporaryFolder folder;
  write_run(folder / "one", 20);
  write_text(folder / "one" / "config.toml",
             "[record]\nhostname = \"rack7-node3\"\ndevice_address = \"0000:1b:00.0\"\n");
  auto runs = device_runs(read_run(folder / "one"));
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_TRUE(assign_cabinets(runs, "^rack([0-9]+)-").empty());
  const DeviceRun& run = runs[0];
  EXPECT_EQ(run.device, "rack7-node3/0000:1b:00.0");
  EXPECT_EQ(run.cabinet, "7");
  EXPECT_NEAR(run.median, 0.515, 1e-9);
  EXPECT_TRUE(std::isnan(run.clock_mhz));
  EXPECT_GT(run.deviation, 0);
  EXPECT_FALSE(run.history);  // too short to look for a change
  EXPECT_THROW(assign_cabinets(runs, "(["), UsageError);
  EXPECT_EQ(assign_cabinets(runs, "^cabinet"), std::vector<std::string>{"rack7-node3"});
  EXPECT_EQ(runs[0].cabinet, "");
  write_run(folder / "short", 1);
  EXPECT_THROW(device_runs(read_run(folder / "short")), DataError);
}

TEST(Variability, ARunHasEachOfItsDevices) {
  const TemporaryFolder folder;
  write_run(folder / "one", 20);
  const auto write = [&](const char* name, int rank, int clock, int power, const char* device) {
    write_text(folder / "one" / "profile" / name,
               fmt::format("seconds,gpu_sm_clock_mhz,gpu_power_mw,rank,host,device\n0,{0},{1},{2},n{2},{3}\n"
                           "1,{0},{1},{2},n{2},{3}\n",
                           clock, power, rank, device));
  };
  write("telemetry.csv", 0, 1900, 500000, "0000:1b:00.0");
  write("telemetry-rank1.csv", 1, 1700, 400000, "0000:1c:00.0");
  const auto run = read_run(folder / "one");
  const auto runs = device_runs(run);
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0].device, "n0/0000:1b:00.0");
  EXPECT_EQ(runs[1].device, "n1/0000:1c:00.0");
  EXPECT_EQ(runs[1].node, "n1");
  EXPECT_DOUBLE_EQ(runs[1].clock_mhz, 1700);
  EXPECT_DOUBLE_EQ(runs[0].median, runs[1].median);
  EXPECT_EQ(runs[0].together, 2);
  const RunSummary summary = summarize(run);
  EXPECT_DOUBLE_EQ(summary.energy.value().power_w, 900);  // of all devices together
  EXPECT_DOUBLE_EQ(summary.energy.value().joules.value(), 900);
}

TEST(Variability, UnitsAreThoseOfTheColumn) {
  const TemporaryFolder folder;
  write_text(folder / "t.csv", "GPU;us;kHz;W;C\na;1500,5;1.98e6;0,7;inf\n");
  const auto read = [&](const char* map, std::vector<std::string>& problems) {
    return read_device_runs(folder / "t.csv", parse_map(map), problems);
  };
  std::vector<std::string> problems;
  const auto runs = read("device=GPU,duration=us:us,clock=kHz:kHz,power=W:kW,temperature=C", problems);
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_NEAR(runs[0].median, 1500.5e-6, 1e-12);
  EXPECT_NEAR(runs[0].clock_mhz, 1980, 1e-9);
  EXPECT_NEAR(runs[0].power_w, 700, 1e-9);
  EXPECT_TRUE(std::isnan(runs[0].temperature_c));
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_NE(problems[0].find("1 cell is not a number and counts as unknown: line 2 ('inf' in column 'C')"),
            std::string::npos)
      << problems[0];
  EXPECT_THROW(read("device=GPU,duration=us:W", problems), UsageError);
  EXPECT_THROW(read("device=GPU:ms,duration=us:us", problems), UsageError);
}

TEST(Variability, APageHasSomeOfManyRuns) {
  std::vector<DeviceRun> runs(10);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    runs[i].run = fmt::format("r{}", i);
    runs[i].device = runs[i].node = fmt::format("d{}", i % 5);
    runs[i].median = 0.1;
    runs[i].change_at = runs[i].change = NAN;
  }
  runs[4].change_at = 0.5;
  runs[4].change = 0.1;
  const Variability found = analyze(std::move(runs));
  const auto names = [&](std::size_t most) {
    const auto json = nlohmann::json::parse(to_json(found, most));
    EXPECT_EQ(json["run_count"], 10);
    std::string all;
    for (const auto& run : json["runs"]) all += run["run"].get<std::string>() + " ";
    return all;
  };
  EXPECT_EQ(names(10), "r0 r1 r2 r3 r4 r5 r6 r7 r8 r9 ");
  EXPECT_EQ(names(4), "r0 r3 r4 r6 r9 ");
}

TEST(Variability, RefusesATableOfIterations) {
  const TemporaryFolder folder;
  std::string text = "device,median_s\n";
  for (int i = 0; i <= 1'000'000; ++i) text += "a,1\n";
  write_text(folder / "t.csv", text);
  std::vector<std::string> problems;
  try {
    read_device_runs(folder / "t.csv", {}, problems);
    FAIL() << "it was read";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("1,000,001 rows are more than the 1,000,000 runs of a study"),
              std::string::npos)
        << error.what();
  }
}

// Nodes are numbered within cabinets, and devices within nodes.
TEST(Variability, KnowsANodeWithItsCabinet) {
  const TemporaryFolder folder;
  std::string text = "run,device,node,cabinet,median_s\n", names = "run,device,node,median_s\n";
  for (int cabinet = 0; cabinet < 3; ++cabinet)
    for (int node = 0; node < 5; ++node)
      for (int device = 0; device < 2; ++device) {
        text += fmt::format("r,{},n{},c{},0.1\n", device, node, cabinet);
        names += fmt::format("r,{},c{}-n{},0.1\n", device, cabinet, node);
      }
  write_text(folder / "t.csv", text);
  const Variability found = analyze(read_table(folder / "t.csv", {}));
  EXPECT_EQ(found.cabinets.groups.size(), 3U);
  EXPECT_EQ(found.nodes.groups.size(), 15U);
  EXPECT_EQ(found.devices.groups.size(), 30U);
  EXPECT_EQ(found.nodes.groups[0].name, "c0/n0");
  EXPECT_EQ(found.devices.groups[0].name, "c0/n0/0");
  EXPECT_EQ(found.runs[0].group, "c0/n0/0");
  // From the names of nodes in a table, as from those of hosts.
  write_text(folder / "names.csv", names);
  auto runs = read_table(folder / "names.csv", {});
  EXPECT_TRUE(assign_cabinets(runs, "^(c[0-9]+)-").empty());
  const Variability named = analyze(runs);
  EXPECT_EQ(named.cabinets.groups.size(), 3U);
  EXPECT_EQ(named.nodes.groups.size(), 15U);
  EXPECT_EQ(named.nodes.groups[0].name, "c0-n0");
}

TEST(Variability, SkipsRowsThatItCannotUse) {
  const TemporaryFolder folder;
  write_text(folder / "t.csv",
             "device,ms,W\na,100,300\nb,,300\nc,101,N/A\n,102,300\nd,oops,1\ne,-5,1\nf,103,much\ng,104,\n");
  std::vector<std::string> problems;
  const auto runs = read_device_runs(folder / "t.csv", parse_map("duration=ms:ms,power=W"), problems);
  ASSERT_EQ(runs.size(), 4U);
  EXPECT_EQ(runs[1].device, "c");
  EXPECT_TRUE(std::isnan(runs[1].power_w));
  EXPECT_TRUE(std::isnan(runs[2].power_w));
  EXPECT_TRUE(std::isnan(runs[3].power_w));
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_EQ(problems[0].substr(problems[0].find("t.csv")),
            "t.csv: 4 rows were skipped: line 3 (no time), line 5 (no device), line 6 (time 'oops'), ...");
  EXPECT_EQ(problems[1].substr(problems[1].find("t.csv")),
            "t.csv: 1 cell is not a number and counts as unknown: line 8 ('much' in column 'W')");
}

// A run folder of `count` steps, with telemetry, that is slower from step `slow_from` on.
void write_throttled(const std::filesystem::path& folder, const std::string& host, int count, int slow_from,
                     const std::string& reason) {
  std::string lines = kFirstLine, telemetry = "seconds,gpu_sm_clock_mhz,gpu_throttle,rank,host,device\n";
  for (int i = 1; i <= count; ++i) {
    const bool slow = i >= slow_from;
    lines += step_line(i, (slow ? 0.12 : 0.1) * (1 + 0.001 * (i * 7 % 11)));
    telemetry += fmt::format("{},{},{},0,{},0000:1b:00.0\n", 0.1 * i, slow ? 1500 : 1800,
                             slow ? reason : "none", host);
  }
  write_text(folder / "metrics.jsonl", lines);
  write_text(folder / "config.toml", "[record]\nhostname = \"" + host + "\"\n");
  write_text(folder / "profile" / "telemetry.csv", telemetry);
}

TEST(Variability, FindsWhatThrottledLate) {
  const TemporaryFolder folder;
  std::vector<DeviceRun> runs;
  for (int i = 0; i < 6; ++i) {
    const std::string name = fmt::format("n{}", i);
    // NVML's bits are understood where a table has them: 64 is hw_thermal.
    write_throttled(folder / name, name, 100, i == 2 ? 60 : 1000, "64");
    for (DeviceRun& run : device_runs(read_run(folder / name))) runs.push_back(std::move(run));
  }
  const Variability found = analyze(runs);
  const auto device = std::ranges::find(found.devices.groups, "n2/0000:1b:00.0", &Group::name);
  ASSERT_NE(device, found.devices.groups.end());
  EXPECT_EQ(device->kind, "throttled");
  EXPECT_EQ(device->changes, 1U);
  ASSERT_EQ(device->throttle.size(), 1U);
  EXPECT_EQ(device->throttle[0].reason, "hw_thermal");
  EXPECT_NEAR(device->throttle[0].share, 0.4, 0.02);
  EXPECT_NEAR(device->score, 1 / (0.6 + 0.4 * 1.2), 0.01);
  EXPECT_NE(device->why.find("20.0% slower after 59% of n2: the clock fell from 1800 to 1500 MHz, thermal "
                             "slowdown by the hardware"),
            std::string::npos)
      << device->why;
  EXPECT_EQ(std::ranges::count(found.devices.groups, "normal", &Group::kind), 5);
  EXPECT_NE(terminal_text(found).find("  change        n2/0000:1b:00.0 20.0% slower after 59% of n2: "),
            std::string::npos)
      << terminal_text(found);
  const auto json = nlohmann::json::parse(to_json(found));
  const auto& change = json["runs"][2]["change"];
  EXPECT_NEAR(change["by"].get<double>(), 0.2, 0.01);
  ASSERT_GE(change["over_time"].size(), 10U);
  EXPECT_NEAR(change["over_time"].back().get<double>(), 1.2, 0.02);
  EXPECT_FALSE(json["runs"][0].contains("change"));
  EXPECT_EQ(json["devices"]["groups"][0]["throttle"][0]["reason"], "thermal slowdown by the hardware");
  // The tables tell it too.
  write_text(folder / "all_data.csv", all_data_csv(found));
  const Variability again = analyze(read_table(folder / "all_data.csv", {}));
  EXPECT_EQ(all_data_csv(again), all_data_csv(found));
  EXPECT_EQ(scores_csv(again), scores_csv(found));
}

TEST(Variability, WritesScoresForSchedulers) {
  const TemporaryFolder folder;
  write_text(folder / "theirs.csv", study());
  const Variability found = analyze(read_table(folder / "theirs.csv", parse_map(kMap)));
  const CsvTable scores = parse_csv(scores_csv(found), "scores.csv");
  EXPECT_EQ(scores.header,
            (std::vector<std::string>{"device", "node", "cabinet", "runs", "score", "class", "why"}));
  ASSERT_EQ(scores.rows.size(), 9U);
  EXPECT_EQ(scores.rows[0], (std::vector<std::string>{"gpu8", "node4", "r2", "2", "0.8008", "slow",
                                                      "24.9% slower than the median"}));
  EXPECT_EQ(scores.rows[8][5], "normal");
  EXPECT_EQ(scores.rows[8][4], fmt::format("{:.4f}", 104.5 / 100.5));
}

TEST(Variability, HasStandardDeviations) {
  const TemporaryFolder folder;
  write_text(folder / "t.csv",
             "device,median_s,deviation_s\na,0.10,0.003\na,0.12,0.003\nb,0.09,0.004\nb,0.11,0.004\n");
  const Variability found = analyze(read_table(folder / "t.csv", {}));
  // Medians are 0.11 and 0.10, their median 0.105; two runs that are 0.02 apart have 0.02 / sqrt(2).
  EXPECT_NEAR(found.deviations.runs, 0.02 / std::sqrt(2.0) / 0.105, 1e-12);
  EXPECT_NEAR(found.deviations.devices, 0.01 / std::sqrt(2.0) / 0.105, 1e-12);
  const double a = std::pow(0.003 / 0.10, 2) + std::pow(0.003 / 0.12, 2);
  const double b = std::pow(0.004 / 0.09, 2) + std::pow(0.004 / 0.11, 2);
  EXPECT_NEAR(found.deviations.iterations, std::sqrt((a + b) / 4), 1e-12);
  EXPECT_EQ(found.devices.groups[0].kind, "unknown");  // two devices tell nothing
  EXPECT_FALSE(found.devices.tested);
}

TEST(Variability, ListsWhatWasSetDifferently) {
  const TemporaryFolder folder;
  write_run(folder / "one", 20);
  write_run(folder / "two", 20);
  std::string other = kFirstLine;
  other.replace(other.find("resnet18"), 8, "resnet50");
  write_text(folder / "two" / "metrics.jsonl", other + step_line(1) + step_line(2) + step_line(3));
  std::vector<DeviceRun> runs = device_runs(read_run(folder / "one"));
  runs.push_back(runs[0]);
  EXPECT_TRUE(unlike_settings(runs).empty());
  runs.push_back(device_runs(read_run(folder / "two"))[0]);
  const std::vector<Unlike> unlike = unlike_settings(runs);
  ASSERT_EQ(unlike.size(), 1U);
  EXPECT_EQ(text_of(unlike[0]), "model: resnet18 (2 runs), resnet50 (1 run)");
  std::vector<DeviceRun> devices = {runs[0], runs[0]};
  report::Run elsewhere = read_run(folder / "one");
  elsewhere.info.device = "NVIDIA H200";
  devices[1] = device_runs(elsewhere)[0];
  EXPECT_EQ(unlike_settings(devices).at(0).name, "device_kind");
  // A run that does not tell a setting is like all others.
  for (auto& [name, value] : runs[2].settings)
    if (name == "model") value.clear();
  EXPECT_TRUE(unlike_settings(runs).empty());
  runs[2] = device_runs(read_run(folder / "two"))[0];
  // Tables of ours carry it along.
  write_text(folder / "all_data.csv", all_data_csv(analyze(runs)));
  EXPECT_EQ(text_of(unlike_settings(read_table(folder / "all_data.csv", {})).at(0)), text_of(unlike[0]));
}

std::string refusal_of(const std::string& table, const std::string& map) {
  const TemporaryFolder folder;
  write_text(folder / "t.csv", table);
  try {
    std::vector<std::string> problems;
    analyze(read_device_runs(folder / "t.csv", map.empty() ? ColumnMap() : parse_map(map), problems));
    return "none";
  } catch (const Error& error) {
    const std::string text = error.what();
    return text.substr(text.find("t.csv") == std::string::npos ? 0 : text.find("t.csv"));
  }
}

TEST(Variability, SaysWhatIsWrongWithATable) {
  EXPECT_EQ(
      refusal_of("device,ms\na,1\n", ""),
      "t.csv: no column median_s; name the one with the time of an iteration: --map duration=COLUMN:ms");
  EXPECT_EQ(refusal_of("device,ms\na,x\n,1\n", "duration=ms:ms"),
            "t.csv: 2 rows, and none can be used: line 2 (time 'x'), line 3 (no device); each needs a "
            "device and a time that is a positive number");
  EXPECT_EQ(refusal_of("device,ms\na,1\n", "duration=sec"),
            "t.csv: no column 'sec', given by --map duration; columns are: device, ms");
  EXPECT_EQ(refusal_of("device,ms\na,1\n", "duration=ms:days"),
            "--map duration: unknown unit 'days'; units are s, ms, us, ns");
  EXPECT_EQ(refusal_of("device,ms\na,1\n", "speed=ms").substr(0, 40),
            "--map: unknown name 'speed'; names are d");
  EXPECT_EQ(refusal_of("device,median_s\n", ""), "there are no runs to compare");
}

}  // namespace
}  // namespace redline::report
