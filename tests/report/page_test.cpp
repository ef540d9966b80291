#include "report/page.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "report/document.h"

namespace redline::report {
namespace {

using Json = nlohmann::json;

const std::string kHostile = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>\"'&";

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
