// Thinning, summaries beside each other, the terminal and the tables.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "../base/temporary_folder.h"
#include "base/atomic_file.h"
#include "report/csv.h"
#include "report/export.h"
#include "report/summary.h"
#include "report/terminal.h"
#include "report/thin.h"
#include "run_folder.h"

namespace redline::report {
namespace {

TEST(Thin, NoSpikeIsLost) {
  std::vector<double> x(10'000), y(10'000, 1.0);
  std::iota(x.begin(), x.end(), 0.0);
  y[4321] = 99;
  y[4322] = -99;
  y[7000] = NAN;
  const Series thinned = thin(x, y, 200);
  EXPECT_LE(thinned.x.size(), 310u);
  EXPECT_TRUE(std::ranges::is_sorted(thinned.x));
  EXPECT_EQ(thinned.x.front(), 0);
  EXPECT_EQ(thinned.x.back(), 9999);
  EXPECT_EQ(*std::ranges::max_element(thinned.y), 99);
  EXPECT_EQ(*std::ranges::min_element(thinned.y), -99);
  EXPECT_EQ(std::ranges::count_if(thinned.y, [](double value) { return std::isnan(value); }), 1);
}

TEST(Thin, FewPointsStayAsTheyAre) {
  const std::vector<double> x = {1, 2, 3}, y = {5, INFINITY, 7};
  const Series thinned = thin(x, y, 10);
  EXPECT_EQ(thinned.x, x);
  EXPECT_TRUE(std::isnan(thinned.y[1]));
  EXPECT_EQ(thin({}, {}, 10).x.size(), 0u);
}

TEST(Thin, AveragesAndBins) {
  const std::vector<double> x = {0, 1, 2, 3}, y = {1, 3, NAN, 7};
  const Series mean = average(x, y, 2);
  EXPECT_EQ(mean.x, (std::vector<double>{0.5, 2.5}));
  EXPECT_EQ(mean.y, (std::vector<double>{2, 7}));
  const Bins bins = count_in_bins(std::vector<double>{0, 1, 1.5, 2, 9}, 0, 2, 2);
  EXPECT_EQ(bins.counts, (std::vector<std::size_t>{1, 3}));
  EXPECT_EQ(bins.above, 1u);
}

class TwoRuns : public ::testing::Test {
 protected:
  TwoRuns() {
    write_run(folder_.path() / "slow", 60, 0.50);
    write_run(folder_.path() / "fast", 60, 0.45);
    write_text(folder_.path() / "fast" / "config.toml", kConfig + "note = \"faster\"\n");
    for (const char* name : {"slow", "fast"}) runs_.push_back(read_run(folder_.path() / name));
    for (const report::Run& run : runs_) pointers_.push_back(&run);
  }
  const TemporaryFolder folder_;
  std::vector<report::Run> runs_;
  std::vector<const report::Run*> pointers_;
};

TEST_F(TwoRuns, AreComparedBeyondNoise) {
  const auto rows = compare(pointers_, {summarize(runs_[0]), summarize(runs_[1])});
  ASSERT_GE(rows.size(), 4u);
  EXPECT_EQ(rows[0].name, "images per second");
  ASSERT_TRUE(rows[0].changes[1]);
  EXPECT_NEAR(rows[0].changes[1]->change, 0.5 / 0.45 - 1, 1e-9);
  EXPECT_TRUE(rows[0].changes[1]->beyond_noise());
  EXPECT_NEAR(rows[1].changes[1]->change, 0.45 / 0.5 - 1, 1e-9);
  const auto accuracy = std::ranges::find(rows, "best top-1", &Comparison::name);
  ASSERT_NE(accuracy, rows.end());
  EXPECT_FALSE(accuracy->changes[1]->beyond_noise()) << "600 of 1000 in both";
  EXPECT_NEAR(accuracy->changes[1]->interval.high, 1.96 * std::sqrt(2 * 0.24 / 1000) / 0.6, 1e-4);
}

TEST_F(TwoRuns, OfSeveralRanksAreComparedByRank) {
  runs_[1].info.ranks = 2;
  const auto rows = compare(pointers_, {summarize(runs_[0]), summarize(runs_[1])});
  const auto each = std::ranges::find(rows, "images per second a rank", &Comparison::name);
  ASSERT_NE(each, rows.end());
  EXPECT_NEAR(*each->values[1], *rows[0].values[1] / 2, 1e-9);
}

TEST_F(TwoRuns, DifferInWhatWasSet) {
  const auto rows = differences(pointers_);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].name, "note");
  EXPECT_EQ(rows[0].values, (std::vector<std::string>{"", "faster"}));
}

TEST_F(TwoRuns, AreTextForATerminal) {
  runs_[0].notices.push_back({3, "x", "moves the cursor\x1b[2J"});
  const std::string text = terminal_text(pointers_);
  EXPECT_NE(text.find("slow: finished after step 60 of 20"), std::string::npos) << text;
  EXPECT_NE(text.find("fast against slow:"), std::string::npos);
  EXPECT_NE(text.find("beyond noise"), std::string::npos);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST_F(TwoRuns, AreTablesOfEverything) {
  const auto names = write_csv(pointers_, folder_.path() / "out" / "tables");
  EXPECT_EQ(names, (std::vector<std::string>{"summary.csv", "steps.csv", "evaluations.csv"}));
  const CsvTable steps = read_csv(folder_.path() / "out" / "tables" / "steps.csv");
  EXPECT_EQ(steps.rows.size(), 120u);
  EXPECT_EQ(steps.header.front(), "run");
  EXPECT_EQ(number_of(steps.rows[61][static_cast<std::size_t>(steps.column("step"))]), 2);
  EXPECT_EQ(steps.rows[61][0], "fast");
  EXPECT_EQ(read_csv(folder_.path() / "out" / "tables" / "summary.csv").rows.size(), 2u);
}

TEST(Sparkline, HasEightHeights) {
  EXPECT_EQ(sparkline({0, 1, 2, 3, 4, 5, 6, 7}, 8), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(sparkline({5, 5}, 8), "▁▁");
  EXPECT_EQ(sparkline({NAN}, 8), "");
}

}  // namespace
}  // namespace redline::report
