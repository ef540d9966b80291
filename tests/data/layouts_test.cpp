// Data sets as people have them on their disks.
#include <gtest/gtest.h>
#include <zlib.h>

#include <map>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/temporary_folder.h"
#include "base/tfrecord.h"
#include "data/pictures.h"
#include "data/prepare/convert.h"
#include "data/prepare/info.h"
#include "data/progress.h"
#include "data/sources/devkit.h"
#include "data/sources/example.h"
#include "data/sources/record_source.h"
#include "data/sources/shard_names.h"
#include "data/sources/tar.h"
#include "data/sources/val_labels.h"

namespace redline::data {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::uint8_t>;
using Names = std::vector<std::string>;

void put(const fs::path& path, const Bytes& bytes) {
  fs::create_directories(path.parent_path());
  write_whole(path, bytes);
}
void put(const fs::path& path, const std::string& text) { put(path, Bytes(text.begin(), text.end())); }

bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

// By file name: label.
std::map<std::string, int> labels(const RecordSource& source) {
  std::map<std::string, int> found;
  for (std::int64_t i = 0; i < source.count(); ++i)
    found[fs::path(source.name(i)).filename().string()] = source.label(i);
  return found;
}

Bytes tar_of(const std::vector<std::pair<std::string, Bytes>>& files) {
  Bytes tar;
  for (const auto& [name, content] : files) {
    const Bytes header = tar_header(name, content.size());
    tar.insert(tar.end(), header.begin(), header.end());
    tar.insert(tar.end(), content.begin(), content.end());
    tar.resize(tar.size() + tar_padding(content.size()));
  }
  tar.resize(tar.size() + kTarEnd);
  return tar;
}

// What lies beside the splits.
Names unused(const fs::path& path) {
  Names names;
  for (const LeftOut& one : unused_in(path)) names.push_back(describe(one));
  return names;
}

Bytes text(const std::string& t) { return {t.begin(), t.end()}; }

const std::map<std::string, int> kVal{{"ILSVRC2012_val_00000001.JPEG", 1},
                                      {"ILSVRC2012_val_00000002.JPEG", 0}};

void put_imagenet(const fs::path& root) {
  put(root / "train/n01/n01_1.JPEG", gradient_jpeg(16, 16));
  put(root / "train/n02/n02_1.JPEG", gradient_jpeg(17, 16));
  for (const auto& [name, label] : kVal) put(root / "val" / name, gradient_jpeg(18, 16));
}

TEST(Layouts, KagglesImageNet) {
  const TemporaryFolder folder;
  put_imagenet(folder / "ILSVRC/Data/CLS-LOC");
  put(folder / "LOC_val_solution.csv",
      std::string("ImageId,PredictionString\nILSVRC2012_val_00000001,n02 1 2 3 4 n02 5 6 7 8\n"
                  "ILSVRC2012_val_00000002,n01 1 2 3 4 \n"));
  put(folder / "ILSVRC/Data/CLS-LOC/test/ILSVRC2012_test_00000001.JPEG", gradient_jpeg(18, 16));
  for (const char* part : {"", "ILSVRC", "ILSVRC/Data", "ILSVRC/Data/CLS-LOC"}) {
    const fs::path path = folder / part;
    EXPECT_EQ(unused(path), (Names{"test/"}));
    EXPECT_EQ(open_source(path, Split::train)->count(), 2) << path;
    EXPECT_EQ(labels(*open_source(path, Split::val)), kVal) << path;
  }
}

TEST(Layouts, FlatValWithTheDevelopmentKitBesideIt) {
  const TemporaryFolder folder;
  put_imagenet(folder / "in");
  EXPECT_TRUE(
      contains(message_of<DataError>([&] { open_source(folder / "in", Split::val); }), "development kit"));
  Devkit devkit;
  devkit.synsets = {{1, "n02", "second", true}, {2, "n01", "first", true}};
  devkit.ground_truth = {1, 2};
  put(folder / "in/ILSVRC2012_devkit_t12.tar.gz", serialize_devkit(devkit));
  EXPECT_EQ(labels(*open_source(folder / "in", Split::val)), kVal);
  // A third image that the kit says nothing about.
  put(folder / "in/val/ILSVRC2012_val_00000003.JPEG", gradient_jpeg(18, 16));
  EXPECT_TRUE(contains(message_of<DataError>([&] { open_source(folder / "in", Split::val); }), "00000003"));
}

TEST(Layouts, DamagedSolutionsAreNamedWithTheLine) {
  EXPECT_EQ(parse_val_solution("ImageId,PredictionString\r\na,n01 1 2 3 4\r\n").at("a"), "n01");
  EXPECT_TRUE(contains(message_of<DataError>([] { parse_val_solution("a,n01 1\nb\n"); }), "line 2"));
  EXPECT_TRUE(contains(message_of<DataError>([] { parse_val_solution("a,n01\na,n01\n"); }), "twice"));
  EXPECT_THROW(parse_val_solution("a,../n01 1\n"), DataError);
}

TEST(Layouts, OneTarForEachClass) {
  const TemporaryFolder folder;
  put(folder / "in/train/n02.tar",
      tar_of({{"n02_1.JPEG", gradient_jpeg(17, 16)}, {"n02_0.JPEG", gradient_jpeg(18, 16)}}));
  put(folder / "in/train/n01.tar", tar_of({{"n01_1.JPEG", gradient_jpeg(16, 16)}}));
  put(folder / "in/val/n02/v.jpg", gradient_jpeg(19, 16));
  put(folder / "in/train/n03.tar",
      tar_of({{"a.avif", text("x")}, {"b.avif", text("x")}, {"n03_1.JPEG", gradient_jpeg(16, 16)}}));
  const std::map<std::string, int> wanted{
      {"n01_1.JPEG", 0}, {"n02_0.JPEG", 1}, {"n02_1.JPEG", 1}, {"n03_1.JPEG", 2}};
  for (int round = 0; round < 2; ++round) {  // then from the index
    const auto train = open_source(folder / "in", Split::train);
    EXPECT_EQ(train->classes(), (Names{"n01", "n02", "n03"}));
    EXPECT_EQ(labels(*train), wanted);
    ASSERT_EQ(train->left_out().size(), 1U);
    EXPECT_EQ(describe(train->left_out()[0]), "2 .avif images");
    EXPECT_EQ(train->left_out()[0].first, (folder / "in/train/n03.tar/a.avif").string());
  }
  EXPECT_EQ(open_source(folder / "in", Split::val)->label(0), 1);
  // Another order does not come from the kept index.
  put(folder / "in/classes.txt", std::string("n02\nn01\nn03\n"));
  EXPECT_EQ(labels(*open_source(folder / "in", Split::train)).at("n01_1.JPEG"), 1);
}

// A name may be used again in another folder of a tar, but not in the same one.
TEST(Layouts, NamesInClassTarsNeedTheirFolders) {
  const TemporaryFolder folder;
  const Bytes image = gradient_jpeg(16, 16);
  put(folder / "train/n01.tar", tar_of({{"a/1.JPEG", image}, {"a/2.JPEG", image}, {"b/1.JPEG", image}}));
  put(folder / "train/n02.tar", tar_of({{"a/1.JPEG", image}, {"b/1.JPEG", image}}));
  EXPECT_EQ(open_source(folder.path(), Split::train)->count(), 5);
  put(folder / "train/n03.tar", tar_of({{"a/1.JPEG", image}, {"a/1.JPEG", image}}));
  const std::string message = message_of<DataError>([&] { open_source(folder.path(), Split::train); });
  EXPECT_TRUE(contains(message, "n03.tar holds a/1.JPEG twice")) << message;
}

TEST(Layouts, WebDatasetTars) {
  const TemporaryFolder folder;
  put(folder / "set-train-0000.tar",
      tar_of({{"k1.jpg", gradient_jpeg(16, 16)}, {"k1.cls", text("3")}, {"k1.json", text("{}")}}));
  put(folder / "set-train-0001.tar", tar_of({{"k2.cls", text("0\n")}, {"k2.jpg", gradient_jpeg(17, 16)}}));
  put(folder / "set-val-0000.tar", tar_of({{"v.jpg", gradient_jpeg(18, 16)}, {"v.cls", text("1")}}));
  EXPECT_EQ(labels(*open_source(folder.path(), Split::train)),
            (std::map<std::string, int>{{"k1.jpg", 3}, {"k2.jpg", 0}}));
  const auto val = open_source(folder.path(), Split::val);
  EXPECT_EQ(val->label(0), 1);
  EXPECT_EQ(val->classes().size(), 4u);  // train's
  FileBytes memory;
  EXPECT_EQ(Decoder().open(val->read(0, memory)).width, 18);
  put(folder / "classes.txt", std::string("a\nb\nc\nd\ne\n"));
  EXPECT_EQ(open_source(folder.path(), Split::val)->classes()[1], "b");
}

TEST(Layouts, IndexingTarsEndsWhenAskedTo) {
  const TemporaryFolder folder;
  put(folder / "train-0.tar",
      tar_of({{"k1.jpg", gradient_jpeg(16, 16)}, {"k1.cls", text("1")}, {"k2.jpg", gradient_jpeg(16, 16)}}));
  int asked = 0;
  SourceOptions options;
  options.stop = [&] { return ++asked == 2; };
  EXPECT_THROW(open_source(folder.path(), Split::train, options), Stopped);
  EXPECT_EQ(asked, 2);
}

TEST(Layouts, WebDatasetMistakesAreNamed) {
  for (const auto& [content, part] :
       {std::pair<Bytes, const char*>{tar_of({{"k.jpg", gradient_jpeg(16, 16)}}), "k.jpg has no .cls"},
        {tar_of({{"k.jpg", gradient_jpeg(16, 16)}, {"k.cls", text("cat")}}), "k.cls is not the number"},
        {tar_of({{"k.jpg", gradient_jpeg(16, 16)},
                 {"k.cls", text("1")},
                 {"k.jpg", gradient_jpeg(17, 16)},
                 {"k.cls", text("2")}}),
         "several k.cls with different classes"},
        {tar_of({{"k.txt", text("x")}}), "holds no images"}}) {
    const TemporaryFolder folder;
    put(folder / "train-0.tar", content);
    const std::string message = message_of<DataError>([&] { open_source(folder.path(), Split::train); });
    EXPECT_TRUE(contains(message, part)) << message;
  }
}

TEST(Layouts, CifarsOwnFiles) {
  const TemporaryFolder folder;
  Bytes batch(2 * 3073, 0);
  batch[0] = 9;
  for (std::size_t i = 0; i < 1024; ++i) batch[1 + i] = 200;  // all red
  batch[3073] = 4;
  for (int i = 1; i <= 5; ++i)
    put(folder / "cifar-10-batches-bin" / ("data_batch_" + std::to_string(i) + ".bin"), batch);
  put(folder / "cifar-10-batches-bin/test_batch.bin", Bytes(batch.begin(), batch.begin() + 3073));
  put(folder / "cifar-10-batches-bin/batches.meta.txt",
      std::string("airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n"));
  const auto train = open_source(folder.path(), Split::train);
  EXPECT_EQ(train->count(), 10);
  EXPECT_EQ(train->classes()[9], "truck");
  EXPECT_EQ(train->label(0), 9);
  EXPECT_EQ(train->label(1), 4);
  FileBytes memory;
  const auto bytes = train->read(0, memory);
  const Picture picture = decoded({bytes.begin(), bytes.end()});
  EXPECT_EQ(picture.width, 32);
  EXPECT_EQ((Bytes{picture.rgb.begin(), picture.rgb.begin() + 3}), (Bytes{200, 0, 0}));
  EXPECT_EQ(open_source(folder.path(), Split::val)->count(), 1);
  fs::resize_file(folder / "cifar-10-batches-bin/test_batch.bin", 3000);
  EXPECT_TRUE(
      contains(message_of<DataError>([&] { open_source(folder.path(), Split::val); }), "whole number"));
  // Whichever of the files is missing, the others do not pass for all of them.
  for (const char* missing : {"data_batch_4.bin", "data_batch_1.bin"}) {
    fs::remove(folder / "cifar-10-batches-bin" / missing);
    EXPECT_TRUE(has_split(folder.path(), Split::train));
    const std::string message = message_of<DataError>([&] { open_source(folder.path(), Split::train); });
    EXPECT_TRUE(contains(message, std::string(missing) + " is missing")) << message;
  }
}

void put_shard(const fs::path& path, int label) {
  const Bytes image = gradient_jpeg(16, 16);
  ImageExample example;
  example.encoded = image;
  example.label = label;
  Bytes bytes;
  append_record(bytes, serialize_example(example));
  put(path, bytes);
}

TEST(Layouts, ShardsByTheNamesThatPeopleGive) {
  for (const auto& [train, val] :
       {std::pair{"train-00000-of-00001", "val-00000-of-00001"},
        {"train-00000-of-00001.tfrecord", "validation-00000-of-00001.tfrecord"},
        {"imagenet2012-train.tfrecord-00000-of-00001", "imagenet2012-validation.tfrecord-00000-of-00001"},
        {"cats_train.tfrecord", "cats_val.tfrecords"}}) {
    const TemporaryFolder folder;
    put_shard(folder / train, 1);
    put_shard(folder / val, 1);
    put(folder / "train-00000-of-00001.idx", std::string("0 9\n"));
    EXPECT_EQ(open_source(folder.path(), Split::train)->count(), 1) << train;
    EXPECT_EQ(open_source(folder.path(), Split::val)->count(), 1) << val;
  }
  const TemporaryFolder folder;
  for (const char* name : {"train-00000-of-00001", "test-00000-of-00002", "test-00001-of-00002"})
    put_shard(folder / name, 1);
  put(folder / "other.zip", text("x"));
  EXPECT_EQ(unused(folder.path()), (Names{"1 archive", "2 shards"}));
  EXPECT_EQ(split_in_name("retrain-1.tar"), NamedSplit::none);
  EXPECT_EQ(split_in_name("x_test.tfrecord"), NamedSplit::other);
}

TEST(Layouts, ShardsThatDoNotSayTheirSplit) {
  for (const auto& [name, remedy] :
       {std::pair{"cats.tfrecord", "a split; rename it to train-cats.tfrecord"},
        {"00000.tar", "a split; unpack it, or if it is WebDataset's rename it to train-00000.tar"}}) {
    const TemporaryFolder folder;
    put_shard(folder / name, 1);
    const std::string message = message_of<UsageError>([&] { open_source(folder.path(), Split::train); });
    EXPECT_TRUE(contains(message, remedy)) << message;
  }
}

TEST(Layouts, TwoSetsInOneFolderAreRefused) {
  const TemporaryFolder folder;
  put_shard(folder / "a-train-00000-of-00001", 1);
  put_shard(folder / "b-train-00000-of-00001", 1);
  EXPECT_TRUE(contains(message_of<DataError>([&] { open_source(folder.path(), Split::train); }), "mixes"));
}

TEST(Layouts, CompressedShardsAreToldApartFromDamagedOnes) {
  const TemporaryFolder folder;
  Bytes gzip{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3};
  gzip.resize(100, 7);
  put(folder / "train-00000-of-00001", gzip);
  const std::string message = message_of<UsageError>([&] { open_source(folder.path(), Split::train); });
  EXPECT_TRUE(contains(message, "gzip")) << message;
}

TEST(Layouts, CompressedShardsAreConverted) {
  const TemporaryFolder folder;
  put_shard(folder / "plain/train-00000-of-00001", 1);
  const Bytes plain = bytes_of(folder / "plain/train-00000-of-00001");
  const auto compress = [&](const Bytes& bytes) {
    Bytes out(bytes.size() + 1000);
    z_stream stream{};
    EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_in = const_cast<Bytef*>(bytes.data());
    stream.avail_in = static_cast<uInt>(bytes.size());
    stream.next_out = out.data();
    stream.avail_out = static_cast<uInt>(out.size());
    EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
    out.resize(stream.total_out);
    deflateEnd(&stream);
    return out;
  };
  const Bytes packed = compress(plain);
  put(folder / "in/train-00000-of-00001", packed);
  ConvertOptions options;
  options.source = folder / "in";
  options.target = folder / "out";
  convert_to_tfrecord(options);
  EXPECT_EQ(open_source(folder / "out", Split::train)->count(), 1);
  EXPECT_FALSE(fs::exists(folder / ".out.gunzipped"));
  options.target = folder / "stopped";
  EXPECT_THROW(convert_to_tfrecord(options, [](std::int64_t, std::int64_t) { return false; }), Stopped);
  EXPECT_FALSE(fs::exists(folder / ".stopped.gunzipped/train-00000-of-00001"));
  // Damage, a cut and a bomb are named.
  const std::vector<std::pair<Bytes, const char*>> wrong{
      {Bytes(packed.begin(), packed.end() - 20), "cut off"}, {compress(Bytes(8 << 20, 0)), "times its size"}};
  for (const auto& [bytes, part] : wrong) {
    fs::remove(folder / "in/train-00000-of-00001");
    fs::remove_all(folder / ".other.gunzipped");
    put(folder / "in/train-00000-of-00001", bytes);
    options.target = folder / "other";
    const std::string message = message_of<DataError>([&] { convert_to_tfrecord(options); });
    EXPECT_TRUE(contains(message, part)) << message;
  }
}

// TFDS has other names for the fields, counts from 0, and lists the classes in a file.
TEST(Layouts, RecordsOfTfds) {
  const TemporaryFolder folder;
  const Bytes image = gradient_jpeg(16, 16);
  const auto field = [](const std::string& name, const Bytes& feature) {
    Bytes entry{0x0a, static_cast<std::uint8_t>(name.size())};
    entry.insert(entry.end(), name.begin(), name.end());
    entry.insert(entry.end(), {0x12, static_cast<std::uint8_t>(0x80 | (feature.size() & 127)),
                               static_cast<std::uint8_t>(feature.size() >> 7)});
    entry.insert(entry.end(), feature.begin(), feature.end());
    return entry;
  };
  const auto wrapped = [](std::uint8_t tag, const Bytes& content) {
    Bytes out{tag, static_cast<std::uint8_t>(0x80 | (content.size() & 127)),
              static_cast<std::uint8_t>(content.size() >> 7)};
    out.insert(out.end(), content.begin(), content.end());
    return out;
  };
  Bytes features = wrapped(0x0a, field("image", wrapped(0x0a, wrapped(0x0a, image))));
  const Bytes label = wrapped(0x0a, field("label", wrapped(0x1a, Bytes{0x0a, 1, 0})));
  features.insert(features.end(), label.begin(), label.end());
  Bytes shard;
  append_record(shard, wrapped(0x0a, features));
  put(folder / "tiny-train.tfrecord-00000-of-00001", shard);
  put(folder / "label.labels.txt", std::string("cat\ndog\n"));
  const auto source = open_source(folder.path(), Split::train);
  EXPECT_EQ(source->classes(), (Names{"cat", "dog"}));
  EXPECT_EQ(source->label(0), 0);
  FileBytes memory;
  EXPECT_EQ(Decoder().open(source->read(0, memory)).width, 16);
}

TEST(Layouts, ClassFoldersAlone) {
  const TemporaryFolder folder;
  put(folder / "a/cat/1.jpg", gradient_jpeg(16, 16));
  // One folder of images is no set of classes.
  EXPECT_THROW(open_source(folder / "a", Split::train), UsageError);
  put(folder / "a/dog/2.jpg", gradient_jpeg(17, 16));
  EXPECT_TRUE(has_split(folder / "a", Split::train));
  EXPECT_FALSE(has_split(folder / "a", Split::val));
  EXPECT_FALSE(open_splits(folder / "a", {}).val);
  // To be evaluated on, it is all there is.
  const auto source = open_source(folder / "a", Split::val);
  EXPECT_EQ(source->classes(), (Names{"cat", "dog"}));
  EXPECT_EQ(source->label(1), 1);
  put(folder / "a/classes.txt", std::string("dog\ncat\n"));
  EXPECT_EQ(open_source(folder / "a", Split::train)->label(0), 1);
  fs::remove(folder / "a/classes.txt");
  put(folder / "a/classes.txt", std::string("cat\n"));
  EXPECT_TRUE(
      contains(message_of<DataError>([&] { open_source(folder / "a", Split::train); }), "classes.txt"));
  // As Tiny ImageNet's are.
  put(folder / "b/cat/images/1.jpg", gradient_jpeg(16, 16));
  put(folder / "b/dog/images/2.jpg", gradient_jpeg(16, 16));
  EXPECT_EQ(open_source(folder / "b", Split::train)->count(), 2);
}

TEST(Layouts, FoldersOfSplitsAreNotTakenForClasses) {
  const TemporaryFolder folder;
  for (const char* name :
       {"a/learn/cat/1.jpg", "a/learn/dog/1.jpg", "a/check/cat/1.jpg", "a/check/dog/1.jpg"})
    put(folder / name, gradient_jpeg(16, 16));
  const std::string message = message_of<UsageError>([&] { open_source(folder / "a", Split::train); });
  EXPECT_TRUE(contains(message, "(check in it is one)") || contains(message, "(learn in it is one)"))
      << message;
  for (const char* name : {"b/Training/cat/1.jpg", "b/Training/dog/1.jpg", "b/Validation/dog/1.jpg"})
    put(folder / name, gradient_jpeg(16, 16));
  const OpenSplits splits = open_splits(folder / "b", {});
  EXPECT_EQ(splits.train->count(), 2);
  EXPECT_EQ(splits.val->label(0), 1);
}

TEST(Layouts, ValidationImagesFromAnotherFolder) {
  const TemporaryFolder folder;
  put(folder / "a/cat/1.jpg", gradient_jpeg(16, 16));
  put(folder / "a/dog/2.jpg", gradient_jpeg(17, 16));
  put(folder / "b/dog/3.jpg", gradient_jpeg(18, 16));
  const OpenSplits bare = open_splits(folder / "a", folder / "b");
  EXPECT_EQ(bare.train->count(), 2);
  EXPECT_EQ(bare.val->label(0), 1);
  // Where val is given, classes may hold folders of images.
  put(folder / "deep/cat/tom/1.jpg", gradient_jpeg(16, 16));
  put(folder / "deep/dog/rex/1.jpg", gradient_jpeg(16, 16));
  EXPECT_EQ(open_splits(folder / "deep", folder / "b").train->count(), 2);
  put(folder / "c/train/cat/1.jpg", gradient_jpeg(16, 16));
  EXPECT_FALSE(open_splits(folder / "c", {}).val);
  EXPECT_TRUE(contains(message_of<DataError>([&] { open_splits(folder / "c", folder / "b"); }), "class dog"));
  put(folder / "d/val/dog/1.jpg", gradient_jpeg(16, 16));
  EXPECT_TRUE(
      contains(message_of<DataError>([&] { open_splits(folder / "c", folder / "d"); }), "other classes"));
  EXPECT_THROW(open_splits(folder / "c", folder / "nowhere"), UsageError);
}

TEST(Layouts, WhatIsLeftOutIsCountedAndNamed) {
  const TemporaryFolder folder;
  for (const char* name : {"train/a/1.jpg", "train/a/2.jfif", "train/a/3.jpe", "train/a/4.avif",
                           "train/a/5.avif", "train/a/6.jp2", "train/a/notes.txt", "test/7.jpg",
                           "train/stray.jpg", "8.jpg", "notes.txt", "train.zip"})
    put(folder / name, gradient_jpeg(16, 16));
  const auto source = open_source(folder.path(), Split::train);
  EXPECT_EQ(source->count(), 3);
  std::map<std::string, std::int64_t> left;
  for (const LeftOut& one : source->left_out()) left[one.what] = one.count;
  EXPECT_EQ(left, (std::map<std::string, std::int64_t>{{".avif images", 2},
                                                       {".jp2 images", 1},
                                                       {"files other than images", 1},
                                                       {"images outside class folders", 1}}));
  EXPECT_EQ(unused(folder.path()), (Names{"test/", "1 image", "1 archive"}));
  put(folder / "train/b/1.avif", gradient_jpeg(16, 16));
  EXPECT_TRUE(contains(message_of<DataError>([&] { open_source(folder.path(), Split::train); }), ".avif"));
}

}  // namespace
}  // namespace redline::data
