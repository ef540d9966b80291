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

const char* const kMap =
    "run=Job,device=GPU,node=Host,cabinet=Rack,duration=Iter Time:ms,power=Power:mW,clock=SM Clock";

TEST(Variability, FollowsTheMethod) {
  const TemporaryFolder folder;
  write_text(folder / "theirs.csv", study());
  const Variability found = analyze(read_device_runs(folder / "theirs.csv", parse_map(kMap)));
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
  const Variability found = analyze(read_device_runs(folder / "theirs.csv", parse_map(kMap)));
  write_text(folder / "all_data.csv", all_data_csv(found));
  const Variability again = analyze(read_device_runs(folder / "all_data.csv", {}));
  EXPECT_EQ(all_data_csv(again), all_data_csv(found));
  const CsvTable devices = parse_csv(aggregated_data_csv(found), "aggregated_data.csv");
  EXPECT_EQ(devices.rows.size(), 9u);
  EXPECT_EQ(devices.rows[0][0], "gpu8");
  const auto json = nlohmann::json::parse(to_json(found));
  EXPECT_EQ(json["devices"]["groups"][0]["outlier"], true);
  EXPECT_NE(terminal_text(found).find("gpu8 +24.88% of the median time"), std::string::npos)
      << terminal_text(found);
}

TEST(Variability, ReadsRunFolders) {
  const TemporaryFolder folder;
  write_run(folder / "one", 20);
  write_text(folder / "one" / "config.toml",
             "[record]\nhostname = \"rack7-node3\"\ndevice_address = \"0000:1b:00.0\"\n");
  const auto runs = device_runs(read_run(folder / "one"), "^rack([0-9]+)-");
  ASSERT_EQ(runs.size(), 1U);
  const DeviceRun& run = runs[0];
  EXPECT_EQ(run.device, "rack7-node3/0000:1b:00.0");
  EXPECT_EQ(run.cabinet, "7");
  EXPECT_NEAR(run.median, 0.515, 1e-9);
  EXPECT_TRUE(std::isnan(run.clock_mhz));
  EXPECT_THROW(device_runs(read_run(folder / "one"), "(["), UsageError);
  write_run(folder / "short", 1);
  EXPECT_THROW(device_runs(read_run(folder / "short"), ""), DataError);
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
  const auto runs = device_runs(run, "");
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0].device, "n0/0000:1b:00.0");
  EXPECT_EQ(runs[1].device, "n1/0000:1c:00.0");
  EXPECT_EQ(runs[1].node, "n1");
  EXPECT_DOUBLE_EQ(runs[1].clock_mhz, 1700);
  EXPECT_DOUBLE_EQ(runs[0].median, runs[1].median);
  const RunSummary summary = summarize(run);
  EXPECT_DOUBLE_EQ(summary.energy.value().power_w, 900);  // of all devices together
  EXPECT_DOUBLE_EQ(summary.energy.value().joules.value(), 900);
}

std::string refusal_of(const std::string& table, const std::string& map) {
  const TemporaryFolder folder;
  write_text(folder / "t.csv", table);
  try {
    analyze(read_device_runs(folder / "t.csv", map.empty() ? ColumnMap() : parse_map(map)));
    return "none";
  } catch (const Error& error) {
    const std::string text = error.what();
    return text.substr(text.find("t.csv") == std::string::npos ? 0 : text.find("t.csv"));
  }
}

TEST(Variability, SaysWhatIsWrongWithATable) {
  EXPECT_EQ(refusal_of("device,ms\na,1\n", ""),
            "t.csv: no column median_s; say which has the time of an iteration: --map duration=COLUMN:ms");
  EXPECT_EQ(refusal_of("device,ms\na,x\n", "duration=ms:ms"), "t.csv:2: 'x' in column 'ms' is no number");
  EXPECT_EQ(refusal_of("device,ms\na,-1\n", "duration=ms:ms"),
            "t.csv:2: the time of an iteration must be a positive number");
  EXPECT_EQ(refusal_of("device,ms\na,1\n", "duration=sec"),
            "t.csv: no column 'sec', which --map duration names; there are: device, ms");
  EXPECT_EQ(refusal_of("device,ms\na,1\n", "duration=ms:days"),
            "--map: unknown unit 'days'; there are s, ms, us, W, mW, MHz, GHz, C");
  EXPECT_EQ(refusal_of("device,ms\na,1\n", "speed=ms").substr(0, 40),
            "--map: unknown name 'speed'; there are d");
  EXPECT_EQ(refusal_of("device,median_s\n", ""), "there are no runs to compare");
}

}  // namespace
}  // namespace redline::report
