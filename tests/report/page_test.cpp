#include "report/page.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "../base/temporary_folder.h"
#include "base/error.h"
#include "report/document.h"
#include "run_folder.h"

namespace redline::report {
namespace {

using Json = nlohmann::json;

const std::string kHostile = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>\"'&";

TEST(Document, HoldsTheRunAndItsNumbers) {
  const TemporaryFolder folder;
  write_run(folder.path() / "first", 20);
  const report::Run run = read_run(folder.path() / "first");
  const Json page = Json::parse(document({&run}, Detail::page));
  EXPECT_EQ(page["schema"], "redline.report");
  EXPECT_EQ(page["runs"][0]["name"], "first");
  EXPECT_EQ(page["runs"][0]["series"]["loss"]["y"].size(), 20u);
  EXPECT_EQ(page["runs"][0]["step_time"]["count"], 19);
  EXPECT_EQ(page["runs"][0]["summary"]["best_evaluation"]["top1"], 0.6);
  EXPECT_EQ(page["comparison"].size(), 0u);
  const Json full = Json::parse(document({&run}, Detail::full));
  EXPECT_EQ(full["runs"][0]["series"]["seconds"].size(), 20u);
  EXPECT_EQ(full["runs"][0]["series"]["loss"][2], 1.0);
}

TEST(Document, LongRunsStaySmallAndBytesOfAnyKindAreText) {
  const TemporaryFolder folder;
  std::string lines = kFirstLine;
  for (int i = 1; i <= 10'000; ++i) lines += step_line(i, 0.5 + 1e-4 * (i % 97), 1.0 / i);
  write_text(folder.path() / "metrics.jsonl", lines);
  report::Run run = read_run(folder.path());
  run.facts.emplace_back("bytes", "\xff\xfe not UTF-8");
  const std::string text = document({&run, &run, &run}, Detail::page);
  EXPECT_LT(text.size(), 700'000u);
  EXPECT_EQ(Json::parse(text)["runs"].size(), 3u);
}

TEST(Document, TellsWhereTheTimeWentAndLeavesWarmUpOutOfSeries) {
  const TemporaryFolder folder;
  write_run(folder.path() / "first", 20);
  const report::Run run = read_run(folder.path() / "first");
  const Json json = Json::parse(document({&run}, Detail::page))["runs"][0];
  ASSERT_EQ(json["warm_up"].size(), 1u);
  EXPECT_EQ(json["warm_up"][0]["step"], 1);
  EXPECT_EQ(json["series"]["loss"]["y"].size(), 20u);
  for (const char* name : {"seconds", "images_per_second", "data_wait"}) {
    EXPECT_TRUE(json["series"][name]["y"][0].is_null()) << name;
    EXPECT_TRUE(json["series"][name]["y"][1].is_number()) << name;
  }
  EXPECT_EQ(json["series"]["split"]["x"].size(), 19u);
  EXPECT_EQ(json["series"]["elapsed"]["y"].size(), 20u);
  double sum = 0;
  for (const auto& [name, seconds] : json["time"].items()) sum += seconds.get<double>();
  EXPECT_GT(json["time"]["step"], 0.5 * sum);
  EXPECT_GT(json["time"]["data"], 0);
}

TEST(Document, LongProfilesAreCutForAPage) {
  report::Run run;
  Json profile = {{"steps", 3}, {"kernels", Json::array()}};
  for (int i = 0; i < 2000; ++i)
    profile["kernels"].push_back({{"name", std::string(5000, 'k')}, {"seconds", 1.0 / 3}});
  run.profile = Profile{"profile/summary.json", profile.dump()};
  const std::string page = document({&run}, Detail::page);
  EXPECT_LT(page.size(), 400'000u);
  EXPECT_EQ(Json::parse(page)["runs"][0]["profile"]["steps"], 3);
  EXPECT_EQ(Json::parse(document({&run}, Detail::full))["runs"][0]["profile"], profile);
}

TEST(Page, HostileTextIsOnlyEverData) {
  report::Run run;
  run.name = kHostile;
  run.info.model = kHostile;
  run.facts.emplace_back(kHostile, kHostile);
  run.notices.push_back({1, kHostile, kHostile});
  const std::string text = page(document({&run}, Detail::page), kHostile);
  EXPECT_EQ(text.find("<script>alert"), std::string::npos);
  EXPECT_EQ(text.find("<img"), std::string::npos);
  EXPECT_EQ(text.find("<!--"), std::string::npos);
  // The data, Chart.js and the page's own script: three ends, each where a script of ours ends.
  std::size_t ends = 0;
  for (std::size_t at = text.find("</script"); at != std::string::npos; at = text.find("</script", at + 1))
    ++ends;
  EXPECT_EQ(ends, 3u);
  const std::size_t begin = text.find("id=\"document\">") + 14;
  const Json data = Json::parse(text.substr(begin, text.find("</script>", begin) - begin));
  EXPECT_EQ(data["runs"][0]["name"], kHostile);
}

TEST(Page, RunsOnlyItsOwnScripts) {
  const std::string one = page("{}", "x"), other = page("{}", "x");
  EXPECT_NE(one, other) << "each page has a secret of its own";
  EXPECT_NE(one.find("default-src 'none'"), std::string::npos);
  EXPECT_EQ(one.find("connect-src"), std::string::npos);
  EXPECT_NE(page("{}", "x", PageKind::live).find("connect-src 'self'"), std::string::npos);
  EXPECT_THROW(page("alert(1)", "x"), InternalError);
}

}  // namespace
}  // namespace redline::report
