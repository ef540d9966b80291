// Labels keep their order through every conversion, whatever the classes are called.
#include "data/sources/class_list.h"

#include <gtest/gtest.h>

#include <map>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/temporary_folder.h"
#include "base/tfrecord.h"
#include "data/pictures.h"
#include "data/prepare/convert.h"
#include "data/prepare/unpack.h"
#include "data/sources/class_words.h"
#include "data/sources/example.h"
#include "data/sources/image_folder.h"
#include "data/sources/tfrecord_folder.h"

namespace redline::data {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

TEST(ClassList, ReadsWhatItWrites) {
  const Names classes{"zebra", "1", "10", "2"};
  EXPECT_EQ(parse_class_list(class_list_text(classes)), classes);
  EXPECT_EQ(parse_class_list("a\r\nb"), (Names{"a", "b"}));
}

TEST(ClassList, MistakesAreNamedWithTheLine) {
  for (const char* wrong : {"", "a\n\nb\n", "a\n../b\n", "a\n.hidden\n", "a\nb/c\n"})
    EXPECT_THROW(parse_class_list(wrong), DataError) << wrong;
  EXPECT_NE(message_of<DataError>([] { parse_class_list("a\nb\na\n"); }).find("line 3"), std::string::npos);
}

TEST(ClassList, FoldersKeepTheOrderOnlyWhenSortedAndAllThere) {
  EXPECT_TRUE(folders_keep_order({"a", "b"}, {true, true}));
  EXPECT_FALSE(folders_keep_order({"b", "a"}, {true, true}));
  EXPECT_FALSE(folders_keep_order({"1", "2", "10"}, {true, true, true}));
  EXPECT_FALSE(folders_keep_order({"a", "b"}, {true, false}));
}

struct Record {
  int label;
  std::string synset, text, file;
};

// A shard of tiny images; the image of record i is 16 + i pixels wide.
void write_shard(const fs::path& path, const std::vector<Record>& records) {
  fs::create_directories(path.parent_path());
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const std::vector<std::uint8_t> image = gradient_jpeg(16 + static_cast<int>(i), 16);
    ImageExample example;
    example.encoded = image;
    example.label = records[i].label;
    example.synset = records[i].synset;
    example.text = records[i].text;
    example.filename = records[i].file;
    append_record(bytes, serialize_example(example));
  }
  write_whole(path, bytes);
}

// From an image's width to its label and what its class is called.
std::map<int, std::pair<int, std::string>> labels(const fs::path& path, Split split = Split::train) {
  const auto source = open_source(path, split);
  std::map<int, std::pair<int, std::string>> found;
  FileBytes memory;
  Decoder decoder;
  for (std::int64_t i = 0; i < source->count(); ++i)
    found[decoder.open(source->read(i, memory)).width] = {
        source->label(i), source->classes()[static_cast<std::size_t>(source->label(i))]};
  return found;
}

void to_folders(const fs::path& from, const fs::path& to) {
  UnpackOptions options;
  options.source = from;
  options.target = to;
  unpack_to_folders(options);
}

void to_records(const fs::path& from, const fs::path& to) {
  ConvertOptions options;
  options.source = from;
  options.target = to;
  options.train_shards = 2;
  convert_to_tfrecord(options);
}

// Synsets that are not in the order of labels, as TensorFlow's own records of other sets have them.
TEST(LabelOrder, IsKeptFromRecordsToFoldersAndBack) {
  const TemporaryFolder folder;
  write_shard(folder / "records/train-00000-of-00001", {{1, "n9", "zebra", "a.jpg"},
                                                        {2, "n1", "cat", "b.jpg"},
                                                        {3, "n5", "dog", "c.jpg"},
                                                        {2, "n1", "cat", "d.jpg"}});
  to_folders(folder / "records", folder / "folders");
  EXPECT_EQ(read_class_list(folder / "folders"), (Names{"n9", "n1", "n5"}));
  const auto wanted = labels(folder / "records");
  EXPECT_EQ(wanted.at(16), (std::pair<int, std::string>(0, "n9")));
  EXPECT_EQ(labels(folder / "folders"), wanted);
  to_records(folder / "folders", folder / "again");
  EXPECT_EQ(labels(folder / "again"), wanted);
  to_folders(folder / "again", folder / "folders2");
  EXPECT_EQ(labels(folder / "folders2"), wanted);
  // Words go with them.
  EXPECT_EQ(read_words(folder / "folders2", {"n9", "n1", "n5"}), (Names{"zebra", "cat", "dog"}));
}

// "1", "10", "2": without a list, folders would renumber what records only number.
TEST(LabelOrder, NumberedClassesKeepTheirNumbers) {
  const TemporaryFolder folder;
  std::vector<Record> records;
  for (int label = 1; label <= 12; ++label)
    records.push_back({label, "", "", std::to_string(label) + ".jpg"});
  write_shard(folder / "records/train-00000-of-00001", records);
  to_folders(folder / "records", folder / "folders");
  for (const auto& [width, label] : labels(folder / "folders")) EXPECT_EQ(label.first, width - 16);
}

// A class that no training image has still moves those behind it.
TEST(LabelOrder, AClassWithoutImagesKeepsItsPlace) {
  const TemporaryFolder folder;
  write_shard(folder / "records/train-00000-of-00001", {{1, "a", "", "1.jpg"}, {3, "c", "", "2.jpg"}});
  to_folders(folder / "records", folder / "folders");
  EXPECT_EQ(labels(folder / "folders").at(17).first, 2);
  to_records(folder / "folders", folder / "again");
  fs::remove(folder / "again/.redline-index-train");
  EXPECT_EQ(labels(folder / "again").at(17).first, 2);
  EXPECT_EQ(open_source(folder / "again", Split::train)->classes().size(), 3u);
}

TEST(LabelOrder, TextNamesAClassWithoutSynsetAndTwinsStayApart) {
  EXPECT_EQ(name_classes({{1, {"n1", "cat"}}, {2, {"", "dog"}}, {4, {"", ""}}}, 1),
            (Names{"n1", "dog", "3", "4"}));
  EXPECT_EQ(name_classes({{0, {"", "crane"}}, {1, {"", "owl"}}, {2, {"", "crane"}}}, 0),
            (Names{"crane-0", "owl", "crane-2"}));
}

TEST(LabelOrder, LabelsFromZeroAreTakenAsTheyAre) {
  const TemporaryFolder folder;
  write_shard(folder / "r/train-00000-of-00001", {{0, "", "a", ""}, {1, "", "b", ""}, {2, "", "c", ""}});
  write_shard(folder / "r/val-00000-of-00001", {{2, "", "c", ""}, {1, "", "b", ""}});
  EXPECT_EQ(labels(folder / "r").at(18), (std::pair<int, std::string>(2, "c")));
  // Val has no label 0, which must not shift it.
  EXPECT_EQ(labels(folder / "r", Split::val).at(16), (std::pair<int, std::string>(2, "c")));
}

TEST(LabelOrder, AListBesideFoldersIsTheOrderAndMustNameThemAll) {
  const TemporaryFolder folder;
  for (const char* name : {"in/train/cat/1.jpg", "in/train/dog/2.jpg", "in/val/cat/3.jpg"}) {
    fs::create_directories((folder / name).parent_path());
    write_whole(folder / name, gradient_jpeg(16, 16));
  }
  write_file_atomically(folder / "in/classes.txt", "dog\nowl\ncat\n");
  EXPECT_EQ(open_source(folder / "in", Split::val)->label(0), 2);
  EXPECT_EQ(open_source(folder / "in", Split::train)->classes(), (Names{"dog", "owl", "cat"}));
  write_file_atomically(folder / "in/classes.txt", "dog\n");
  EXPECT_NE(message_of<DataError>([&] { open_source(folder / "in", Split::train); }).find("classes.txt"),
            std::string::npos);
}

}  // namespace
}  // namespace redline::data
