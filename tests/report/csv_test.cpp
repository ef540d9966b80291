#include "report/csv.h"

#include <cmath>

#include <gtest/gtest.h>

#include "base/error.h"

namespace redline::report {
namespace {

TEST(Csv, QuotedCellsHoldCommasQuotesAndLineEnds) {
  const CsvTable table = parse_csv(
      "\xEF\xBB\xBF"
      "a,b\r\n\"1,\"\"x\"\"\n2\",3\r\n\n4,\n",
      "t.csv");
  EXPECT_EQ(table.header, (std::vector<std::string>{"a", "b"}));
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(table.rows[0], (std::vector<std::string>{"1,\"x\"\n2", "3"}));
  EXPECT_EQ(table.rows[1], (std::vector<std::string>{"4", ""}));
  EXPECT_EQ(table.lines[1], 5u);
  EXPECT_EQ(table.column("b"), 1);
  EXPECT_EQ(table.column("c"), -1);
}

std::string refusal_of(const std::string& text) {
  try {
    parse_csv(text, "t.csv");
    return "none";
  } catch (const DataError& error) {
    return error.what();
  }
}

TEST(Csv, BadTablesAreNamedByLine) {
  EXPECT_EQ(refusal_of("a,b\n1,2\n3\n"), "t.csv:3: 1 cells, where the header has 2");
  EXPECT_EQ(refusal_of("a,b\n1,\"2\n"), "t.csv:2: a quote is never closed");
  EXPECT_EQ(refusal_of("a,b\n1,\"2\"x\n"), "t.csv:2: a comma or a line end must follow a closing quote");
  EXPECT_EQ(refusal_of(""), "t.csv: the file is empty");
}

TEST(Csv, CellsReadBackAndAreNoFormulas) {
  EXPECT_EQ(csv_cell("plain"), "plain");
  EXPECT_EQ(csv_cell("a,\"b\""), "\"a,\"\"b\"\"\"");
  EXPECT_EQ(csv_cell("=HYPERLINK(1)"), "'=HYPERLINK(1)");
  EXPECT_EQ(csv_cell("-1.5"), "-1.5");
  EXPECT_EQ(csv_cell(0.1), "0.1");
  EXPECT_EQ(csv_cell(NAN), "");
}

TEST(Csv, NumbersAreWholeCells) {
  EXPECT_EQ(number_of(" 1.5e3 "), 1500);
  EXPECT_TRUE(std::isnan(number_of("1.5x")));
  EXPECT_TRUE(std::isnan(number_of("")));
}

}  // namespace
}  // namespace redline::report
