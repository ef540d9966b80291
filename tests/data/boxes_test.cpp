#include "data/sources/boxes.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/temporary_folder.h"
#include "base/tfrecord.h"
#include "data/archives.h"
#include "data/pictures.h"
#include "data/prepare/convert.h"
#include "data/prepare/synth.h"
#include "data/prepare/unpack.h"
#include "data/sources/class_words.h"
#include "data/sources/ilsvrc.h"

namespace redline::data {
namespace {

namespace fs = std::filesystem;

std::string object(const std::string& name, int xmin, int ymin, int xmax, int ymax) {
  return fmt::format(
      "<object><name>{}</name><difficult>0</difficult><bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax>"
      "<ymax>{}</ymax></bndbox></object>",
      name, xmin, ymin, xmax, ymax);
}

std::string annotation(const std::string& objects, int width = 200, int height = 100) {
  return fmt::format(
      "<annotation>\n<filename>any</filename><size><width>{}</width><height>{}</height></size>\n{}"
      "</annotation>\n",
      width, height, objects);
}

TEST(Boxes, AreSharesOfTheImage) {
  const auto boxes =
      parse_annotation(annotation(object("n1", 20, 10, 100, 50) + object("n2", 0, 0, 200, 100)));
  ASSERT_EQ(boxes.size(), 2u);
  EXPECT_EQ(boxes[0], (NamedBox{"n1", {0.1F, 0.1F, 0.5F, 0.5F}}));
  EXPECT_EQ(boxes[1], (NamedBox{"n2", {0, 0, 1, 1}}));
}

TEST(Boxes, AreCutAtTheEdgeAndTurnedRound) {
  const auto boxes =
      parse_annotation(annotation(object("n1", 100, 50, 20, 10) + object("n1", 150, 90, 400, 300) +
                                  object("n1", 300, 10, 400, 20) + object("n1", 5, 5, 5, 9)));
  ASSERT_EQ(boxes.size(), 2u);  // one lies outside, one has no area
  EXPECT_EQ(boxes[0].box, (BoundingBox{0.1F, 0.1F, 0.5F, 0.5F}));
  EXPECT_EQ(boxes[1].box, (BoundingBox{0.75F, 0.9F, 1, 1}));
}

TEST(Boxes, DamagedFilesAreRefusedWithTheLine) {
  const std::string good = annotation(object("n1", 20, 10, 100, 50));
  const auto message = [](const std::string& xml) {
    return message_of<DataError>([&] { parse_annotation(xml); });
  };
  EXPECT_NE(message(good.substr(0, 120)).find("line "), std::string::npos);
  EXPECT_NE(message(annotation(object("n1", 1, 1, 2, 2), 0, 0)).find("size"), std::string::npos);
  EXPECT_NE(message("<svg/>").find("not an annotation"), std::string::npos);
  EXPECT_NE(message("").find("line 1"), std::string::npos);
  EXPECT_NE(message("<!DOCTYPE a [<!ENTITY e \"x\">]>" + good).find("entities"), std::string::npos);
  EXPECT_NE(message(std::string(2 << 20, ' ')).find("bytes"), std::string::npos);
}

TEST(BoxTable, ReadsFoldersAndArchives) {
  TemporaryFolder folder;
  fs::create_directories(folder / "Annotation/n1");
  write_file_atomically(folder / "Annotation/n1/n1_7.xml", annotation(object("n1", 20, 10, 100, 50)));
  write_file_atomically(folder / "Annotation/n1/n1_8.xml", "<annotation>");
  write_archive(folder / "ILSVRC2012_bbox_val_v3.tgz", ArchiveFormat::tar_gz,
                std::map<std::string, std::string>{
                    {"val/ILSVRC2012_val_00000001.xml", annotation(object("n2", 0, 0, 100, 100))}});
  const BoxTable both = BoxTable::load(folder.path());
  EXPECT_EQ(both.images(), 2u);
  EXPECT_EQ(both.bad_files(), 1u);
  EXPECT_EQ(both.find("n1_7.JPEG", "n1"), (std::vector<BoundingBox>{{0.1F, 0.1F, 0.5F, 0.5F}}));
  EXPECT_TRUE(both.find("n1_7.JPEG", "n2").empty()) << "an object of another class";
  EXPECT_EQ(both.find("ILSVRC2012_val_00000001.JPEG", "n2").size(), 1u);
  EXPECT_EQ(BoxTable::load(folder / "ILSVRC2012_bbox_val_v3.tgz").images(), 1u);
  EXPECT_NE(both.fingerprint(), BoxTable::load(folder / "Annotation").fingerprint());
  EXPECT_EQ(boxes_beside(folder.path()), folder / "Annotation");
  EXPECT_EQ(boxes_beside(folder / "Annotation"), fs::path());
  TemporaryFolder empty;
  EXPECT_THROW(BoxTable::load(empty.path()), UsageError);
}

// The records of a folder of shards, by file name.
std::map<std::string, ImageExample> records_of(const fs::path& folder) {
  std::map<std::string, ImageExample> records;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.find("-of-") == name.npos || name.ends_with(".idx")) continue;
    const RandomFile file(entry.path());
    std::vector<std::uint8_t> scratch;
    for (const RecordFrame& frame : list_records(file).frames) {
      ImageExample example = parse_example(read_record(file, frame, scratch));
      example.encoded = {};
      records[example.filename] = example;
    }
  }
  return records;
}

// ImageNet's tars with boxes beside them.
struct Shipped {
  TemporaryFolder folder;

  Shipped() {
    SynthOptions options;
    options.path = folder / "tars";
    options.format = SynthFormat::tars;
    options.classes = 3;
    options.train = 6;
    options.val = 3;
    options.width = options.height = 16;
    write_synth(options);
    const std::string name = open_ilsvrc(options.path, Split::train, {})->classes().front();
    fs::create_directories(folder / "tars/Annotation" / name);
    write_file_atomically(folder / "tars/Annotation" / name / (name + "_0.xml"),
                          annotation(object(name, 20, 10, 100, 50)));
  }
  ConvertOptions options() const {
    ConvertOptions o;
    o.source = folder / "tars";
    o.target = folder / "records";
    o.train_shards = 2;
    o.val_shards = 1;
    return o;
  }
};

TEST(Convert, BoxesAndWordsGoIntoTheRecords) {
  const Shipped shipped;
  EXPECT_EQ(convert_to_tfrecord(shipped.options()).boxed, 1);
  const auto records = records_of(shipped.folder / "records");
  ASSERT_EQ(records.size(), 9u);
  int boxed = 0;
  for (const auto& [name, example] : records) {
    EXPECT_EQ(example.text, "pictures of " + example.synset);  // as the development kit says
    if (example.boxes.empty()) continue;
    ++boxed;
    EXPECT_EQ(name, example.synset + "_0.JPEG");
    EXPECT_EQ(example.boxes.front(), (BoundingBox{0.1F, 0.1F, 0.5F, 0.5F}));
  }
  EXPECT_EQ(boxed, 1);
  // Without the boxes it would be another conversion.
  fs::remove_all(shipped.folder / "tars/Annotation");
  EXPECT_THROW(convert_to_tfrecord(shipped.options()), UsageError);
}

TEST(Unpack, WordsGoWithTheFolders) {
  const Shipped shipped;
  UnpackOptions unpack;
  unpack.source = shipped.folder / "tars";
  unpack.target = shipped.folder / "folders";
  unpack_to_folders(unpack);
  ConvertOptions options = shipped.options();
  options.source = unpack.target;
  convert_to_tfrecord(options);
  for (const auto& [name, example] : records_of(options.target))
    EXPECT_EQ(example.text, "pictures of " + example.synset);
}

TEST(ClassWords, KagglesListIsFoundAboveTheImages) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "LOC_synset_mapping.txt",
                        "n01440764 tench, Tinca tinca\nn01443537 goldfish, Carassius auratus\n");
  std::filesystem::create_directories(folder / "ILSVRC/Data/CLS-LOC");
  const std::vector<std::string> classes{"n01443537", "n9"};
  const auto words = read_words(folder / "ILSVRC/Data/CLS-LOC", classes);
  EXPECT_EQ(words, (std::vector<std::string>{"goldfish, Carassius auratus", ""}));
  EXPECT_EQ(first_word(words[0]), "goldfish");
  EXPECT_EQ(first_word(words[1]), "");
  // words.txt beside the images comes first.
  write_file_atomically(folder / "ILSVRC/Data/CLS-LOC/words.txt", "n01443537\tgold fish\n");
  EXPECT_EQ(read_words(folder / "ILSVRC/Data/CLS-LOC", classes)[0], "gold fish");
}

TEST(ClassWords, LinesThatSayNothingArePassedOver) {
  const std::vector<std::string> classes{"n1", "n2", "n3"};
  EXPECT_EQ(parse_words("n2\tcat, feline\r\nn9\tdog\nn1\n\nn3\t", classes),
            (std::vector<std::string>{"", "cat, feline", ""}));
  EXPECT_EQ(words_text(classes, {"a\tb\nc", "", "d"}), "n1\ta b c\nn3\td\n");
}

}  // namespace
}  // namespace redline::data
