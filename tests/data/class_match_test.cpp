#include "data/sources/class_match.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/sources/hold_out.h"

namespace redline::data {
namespace {

using Names = std::vector<std::string>;
using Labels = std::vector<std::int32_t>;

std::string refusal(const Names& names, const Names& classes) {
  try {
    match_classes(names, classes, "flowers");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(MatchClasses, NamesDecideAndNotTheOrder) {
  EXPECT_EQ(match_classes({"daisy", "rose", "tulip"}, {"daisy", "rose", "tulip"}, ""), (Labels{0, 1, 2}));
  EXPECT_EQ(match_classes({"daisy", "rose", "tulip"}, {"tulip", "daisy", "rose"}, ""), (Labels{2, 0, 1}));
  EXPECT_EQ(match_classes({"daisy", "rose", "tulip"}, {"tulip"}, ""), (Labels{2})) << "some of them";
}

TEST(MatchClasses, WhatTheNetworkDoesNotKnowIsRefused) {
  EXPECT_EQ(refusal({"daisy", "rose"}, {"daisy", "roses"}),
            "flowers has a class that the network was not trained on: 'roses'; missing there: 'rose'");
  EXPECT_NE(refusal({"daisy", "rose"}, {"daisy", "fern", "rose"}).find("'fern'"), std::string::npos);
  const std::string many = refusal({"x"}, {"a", "b", "c", "d", "e", "f", "g"});
  EXPECT_NE(many.find("'e' and 2 more"), std::string::npos) << many;
}

TEST(MatchClasses, NumbersThatASourceMadeUpAreNotNames) {
  EXPECT_EQ(match_classes({"daisy", "rose"}, {"0", "1"}, ""), (Labels{0, 1}));
  EXPECT_EQ(match_classes({"daisy", "rose"}, {"1", "2"}, ""), (Labels{0, 1}));
  EXPECT_EQ(match_classes({}, {"b", "a"}, ""), (Labels{0, 1}));
  EXPECT_TRUE(lasting_names({"0", "1", "2"}).empty());
  EXPECT_EQ(lasting_names({"0", "1", "10", "2"}), (Names{"0", "1", "10", "2"})) << "folders, by name";
}

TEST(MatchClasses, NamesStayWhatTheyAreInJson) {
  EXPECT_EQ(lasting_names({"caf\xe9", "b"}), (Names{"caf\xef\xbf\xbd", "b"}));
  EXPECT_TRUE(lasting_names({"\xe9", "\xe8"}).empty()) << "they would become one";
  EXPECT_EQ(match_classes({"caf\xef\xbf\xbd", "b"}, {"b", "caf\xe9"}, ""), (Labels{1, 0}));
}

// Names of samples only: a hundred of class a, ten of b, one of c.
class Listed final : public RecordSource {
 public:
  std::int64_t count() const override { return 111; }
  std::int32_t label(std::int64_t index) const override { return index < 100 ? 0 : index < 110 ? 1 : 2; }
  std::string name(std::int64_t index) const override { return std::to_string(index); }
  const std::vector<std::string>& classes() const override { return classes_; }
  const char* kind() const override { return "list"; }
  std::span<const std::uint8_t> read(std::int64_t, FileBytes&) const override { return {}; }

 private:
  std::vector<std::string> classes_{"a", "b", "c"};
};

std::vector<std::string> all_names(const RecordSource& source) {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < source.count(); ++i) names.push_back(source.name(i));
  return names;
}

TEST(HoldOut, TakesItsShareOfEveryClassByTheSeed) {
  const OpenSplits splits = hold_out(std::make_unique<Listed>(), 0.2, 7);
  EXPECT_EQ(splits.val->count(), 22);
  EXPECT_EQ(splits.train->count(), 89) << "the only image of c stays for training";
  Labels held(3);
  for (std::int64_t i = 0; i < 22; ++i) ++held[static_cast<std::size_t>(splits.val->label(i))];
  EXPECT_EQ(held, (Labels{20, 2, 0}));
  std::vector<std::string> both = all_names(*splits.train);
  for (const std::string& name : all_names(*splits.val)) both.push_back(name);
  std::ranges::sort(both);
  EXPECT_EQ(std::ranges::unique(both).begin(), both.end()) << "an image is in both";
  EXPECT_EQ(both.size(), 111u);
  EXPECT_EQ(all_names(*hold_out(std::make_unique<Listed>(), 0.2, 7).val), all_names(*splits.val));
  EXPECT_NE(all_names(*hold_out(std::make_unique<Listed>(), 0.2, 8).val), all_names(*splits.val));
  EXPECT_THROW(hold_out(std::make_unique<Listed>(), 0.001, 7), UsageError);
}

}  // namespace
}  // namespace redline::data
