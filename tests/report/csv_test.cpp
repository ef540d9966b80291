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

// As spreadsheets write it where the decimal sign is a comma.
TEST(Csv, SemicolonsAndTabsMaySeparateCells) {
  const CsvTable table =
      parse_csv("\xEF\xBB\xBF device ;ms\r\n\"a;b\";1,5\r\nc;2.5\r\nd;1.234,5\r\n", "t.csv");
  EXPECT_EQ(table.header, (std::vector<std::string>{"device", "ms"}));
  ASSERT_EQ(table.rows.size(), 3u);
  EXPECT_EQ(table.rows[0][0], "a;b");
  EXPECT_EQ(table.number(table.rows[0][1]), 1.5);
  EXPECT_EQ(table.number(table.rows[1][1]), 2.5);
  EXPECT_TRUE(std::isnan(table.number(table.rows[2][1])));
  EXPECT_EQ(parse_csv("a, b\tc\n", "t.csv").header, (std::vector<std::string>{"a", "b\tc"}));
  const CsvTable tabs = parse_csv("a\tb\n1,5\t\n", "t.csv");
  EXPECT_EQ(tabs.rows[0], (std::vector<std::string>{"1,5", ""}));
  const CsvTable commas = parse_csv("a,b;c\n\"1,5\",2\n", "t.csv");
  EXPECT_TRUE(std::isnan(commas.number(commas.rows[0][0]))) << "a comma is not a decimal sign here";
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
  EXPECT_EQ(refusal_of("a,b\n1,2\n3\n"), "t.csv:3: 1 cell, where the header has 2");
  EXPECT_EQ(refusal_of("a,b\n1,\"2\n"), "t.csv:2: a quote is never closed");
  EXPECT_EQ(refusal_of("a,b\n1,\"2\"x\n"), "t.csv:2: a comma or a line end must follow a closing quote");
  EXPECT_EQ(refusal_of(std::string("\xFF\xFE"
                                   "a\0,\0",
                                   6)),
            "t.csv: the file is UTF-16; save it as CSV in UTF-8");
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
