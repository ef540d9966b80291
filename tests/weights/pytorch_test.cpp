// State dicts of PyTorch, well-meant and hostile. That real ones give torchvision's logits is checked in
// tests/python.
#include "weights/pytorch.h"

#include <cstring>

#include <gtest/gtest.h>

#include "base/atomic_file.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/temporary_folder.h"
#include "weights/pickle.h"
#include "weights/pickle_builder.h"

namespace redline::weights {
namespace {

std::span<const std::uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

StateDict parse(const std::string& pickle) { return parse_state_dict(bytes_of(pickle)); }

// What is said about a pickle; empty when it is taken.
std::string complaint(const std::string& pickle) {
  try {
    parse(pickle);
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

// A zip of stored members, in the order given.
std::string zip_of(const std::vector<std::pair<std::string, std::string>>& members) {
  const auto number = [](std::uint64_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
    return text;
  };
  std::string out, directory;
  for (const auto& [name, content] : members) {
    const std::string shared = number(20, 2) + number(0, 2) + number(0, 2) + number(0, 4) + number(0, 4) +
                               number(content.size(), 4) + number(content.size(), 4) +
                               number(name.size(), 2) + number(0, 2);
    directory += "PK\x01\x02" + number(20, 2) + shared + number(0, 2) + number(0, 2) + number(0, 2) +
                 number(0, 4) + number(out.size(), 4) + name;
    out += "PK\x03\x04" + shared + name + content;
  }
  const std::string end = number(0, 4) + number(members.size(), 2) + number(members.size(), 2) +
                          number(directory.size(), 4) + number(out.size(), 4) + number(0, 2);
  return out + directory + "PK\x05\x06" + end;
}

std::string floats(const std::vector<float>& values) {
  std::string text(values.size() * 4, '\0');
  std::memcpy(text.data(), values.data(), text.size());
  return text;
}

std::vector<float> values_in(const TensorFile& file, const std::string& name) {
  const Entry* entry = file.find(name);
  if (entry == nullptr) return {};
  std::vector<float> values(entry->elements());
  file.read(*entry, values);
  return values;
}

// { "a": 2x3 of six, "b": the same storage by columns, from its second element on }
std::string good_pickle() {
  Pickle pickle;
  pickle.dict().raw("(").text("module.a").tensor("0", 6, 0, {2, 3}, {3, 1});
  return pickle.text("module.b").tensor("0", 6, 1, {2, 2}, {1, 3}).raw("u}b").done();
}

TEST(Pytorch, TensorsAreViewsOfTheirStorages) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "w.pth",
                        zip_of({{"w/data.pkl", good_pickle()}, {"w/data/0", floats({0, 1, 2, 3, 4, 5})}}),
                        Sync::no);
  const auto file = open_tensors(folder / "w.pth");
  EXPECT_EQ(values_in(*file, "a"), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(values_in(*file, "b"), (std::vector<float>{1, 4, 2, 5}));
}

// What PyTorch wrote before version 1.6.
TEST(Pytorch, TheOldStreamIsRead) {
  const TemporaryFolder folder;
  const std::string magic = std::string("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15);
  const std::string version = Pickle().raw("M\xe9\x03").done(), system = Pickle().raw("}").done();
  const std::string keys = Pickle().raw("](").text("0").raw("e").done();
  const std::string stream = magic + version + system + good_pickle() + keys +
                             std::string("\x06\0\0\0\0\0\0\0", 8) + floats({0, 1, 2, 3, 4, 5});
  write_file_atomically(folder / "w.pth", stream, Sync::no);
  EXPECT_EQ(values_in(*open_tensors(folder / "w.pth"), "b"), (std::vector<float>{1, 4, 2, 5}));
  write_file_atomically(folder / "cut.pth", stream.substr(0, stream.size() - 1), Sync::no);
  EXPECT_THROW(open_tensors(folder / "cut.pth"), DataError);
}

TEST(Pytorch, AZipThatIsNotAsPromisedIsRefused) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& content) {
    write_file_atomically(folder / "w.pth", content, Sync::no);
    EXPECT_THROW(open_tensors(folder / "w.pth"), DataError);
  };
  const std::string storage = floats({0, 1, 2, 3, 4, 5});
  refused(zip_of({{"w/data.pkl", good_pickle()}}));
  refused(zip_of({{"w/data.pkl", good_pickle()}, {"w/data/0", storage.substr(4)}}));
  refused(zip_of({{"w/other.pkl", good_pickle()}, {"w/data/0", storage}}));
  refused(zip_of({{"w/data.pkl", good_pickle()}, {"w/data/0", storage}, {"w/byteorder", "big"}}));
  refused(zip_of({{"w/data.pkl", good_pickle()}, {"w/data/0", storage}, {"w/data/0", storage}}));
  refused(zip_of({{"../data.pkl", good_pickle()}, {"../data/0", storage}}));
  const std::string whole = zip_of({{"w/data.pkl", good_pickle()}, {"w/data/0", storage}});
  refused(whole.substr(0, whole.size() - 30));
  std::string overlapping = whole;
  overlapping.replace(overlapping.rfind("PK\x01\x02") + 42, 4, std::string(4, '\0'));  // at the first member
  refused(overlapping);
}

TEST(Pickle, StateDictsAreFoundWhereTrainersPutThem) {
  for (const char* key : {"state_dict", "model", "model_state_dict"}) {
    Pickle pickle;
    pickle.raw("}(").text("epoch").number(3).text(key).dict().text("a").tensor("0", 2, 0, {2}, {1}).raw("su");
    ASSERT_EQ(parse(pickle.done()).tensors.size(), 1u) << key;
    EXPECT_EQ(parse(pickle.done()).tensors[0].name, "a");
  }
}

// Options, optimizers and the like are carried along; nothing of them is made or called.
TEST(Pickle, OtherObjectsAreNotLookedInto) {
  Pickle pickle;
  pickle.raw("}(").text("args").global("os", "system").raw("(").text("touch harm").raw("tR}b");
  pickle.text("more").global("builtins", "eval").raw(")\x81}b");
  pickle.text("a").tensor("0", 2, 0, {2}, {1}).raw("u");
  EXPECT_EQ(parse(pickle.done()).tensors.size(), 1u);
  const std::string whole = Pickle().global("torchvision.models.resnet", "ResNet").raw(")\x81}b").done();
  EXPECT_NE(complaint(whole).find("torchvision.models.resnet ResNet"), std::string::npos) << complaint(whole);
  EXPECT_NE(complaint(whole).find("state_dict()"), std::string::npos) << complaint(whole);
}

TEST(Pickle, TensorsOutsideTheirStorageAreRefused) {
  const auto with = [](std::int32_t elements, std::int32_t offset, const std::vector<std::int32_t>& shape,
                       const std::vector<std::int32_t>& strides) {
    return complaint(
        Pickle().raw("}").text("a").tensor("0", elements, offset, shape, strides).raw("s").done());
  };
  EXPECT_EQ(with(6, 0, {2, 3}, {3, 1}), "");
  EXPECT_NE(with(6, 1, {2, 3}, {3, 1}), "");
  EXPECT_NE(with(6, 0, {2, 3}, {4, 1}), "");
  EXPECT_NE(with(6, 7, {0}, {1}), "");
  EXPECT_NE(with(6, 0, {1000, 1000}, {0, 0}), "") << "a small file with a vast tensor";
  EXPECT_NE(with(6, 0, {0x7fffffff, 0x7fffffff, 0x7fffffff}, {1, 1, 1}), "");
  EXPECT_NE(with(6, 0, {2}, {0x7fffffff}), "");
  EXPECT_NE(with(6, -1, {2}, {1}), "");
  EXPECT_NE(with(-1, 0, {2}, {1}), "");
  EXPECT_NE(with(6, 0, {-2}, {1}), "");
  EXPECT_NE(with(6, 0, {2, 3}, {1}), "");
  EXPECT_NE(with(6, 0, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 1}), "");
}

TEST(Pickle, WhatIsBrokenIsRefused) {
  const std::string good = Pickle().raw("}").text("a").tensor("0", 2, 0, {2}, {1}).raw("s").done();
  ASSERT_EQ(complaint(good), "");
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_NE(complaint(good.substr(0, size)), "") << size;
  for (const char* opcodes : {"0",  "t",  "s",     "(s",   "u",    "]u", "R", ")R",   "b", "Nb", "h\x05", "Q",
                              "NQ", ")Q", "q\x01", "\x85", "\x93", "NN", "(", "}(Nu", "e", "a",  "\x92"})
    EXPECT_NE(complaint(Pickle().raw(opcodes).done()), "") << opcodes;
  for (const char* unknown :
       {"I1\n", "S'a'\n", "ios\nsystem\n", "o", "\x82\x01", "P1\n", "g1\n", "\x97", "\xff"})
    EXPECT_NE(complaint(Pickle().raw(unknown).done()).find("opcode"), std::string::npos) << unknown;
  EXPECT_NE(complaint(std::string("\x80\x09N.")), "");
  EXPECT_NE(complaint(Pickle().raw(std::string("\x8d\xff\xff\xff\xff\xff\xff\xff\xff", 9)).done()), "");
}

// Each of these makes a reader that follows, copies or nests what it reads run for hours, out of memory or
// out of stack.
TEST(Pickle, BombsDoNotGoOff) {
  const Stopwatch watch;
  EXPECT_NE(complaint(Pickle().raw(")" + std::string(4 << 20, '\x85')).done()), "") << "deep nesting";
  std::string laughs = "]";
  for (int i = 0; i < 1'000'000; ++i) laughs += "(22222222t";
  EXPECT_NE(complaint(Pickle().raw(laughs).done()), "") << "opcodes that are not known";
  Pickle shared;  // a tuple of a hundred thousand, and a million calls with it
  shared.global("a", "b").raw("q").raw(std::string(1, '\0')).raw("(" + std::string(100'000, 'N') + "tq\x01");
  std::string calls;
  for (int i = 0; i < 1'000'000; ++i) calls += std::string("h\0h\x01R0", 6);
  EXPECT_NE(complaint(shared.raw(calls).done()), "");
  Pickle texts;  // a text of a megabyte, a million times
  texts.text(std::string(1 << 20, 'x')).raw(std::string("q\0]q\x01(", 6));
  std::string uses;
  for (int i = 0; i < 1'000'000; ++i) uses += std::string("h\0", 2);
  EXPECT_NE(complaint(texts.raw(uses + "e").done()), "");
  EXPECT_NE(
      complaint(Pickle().raw("]q").raw(std::string(1, '\0')).raw("h").raw(std::string("\0a", 2)).done()), "")
      << "a list that holds itself";
  EXPECT_NE(complaint(std::string(kMostPickleBytes + 1, 'N')), "");
  EXPECT_LT(watch.seconds(), 30);
}

}  // namespace
}  // namespace redline::weights
