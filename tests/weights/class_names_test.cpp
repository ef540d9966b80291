#include "weights/class_names.h"

#include <gtest/gtest.h>

namespace redline::weights {
namespace {

using Names = std::vector<std::string>;

TEST(ClassNames, ComeBackAsTheyWere) {
  const Names names = {"daisy", "a \"rose\", or so", "Gänseblümchen", ""};
  EXPECT_EQ(parse_class_names(class_names_text(names), 4), names);
  EXPECT_EQ(parse_class_names(class_names_text(names), 1000), names) << "a network may have more classes";
  EXPECT_EQ(class_names_text({}), "");
  EXPECT_TRUE(parse_class_names("", 4).empty());
}

TEST(ClassNames, WhatIsNotAListOfNamesIsNone) {
  for (const char* text :
       {"{}", "3", "[1]", "[\"a\",\"a\"]", "[[\"a\"]]", "[\"a\"", "[{\"a\":1}]", "nonsense"})
    EXPECT_TRUE(parse_class_names(text, 9).empty()) << text;
  EXPECT_TRUE(parse_class_names("[\"a\",\"b\"]", 1).empty()) << "more than there are classes";
  EXPECT_TRUE(parse_class_names(std::string(1'000'000, '['), 9).empty());
}

TEST(ClassNames, TooManyForAHeaderAreLeftOut) {
  EXPECT_EQ(class_names_text(Names(100, std::string(100'000, 'x'))), "");
}

}  // namespace
}  // namespace redline::weights
