#include "profile/telemetry.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/csv_row.h"
#include "base/error.h"
#include "base/shared_library.h"
#include "base/temporary_folder.h"

namespace redline::profile {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCard = "0000:18:00.0";

void put(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text << "\n";
}

std::vector<std::string> lines_of(const fs::path& file) {
  std::vector<std::string> lines;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Processor time of this thread.
double thread_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

TelemetryOptions fast() {
  TelemetryOptions options;
  options.interval = std::chrono::milliseconds(10);
  options.pci_address = kCard;
  options.nvml = FAKE_NVML;
  return options;
}

TEST(Nvml, GivesWhatTheCardTellsAndLeavesOutTheRest) {
  const Nvml nvml(kCard, FAKE_NVML);
  EXPECT_EQ(nvml.name(), "Fake H200");
  EXPECT_EQ(nvml.driver(), "580.1");
  EXPECT_EQ(nvml.uuid(), "");
  const GpuSample sample = nvml.read();
  EXPECT_EQ(sample.sm_clock_mhz, 1980U);
  EXPECT_EQ(sample.memory_clock_mhz, 3201U);
  EXPECT_EQ(sample.power_mw, 412345U);
  EXPECT_EQ(sample.throttle, 68U);
  EXPECT_EQ(sample.use_pct, 97U);
  EXPECT_FALSE(sample.memory_used);
  EXPECT_FALSE(nvml.read_pcie().sent);
  const GpuState state = nvml.read_state();
  EXPECT_EQ(state.max_sm_clock_mhz, 2010U);
  EXPECT_EQ(state.max_power_limit_mw, 700000U);
  EXPECT_EQ(state.other_processes, 2U) << "of the three on the GPU, one is who asks";
}

TEST(Nvml, SaysWhyThereIsNone) {
  EXPECT_THROW(Nvml(kCard, "libnot-there.so"), UnavailableError);
  try {
    const Nvml nvml("0000:99:00.0", FAKE_NVML);
    FAIL();
  } catch (const UnavailableError& error) {
    EXPECT_NE(std::string(error.what()).find("0000:99:00.0 cannot be read: Not Found"), std::string::npos);
  }
}

TEST(Nvml, GivesAveragesBetweenTwoMoments) {
  Nvml nvml(kCard, FAKE_NVML);
  EXPECT_FALSE(nvml.end_averages());  // none were begun
  ASSERT_TRUE(nvml.begin_averages());
  const auto averages = nvml.end_averages();
  ASSERT_TRUE(averages);
  EXPECT_GT(averages->seconds, 0);
  EXPECT_EQ(averages->tensor_pct, 42.5);
  EXPECT_FALSE(averages->dram_pct);
  EXPECT_FALSE(averages->sm_pct) << "not a number";
  EXPECT_FALSE(nvml.end_averages());
}

TEST(Nvml, NamesThrottleReasons) {
  EXPECT_EQ(throttle_text(0), "none");
  EXPECT_EQ(throttle_text(4 | 64), "sw_power_cap|hw_thermal");
}

TEST(CpuSensors, ReadsTheKernelsFiles) {
  const TemporaryFolder root;
  put(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "3000000");
  put(root / "sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "2000000");
  put(root / "sys/class/hwmon/hwmon0/name", "nvme");
  put(root / "sys/class/hwmon/hwmon0/temp1_input", "90000");
  put(root / "sys/class/hwmon/hwmon1/name", "k10temp");
  put(root / "sys/class/hwmon/hwmon1/temp1_input", "61500");
  const fs::path package = root / "sys/class/powercap/intel-rapl:0";
  put(package / "name", "package-0");
  put(package / "energy_uj", "900");
  put(package / "max_energy_range_uj", "1000");
  const fs::path cores = root / "sys/class/powercap/intel-rapl:0:0";  // of which the package's is the sum
  put(cores / "name", "core");
  put(cores / "energy_uj", "100");
  CpuSensors sensors(root.path());
  EXPECT_EQ(sensors.read().energy_uj, 0U);
  put(package / "energy_uj", "50");  // it began again
  put(cores / "energy_uj", "140");
  const CpuSample sample = sensors.read();
  EXPECT_EQ(sample.energy_uj, 150U);
  EXPECT_EQ(sample.clock_mhz, 2500);
  EXPECT_EQ(sample.temperature_c, 61.5);
}

TEST(CpuSensors, AddsUpTheTimeOfTheProcessorsThatMayBeUsed) {
  const TemporaryFolder root;
  cpu_set_t set;
  ASSERT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
  int mine = 0, not_mine = 0;
  while (!CPU_ISSET(mine, &set)) ++mine;
  while (CPU_ISSET(not_mine, &set)) ++not_mine;
  const auto stat = [&](int user, int system, int idle, int stolen) {
    put(root / "proc/stat",
        fmt::format("cpu  9 9 9 9 9 9 9 9 0 0\ncpu{} {} 0 {} {} {} 0 0 {} 0 0\n"
                    "cpu{} {} 0 0 0 0 0 0 0 0 0\nintr 1",
                    mine, user, system, idle / 4, idle - idle / 4, stolen, not_mine, 500 * user));
  };
  stat(100, 50, 800, 10);
  CpuSensors sensors(root.path(), Counting::off);
  CpuSample before = sensors.read();
  stat(160, 60, 820,
       20);  // in hundredths of a second: 60 and 10 busy, 20 idle or waiting for a disk, 10 stolen
  CpuSample after = sensors.read();
  before.cpu_seconds = 5;
  after.cpu_seconds = 5.3;
  const auto shares = shares_between(before, after);
  ASSERT_TRUE(shares);
  const double unit = 100.0 / static_cast<double>(::sysconf(_SC_CLK_TCK));
  EXPECT_NEAR(shares->own, 0.3 / unit, 1e-9);
  EXPECT_NEAR(shares->others, 0.7 - 0.3 / unit, 1e-9);
  EXPECT_NEAR(shares->stolen, 0.1, 1e-9);
  EXPECT_NEAR(shares->idle(), 0.2, 1e-9);
  EXPECT_FALSE(shares_between(after, after)) << "no time lies between";
  after.cpu_seconds = 9;  // by the clock of the process, which runs ahead of the kernel's by a little
  EXPECT_NEAR(shares_between(before, after)->own, 0.7, 1e-9);
  EXPECT_EQ(shares_between(before, after)->others, 0);
}

TEST(CpuSensors, SharesOfARealMachineAddUpToOne) {
  CpuSensors sensors("/", Counting::off);
  const CpuSample before = sensors.read();
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  for (volatile int i = 0; std::chrono::steady_clock::now() < end;) i = i + 1;
  const auto shares = shares_between(before, sensors.read());
  if (!shares) GTEST_SKIP() << "this machine does not tell";
  EXPECT_GT(shares->own, 0);
  EXPECT_NEAR(shares->own + shares->others + shares->stolen + shares->idle(), 1, 1e-9);
}

TEST(CpuSensors, LeavesOutWhatIsNotThere) {
  const TemporaryFolder root;
  const CpuSample sample = CpuSensors(root.path()).read();
  EXPECT_FALSE(sample.clock_mhz);
  EXPECT_FALSE(sample.energy_uj);
  EXPECT_FALSE(sample.temperature_c);
  EXPECT_FALSE(sample.times);
}

// A sample of a GPU at `seconds`.
TelemetrySample gpu_sample(double seconds, unsigned celsius, std::uint64_t throttle, unsigned others) {
  TelemetrySample sample;
  sample.time += std::chrono::milliseconds(static_cast<int>(1000 * seconds));
  sample.gpu.emplace();
  sample.gpu->temperature_c = celsius;
  sample.gpu->throttle = throttle;
  sample.gpu_state.other_processes = others;
  return sample;
}

TEST(TelemetrySums, AreOfAllSamplesAndNotOfTheLast) {
  TelemetrySums sums;
  sums.add(gpu_sample(0, 60, kThrottlePower, 0));
  sums.add(gpu_sample(1, 80, 64, 3));
  sums.add(gpu_sample(2, 70, 1, 1));
  sums.add(gpu_sample(4, 65, kThrottlePower, 1));
  const TelemetrySummary summary = sums.summary();
  EXPECT_EQ(summary.samples, 4);
  EXPECT_EQ(summary.seconds, 4);
  EXPECT_EQ(summary.temperature_c, 80);
  EXPECT_EQ(summary.throttle, kThrottlePower | 64U | 1U);
  EXPECT_EQ(summary.power_capped, 0.5);
  EXPECT_EQ(summary.faulted, 0.25);
  EXPECT_EQ(summary.other_processes, 3U);
}

TEST(TelemetrySums, TheTemperatureIsTheGpusAlone) {
  TelemetrySums sums;
  TelemetrySample sample = gpu_sample(0, 60, 0, 0);
  sample.cpu.temperature_c = 95;
  sums.add(sample);
  EXPECT_EQ(sums.summary().temperature_c, 60);
  sample.gpu->temperature_c.reset();
  sums.add(sample);
  EXPECT_EQ(sums.summary().temperature_c, 60) << "one that does not tell it has none";
}

// The first sample has nothing before it that its use could be of.
TEST(TelemetrySums, UseOfTheCpuIsOfAllSamplesButTheFirst) {
  TelemetrySums sums;
  for (const double use : {0.0, 1.5, 0.5}) {
    TelemetrySample sample;
    sample.cpu_use = use;
    sums.add(sample);
  }
  EXPECT_EQ(sums.summary().cpu_use, 1);
}

TEST(TelemetrySums, SharesOfTheCpuAreFromTheFirstSampleToTheLast) {
  TelemetrySums sums;
  for (const double now : {0.0, 1.0, 10.0}) {
    TelemetrySample sample;
    sample.cpu.cpu_seconds = now / 2;
    sample.cpu.times = CpuTimes{0.75 * now, 0.05 * now, now};
    sample.cpu.energy_uj = static_cast<std::uint64_t>(3e6 * now);
    sums.add(sample);
  }
  const TelemetrySummary summary = sums.summary();
  ASSERT_TRUE(summary.cpu);
  EXPECT_NEAR(summary.cpu->own, 0.5, 1e-9);
  EXPECT_NEAR(summary.cpu->others, 0.25, 1e-9);
  EXPECT_NEAR(summary.cpu->stolen, 0.05, 1e-9);
  EXPECT_NEAR(*summary.joules, 30, 1e-9);
}

TEST(Telemetry, ARowHasTheUnitsOfItsColumns) {
  TelemetrySample sample;
  sample.cpu_power_w = 12.5;
  sample.cpu_use = 1.75;
  sample.cpu_shares = CpuShares{0.5, 0.25, 0.02};
  sample.pcie.received = 7;
  sample.pcie.sent = 9;
  auto cells = csv_row(telemetry_header(), telemetry_row(sample, {0, "host", "cpu"}));
  EXPECT_EQ(cells["cpu_power_mw"], "12500");
  EXPECT_EQ(cells["cpu_use"], "1.750");
  EXPECT_EQ(cells["cpu_steal_pct"], "2.00");
  EXPECT_EQ(cells["cpu_others_pct"], "25.00");
  EXPECT_EQ(cells["pcie_received_kb_s"], "7");
  EXPECT_EQ(cells["pcie_sent_kb_s"], "9");
  EXPECT_EQ(cells["device"], "cpu");
}

TEST(Telemetry, UseOfTheCpuIsProcessorsKeptBusy) {
  TelemetryOptions options = fast();
  options.interval = std::chrono::seconds(60);
  Telemetry telemetry(options);
  while (!telemetry.latest()) std::this_thread::yield();
  telemetry.restart();
  const double begin = thread_seconds();
  const auto started = std::chrono::steady_clock::now();
  while (thread_seconds() - begin < 0.2) {
  }
  const double most = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  const std::optional<double> use = telemetry.summary().cpu_use;
  // One thread computes all the time, as far as neighbours let it: 0.2 s of what passed.
  ASSERT_TRUE(use);
  EXPECT_GT(*use, 0.9 * 0.2 / most);
  EXPECT_LT(*use, 1.3);
}

// A machine whose files are written by hand.
class HandMadeMachine : public testing::Test {
 protected:
  HandMadeMachine() {
    put(root_ / "sys/class/powercap/intel-rapl:0/name", "package-0");
    put(root_ / "sys/class/powercap/intel-rapl:0/max_energy_range_uj", "1000000000");
    put_energy(0);
    put_stat(10, 10);
    options_.interval = std::chrono::seconds(60);  // no sample but the asked ones
    options_.keep = 10;
    options_.root = root_.path();
  }
  void put_energy(int joules) const {
    put(root_ / "sys/class/powercap/intel-rapl:0/energy_uj", std::to_string(1'000'000 * joules));
  }
  // Seconds that all processors together were busy and idle.
  void put_stat(int busy, int idle) const {
    const auto units = ::sysconf(_SC_CLK_TCK);
    put(root_ / "proc/stat",
        fmt::format("cpu 0\ncpu{} {} 0 0 {} 0 0 0 0 0 0", processor_, busy * units, idle * units));
  }
  const TemporaryFolder root_;
  const int processor_ = ::sched_getcpu();  // one that this process may use
  TelemetryOptions options_;
};

TEST_F(HandMadeMachine, HasThePowerOfTheTimeSinceTheSampleBefore) {
  Telemetry telemetry(options_);
  while (!telemetry.latest()) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  put_energy(6);
  telemetry.restart();
  const std::vector<TelemetrySample> samples = telemetry.samples();
  ASSERT_EQ(samples.size(), 2U);
  EXPECT_FALSE(samples[0].cpu_power_w);
  ASSERT_TRUE(samples[1].cpu_power_w);
  EXPECT_NEAR(*samples[1].cpu_power_w * (samples[1].seconds - samples[0].seconds), 6, 1e-3);
}

TEST_F(HandMadeMachine, HasTheSharesOfTheLastSecondAndNotOfAllBefore) {
  Telemetry telemetry(options_);
  while (!telemetry.latest()) std::this_thread::yield();
  const auto after_a_second = [&](int busy, int idle) {
    put_stat(busy, idle);
    std::this_thread::sleep_for(std::chrono::milliseconds(1050));
    telemetry.restart();
    return telemetry.latest()->cpu_shares.value();
  };
  EXPECT_NEAR(after_a_second(100, 20).idle(), 0.1, 1e-9);
  EXPECT_NEAR(after_a_second(100, 120).idle(), 1, 1e-9) << "nothing was busy since";
}

TEST(Telemetry, WritesARowForEverySample) {
  const TemporaryFolder folder;
  TelemetryOptions options = fast();
  options.file = folder / "telemetry.csv";
  options.source = {3, "node7", "0000:1b:00.0"};
  {
    Telemetry telemetry(options);
    for (int i = 0; i < 200 && lines_of(options.file).size() < 4; ++i)  // a busy machine samples late
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
  }
  const auto first = lines_of(options.file);
  ASSERT_GE(first.size(), 4U);  // a header, the first and the last sample, and some between
  EXPECT_EQ(first[0] + "\n", telemetry_header());
  const auto columns = std::ranges::count(first[0], ',');
  for (const std::string& line : first) EXPECT_EQ(std::ranges::count(line, ','), columns) << line;
  EXPECT_NE(first[1].find(",1980,3201,412345,700000,55,sw_power_cap|hw_thermal,97,60,,"), std::string::npos)
      << first[1];
  EXPECT_TRUE(first[0].ends_with(",rank,host,device,cpu_steal_pct,cpu_others_pct,gpu_other_processes"))
      << first[0];
  EXPECT_NE(first[1].find(",3,node7,0000:1b:00.0,"), std::string::npos) << first[1];
  EXPECT_TRUE(first[1].ends_with(",2")) << first[1];
  {
    Telemetry telemetry(options);  // a resumed run
  }
  const auto second = lines_of(options.file);
  EXPECT_GT(second.size(), first.size());
  EXPECT_EQ(std::ranges::count(second, first[0]), 1);
}

TEST(Telemetry, KeepsNoMoreSamplesThanAsked) {
  TelemetryOptions options = fast();
  options.keep = 2;
  Telemetry telemetry(options);
  for (int i = 0; i < 5; ++i) telemetry.restart();
  EXPECT_EQ(telemetry.samples().size(), 2U);
  EXPECT_EQ(live_text(telemetry.latest()), "GPU 97%  1980 MHz  412 W");
}

// Other processes and PCIe counters take a driver milliseconds to tell.
TEST(Telemetry, AsksForSlowValuesOnceASecond) {
  const SharedLibrary driver(FAKE_NVML);
  int (*asked)() = driver.find("fakeStateQuestions");
  ASSERT_NE(asked, nullptr);
  const int before = asked();
  const auto started = std::chrono::steady_clock::now();
  {
    Telemetry telemetry(fast());
    for (int i = 0; i < 20; ++i) telemetry.restart();
  }
  const auto passed = std::chrono::steady_clock::now() - started;
  EXPECT_GE(asked() - before, 1);
  EXPECT_LE(asked() - before, 1 + passed / std::chrono::seconds(1));
}

TEST(Telemetry, SumsUpWhatIsBetweenRestartAndSummary) {
  TelemetryOptions options = fast();
  options.interval = std::chrono::seconds(60);  // no sample but the asked ones
  Telemetry telemetry(options);
  while (!telemetry.latest()) std::this_thread::yield();
  telemetry.restart();
  const TelemetrySummary summary = telemetry.summary();
  EXPECT_EQ(summary.samples, 2);
  EXPECT_EQ(summary.sm_clock_mhz, 1980);
  EXPECT_EQ(summary.memory_clock_mhz, 3201);
  EXPECT_EQ(summary.use_pct, 97);
  EXPECT_DOUBLE_EQ(*summary.power_w, 412.345);
  EXPECT_EQ(summary.temperature_c, 55);
  EXPECT_EQ(summary.throttle, 68U);
  EXPECT_EQ(summary.max_sm_clock_mhz, 2010);
  EXPECT_EQ(summary.power_limit_w, 700);
  EXPECT_EQ(summary.max_power_limit_w, 700);
  EXPECT_EQ(summary.power_capped, 1);
  EXPECT_EQ(summary.faulted, 1);
  EXPECT_EQ(summary.other_processes, 2U);
  EXPECT_DOUBLE_EQ(*summary.joules, 1);  // the fake's: one a question
}

TEST(Telemetry, TheWholeRunGoesOnWhenAWindowBegins) {
  TelemetryOptions options = fast();
  options.interval = std::chrono::seconds(60);
  Telemetry telemetry(options);
  while (!telemetry.latest()) std::this_thread::yield();
  telemetry.restart();
  EXPECT_EQ(telemetry.summary().samples, 2);
  const TelemetrySummary whole = telemetry.whole();
  EXPECT_EQ(whole.samples, 4);
  EXPECT_DOUBLE_EQ(*whole.joules, 3);
}

TEST(Telemetry, GoesOnWithoutACard) {
  TelemetryOptions options = fast();
  options.nvml = "libnot-there.so";
  Telemetry telemetry(options);
  EXPECT_EQ(telemetry.gpu(), nullptr);
  EXPECT_FALSE(telemetry.summary().sm_clock_mhz);
}

TEST(Telemetry, ReadsIntervals) {
  EXPECT_EQ(parse_sampling("", "--telemetry").count(), 0);
  EXPECT_EQ(parse_sampling("off", "--telemetry").count(), 0);
  EXPECT_EQ(parse_sampling("50ms", "--telemetry").count(), 50);
  EXPECT_EQ(parse_sampling("0.5s", "--telemetry").count(), 500);
  for (const char* bad : {"50", "1ms", "-1s", "2m", "flowers", "nans", "1e9s"})
    EXPECT_THROW(parse_sampling(bad, "--telemetry"), UsageError) << bad;
}

}  // namespace
}  // namespace redline::profile
