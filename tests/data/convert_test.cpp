#include "data/prepare/convert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/temporary_folder.h"
#include "base/tfrecord.h"
#include "data/loader.h"
#include "data/pictures.h"
#include "data/prepare/synth.h"
#include "data/sources/example.h"
#include "data/sources/record_index.h"
#include "data/sources/tfrecord_folder.h"

namespace redline::data {
namespace {

namespace fs = std::filesystem;

struct DataSet {
  TemporaryFolder folder;

  DataSet() {
    SynthOptions options;
    options.path = folder / "in";
    options.classes = 4;
    options.train = 30;
    options.val = 9;
    options.width = options.height = 24;
    write_synth(options);
  }
  ConvertOptions options(const std::string& target, int threads = 2) const {
    ConvertOptions o;
    o.source = folder / "in";
    o.target = folder / target;
    o.train_shards = 4;
    o.val_shards = 2;
    o.threads = threads;
    return o;
  }
  std::map<std::string, std::vector<std::uint8_t>> files(const std::string& target) const {
    std::map<std::string, std::vector<std::uint8_t>> all;
    // But for the index, which holds the times of the shards.
    for (const auto& entry : fs::directory_iterator(folder / target))
      if (!entry.path().filename().string().starts_with("."))
        all[entry.path().filename().string()] = bytes_of(entry.path());
    return all;
  }
};

// Every image of a split with its class's name.
std::multiset<std::pair<std::string, std::string>> samples(const RecordSource& source) {
  std::multiset<std::pair<std::string, std::string>> all;
  FileBytes memory;
  for (std::int64_t i = 0; i < source.count(); ++i) {
    const auto bytes = source.read(i, memory);
    all.emplace(source.classes()[static_cast<std::size_t>(source.label(i))],
                std::string(bytes.begin(), bytes.end()));
  }
  return all;
}

TEST(Convert, TheSameImagesAndLabelsComeOut) {
  const DataSet data;
  const ConvertResult result = convert_to_tfrecord(data.options("out"));
  EXPECT_EQ(result.written, 39);
  EXPECT_EQ(result.reencoded, 0);
  for (const Split split : {Split::train, Split::val}) {
    const auto from = open_source(data.folder / "in", split), to = open_source(data.folder / "out", split);
    EXPECT_EQ(to->kind(), std::string("TFRecord"));
    EXPECT_EQ(to->classes(), from->classes());
    EXPECT_EQ(samples(*to), samples(*from));
  }
}

TEST(Convert, ThreadsAndRepetitionDoNotChangeAByte) {
  const DataSet data;
  convert_to_tfrecord(data.options("one", 1));
  convert_to_tfrecord(data.options("many", 5));
  EXPECT_EQ(data.files("one"), data.files("many"));
  ConvertOptions other = data.options("other");
  other.seed = 1;
  convert_to_tfrecord(other);
  EXPECT_NE(data.files("one"), data.files("other"));
}

TEST(Convert, GoesOnWhereItWasStopped) {
  const DataSet data;
  convert_to_tfrecord(data.options("whole"));
  int stops = 0;
  for (std::int64_t limit = 1; limit < 39; limit += 5, ++stops)
    EXPECT_THROW(convert_to_tfrecord(data.options("parts", 1),
                                     [&](std::int64_t done, std::int64_t) { return done < limit; }),
                 Stopped);
  const ConvertResult result = convert_to_tfrecord(data.options("parts"));
  EXPECT_GT(result.shards_found, 0);
  EXPECT_EQ(result.written, 39);
  EXPECT_EQ(data.files("parts"), data.files("whole"));
}

TEST(Convert, ADamagedOrUnindexedShardIsWrittenAgain) {
  const DataSet data;
  convert_to_tfrecord(data.options("out"));
  const auto whole = data.files("out");
  std::vector<std::uint8_t> bytes = whole.at("train-00001-of-00004");
  bytes[bytes.size() / 2] ^= 1;
  fs::remove(data.folder / "out/train-00001-of-00004");
  write_whole(data.folder / "out/train-00001-of-00004", bytes);
  fs::remove(data.folder / "out/validation-00000-of-00002.idx");
  EXPECT_EQ(convert_to_tfrecord(data.options("out")).shards_found, 4);
  EXPECT_EQ(data.files("out"), whole);
}

// Two of the images are damaged; the shards without them are there already.
TEST(Convert, WhatWholeShardsLeftOutIsCountedAgain) {
  const DataSet data;
  const auto train = open_source(data.folder / "in", Split::train);
  const std::string bad = train->name(3), worse = train->name(20);
  const std::vector<std::uint8_t> good = bytes_of(bad);
  for (const std::string& path : {bad, worse}) {
    fs::remove(path);
    write_whole(path, std::vector<std::uint8_t>{0xff, 0xd8, 1, 2, 3});
  }
  ConvertOptions options = data.options("out", 1);
  options.max_bad = 0.5;
  const auto left_out = [&](const ConvertResult& result) {
    std::multiset<std::string> names;
    for (const Complaint& complaint : result.bad) names.insert(complaint.name);
    return names;
  };
  const std::multiset<std::string> both{bad, worse};
  const ConvertResult first = convert_to_tfrecord(options);
  EXPECT_EQ(left_out(first), both);
  const ConvertResult again = convert_to_tfrecord(options);
  EXPECT_EQ(again.shards_found, 6);
  EXPECT_EQ(again.written, 37);
  EXPECT_EQ(left_out(again), both);
  EXPECT_EQ(again.bad.front().reason, first.bad.front().reason);

  options.max_bad = 0;
  EXPECT_THROW(convert_to_tfrecord(options), DataError) << "they count towards the limit";

  // One was put right: its shard is written with it.
  options.max_bad = 0.5;
  fs::remove(bad);
  write_whole(bad, good);
  const ConvertResult mended = convert_to_tfrecord(options);
  EXPECT_EQ(mended.shards_found, 5);
  EXPECT_EQ(mended.written, 38);
  EXPECT_EQ(left_out(mended), std::multiset<std::string>{worse});
}

TEST(Convert, RefusesAnotherConversionsFolder) {
  const DataSet data;
  convert_to_tfrecord(data.options("out"));
  ConvertOptions other = data.options("out");
  other.seed = 1;
  EXPECT_THROW(convert_to_tfrecord(other), UsageError);
  other = data.options("in");
  EXPECT_THROW(convert_to_tfrecord(other), UsageError);
  other = data.options("new");
  other.val_shards = 10;
  EXPECT_THROW(convert_to_tfrecord(other), UsageError);
}

void put(const fs::path& path, const std::vector<std::uint8_t>& bytes) {
  fs::create_directories(path.parent_path());
  write_whole(path, bytes);
}

TEST(Convert, KeepsPngAsItIsReencodesCmykAndLeavesOutTheBad) {
  const TemporaryFolder folder;
  const Picture picture = gradient(40, 30);
  const std::vector<std::uint8_t> png = encode_png(picture.rgb.data(), 40, 30);
  put(folder / "in/train/a/1.png", png);
  put(folder / "in/train/a/2.jpg", bytes_of(golden("cmyk.jpg")));
  put(folder / "in/train/b/3.jpg", bytes_of(golden("grey.jpg")));
  put(folder / "in/train/b/4.jpg", {1, 2, 3});
  ConvertOptions o;
  o.source = folder / "in";
  o.target = folder / "out";
  o.train_shards = 1;
  o.max_bad = 0;
  EXPECT_THROW(convert_to_tfrecord(o), DataError);
  o.max_bad = 0.25;
  const ConvertResult result = convert_to_tfrecord(o);
  EXPECT_EQ(result.written, 3);
  EXPECT_EQ(result.reencoded, 1);
  ASSERT_EQ(result.bad.size(), 1u);
  EXPECT_EQ(result.bad[0].name, (folder / "in/train/b/4.jpg").string());
  const RandomFile shard(folder / "out/train-00000-of-00001");
  std::vector<std::uint8_t> scratch;
  std::map<std::string, ImageExample> found;
  Decoder decoder;
  for (const RecordFrame& frame : list_records(shard).frames) {
    const ImageExample example = parse_example(read_record(shard, frame, scratch));
    const bool is_png = decoder.open(example.encoded).format == ImageFormat::png;
    EXPECT_EQ(example.format, is_png ? "PNG" : "JPEG");
    EXPECT_LE(example.channels, 3);
    EXPECT_TRUE(!is_png || std::ranges::equal(png, example.encoded));
    found[example.filename] = example;
  }
  EXPECT_EQ(found.at("1.png").format, "PNG");
  EXPECT_EQ(found.at("2.jpg").format, "JPEG");
}

// Images encoded anew have another name in records; a shard that lacks a bad one is complete all the same.
TEST(Convert, AShardOfImagesEncodedAnewIsKept) {
  const TemporaryFolder folder;
  const fs::path corpus = fs::path(REDLINE_CORPUS) / "image";
  put(folder / "in/train/a/1.bmp", bytes_of(corpus / "core.bmp"));
  put(folder / "in/train/a/2.bmp", bytes_of(corpus / "cut.bmp"));
  put(folder / "in/train/b/3.bmp", bytes_of(corpus / "many_colors.bmp"));
  ConvertOptions o;
  o.source = folder / "in";
  o.target = folder / "out";
  o.train_shards = 1;
  o.max_bad = 0.5;
  EXPECT_EQ(convert_to_tfrecord(o).reencoded, 2);
  const ConvertResult again = convert_to_tfrecord(o);
  EXPECT_EQ(again.shards_found, 1);
  EXPECT_EQ(again.bad.size(), 1U);
}

// The shards just written are not read again to index them, and the index is what reading them would give.
TEST(Convert, WritesTheIndexThatOpeningWouldBuild) {
  const DataSet data;
  convert_to_tfrecord(data.options("out"));
  for (const Split split : {Split::train, Split::val}) {
    const fs::path kept = index_path(data.folder / "out", split);
    const std::vector<std::uint8_t> written = bytes_of(kept);
    ASSERT_FALSE(written.empty());
    open_source(data.folder / "out", split);
    EXPECT_EQ(bytes_of(kept), written);  // it was taken
    fs::remove(kept);
    open_source(data.folder / "out", split);
    EXPECT_EQ(bytes_of(kept), written);  // and built the same
  }
}

TEST(TfRecordFolder, KeepsItsIndexAndNoticesChanges) {
  const DataSet data;
  convert_to_tfrecord(data.options("out"));
  const fs::path kept = data.folder / "out/.redline-index-train";
  fs::remove(kept);
  const auto first = samples(*open_source(data.folder / "out", Split::train));
  ASSERT_TRUE(fs::exists(kept));
  EXPECT_EQ(samples(*open_source(data.folder / "out", Split::train)), first);  // from the index
  // A damaged index is built anew, byte by byte.
  const std::vector<std::uint8_t> good = bytes_of(kept);
  for (std::size_t at = 0; at < good.size(); at += 97) {
    std::vector<std::uint8_t> damaged = good;
    damaged[at] ^= 4;
    fs::remove(kept);
    write_whole(kept, damaged);
    EXPECT_EQ(open_source(data.folder / "out", Split::train)->count(), 30);
    EXPECT_EQ(bytes_of(kept), good);
  }
}

TEST(TfRecordFolder, MissingAndMixedShardsAreNamed) {
  const DataSet data;
  convert_to_tfrecord(data.options("out"));
  fs::remove(data.folder / "out/train-00002-of-00004");
  const std::string message = message_of<DataError>([&] { open_source(data.folder / "out", Split::train); });
  EXPECT_NE(message.find("train-00002-of-00004 is missing"), std::string::npos) << message;
  write_whole(data.folder / "out/train-00002-of-00005", std::vector<std::uint8_t>{});
  EXPECT_THROW(open_source(data.folder / "out", Split::train), DataError);
}

TEST(TfRecordFolder, ADamagedLengthLosesTheRestOfTheShardAlone) {
  const DataSet data;
  convert_to_tfrecord(data.options("out"));
  const fs::path shard = data.folder / "out/train-00001-of-00004";
  std::vector<std::uint8_t> bytes = bytes_of(shard);
  const RecordFrame third = list_records(RandomFile(shard)).frames.at(2);
  bytes[third.offset + 1] ^= 1;
  fs::remove(shard);
  write_whole(shard, bytes);
  const auto source = open_source(data.folder / "out", Split::train);
  EXPECT_LT(source->count(), 30);
  ASSERT_EQ(source->damage().size(), 1u);
  EXPECT_NE(source->damage()[0].find("train-00001-of-00004"), std::string::npos);
  EXPECT_EQ(verify(data.folder / "out", {}).bad(), 1);
}

TEST(TfRecordFolder, ABadRecordIsSkippedByTheLoader) {
  const DataSet data;
  convert_to_tfrecord(data.options("out"));
  const fs::path shard = data.folder / "out/validation-00001-of-00002";
  std::vector<std::uint8_t> bytes = bytes_of(shard);
  bytes[bytes.size() - 30] ^= 1;  // in the last record's data
  fs::remove(shard);
  write_whole(shard, bytes);
  LoaderOptions options;
  options.transform.train = false;
  options.transform.size = 16;
  options.batch_size = 9;
  options.max_bad = 0.2;
  Loader loader(open_source(data.folder / "out", Split::val), options);
  loader.start_epoch(0);
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(batch.count, 8);
  ASSERT_EQ(loader.bad_samples().size(), 1u);
  EXPECT_NE(loader.bad_samples()[0].reason.find("checksum"), std::string::npos);
}

TEST(RecordIndex, AnUnwritableFolderIsNoError) {
  RecordIndex index;
  index.classes = {"a"};
  EXPECT_NO_THROW(save_index("/nonexistent/folder/index", index));
  EXPECT_FALSE(load_index("/nonexistent/folder/index", {}, index));
}

}  // namespace
}  // namespace redline::data
