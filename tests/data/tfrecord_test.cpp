#include "base/tfrecord.h"

#include <gtest/gtest.h>

#include <string_view>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/random.h"
#include "base/temporary_folder.h"
#include "data/pictures.h"
#include "data/sources/example.h"

namespace redline::data {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes bytes(std::string_view text) { return {text.begin(), text.end()}; }

TEST(Crc32c, KnownAnswers) {
  EXPECT_EQ(crc32c(bytes("123456789")), 0xe3069283u);  // the check value of the CRC catalogues
  EXPECT_EQ(crc32c(Bytes(32, 0)), 0x8a9136aau);        // RFC 3720, B.4
  EXPECT_EQ(crc32c({}), 0u);
  EXPECT_EQ(crc32c(bytes("6789"), crc32c(bytes("12345"))), 0xe3069283u);  // in two parts
}

struct Shard {
  TemporaryFolder folder;
  Bytes content;
  std::vector<Bytes> records;

  Shard() {
    for (int i = 0; i < 5; ++i) {
      records.push_back(Bytes(static_cast<std::size_t>(i * 37), static_cast<std::uint8_t>(i)));
      append_record(content, records.back());
    }
  }
  RandomFile file(const Bytes& with) const {
    std::filesystem::remove(folder / "shard");
    write_whole(folder / "shard", with);
    return RandomFile(folder / "shard");
  }
};

TEST(TfRecord, ReadsWhatWasWritten) {
  const Shard shard;
  const RandomFile file = shard.file(shard.content);
  const RecordList list = list_records(file);
  EXPECT_EQ(list.damage, "");
  ASSERT_EQ(list.frames.size(), 5u);
  Bytes scratch;
  for (std::size_t i = 5; i-- > 0;) {
    const auto data = read_record(file, list.frames[i], scratch);
    EXPECT_EQ(Bytes(data.begin(), data.end()), shard.records[i]);
  }
}

// The frame of an empty record, worked out by hand from the definition: eight zero bytes, their masked CRC,
// the masked CRC of nothing.
TEST(TfRecord, TheFrameIsTheFormats) {
  Bytes out;
  append_record(out, {});
  EXPECT_EQ(out, (Bytes{0, 0, 0, 0, 0, 0, 0, 0, 0x29, 0x03, 0x98, 0x07, 0xd8, 0xea, 0x82, 0xa2}));
}

TEST(TfRecord, TruncationGivesUpTheRestAndSaysWhere) {
  const Shard shard;
  std::vector<std::size_t> ends;
  for (std::size_t i = 0, at = 0; i < 5; ++i) ends.push_back(at += shard.records[i].size() + 16);
  for (std::size_t size = 0; size < shard.content.size(); ++size) {
    const RandomFile file =
        shard.file({shard.content.begin(), shard.content.begin() + static_cast<std::ptrdiff_t>(size)});
    const RecordList list = list_records(file);
    const auto whole =
        static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), size) - ends.begin());
    EXPECT_EQ(list.frames.size(), whole) << size;
    EXPECT_EQ(list.damage.empty(), size == 0 || size == ends[whole ? whole - 1 : 0]) << size;
  }
}

TEST(TfRecord, EveryFlippedByteIsFound) {
  const Shard shard;
  const std::vector<RecordFrame> frames = list_records(shard.file(shard.content)).frames;
  Bytes scratch;
  for (std::size_t at = 0; at < shard.content.size(); ++at) {
    Bytes damaged = shard.content;
    damaged[at] ^= 0x10;
    const RandomFile file = shard.file(damaged);
    int bad = 0;
    for (const RecordFrame& frame : frames) {
      try {
        read_record(file, frame, scratch);
      } catch (const DataError&) {
        ++bad;
        EXPECT_TRUE(at >= frame.offset && at < frame.offset + frame.size);
      }
    }
    EXPECT_EQ(bad, 1) << at;
  }
}

TEST(TfRecord, TheIndexDescribesTheFileOrIsRefused) {
  const Shard shard;
  const std::vector<RecordFrame> frames = list_records(shard.file(shard.content)).frames;
  const std::string text = index_text(frames);
  EXPECT_EQ(text.substr(0, 5), "0 16\n");
  const auto read = [&](const std::string& content, std::uint64_t size) {
    std::filesystem::remove(shard.folder / "idx");
    write_whole(shard.folder / "idx", bytes(content));
    return read_index(shard.folder / "idx", size);
  };
  EXPECT_EQ(read(text, shard.content.size()), frames);
  EXPECT_THROW(read(text, shard.content.size() + 1), DataError);
  EXPECT_THROW(read(text.substr(5), shard.content.size()), DataError);
  EXPECT_THROW(read(text.substr(0, text.size() - 1), shard.content.size()), DataError);
  EXPECT_THROW(read("0 x\n", 16), DataError);
  EXPECT_THROW(read("0 18446744073709551615\n", 16), DataError);
  EXPECT_THROW(read("16\n", 16), DataError);
}

ImageExample sample(const Bytes& image) {
  ImageExample e;
  e.encoded = image;
  e.label = 417;
  e.synset = "n02782093";
  e.text = "balloon";
  e.filename = "n02782093_1.JPEG";
  e.format = "JPEG";
  e.colorspace = "RGB";
  e.height = 375;
  e.width = 500;
  e.channels = 3;
  e.boxes = {{0.125f, 0.25f, 0.5f, 0.75f}, {0, 0, 1, 1}};
  return e;
}

TEST(Example, ReadsWhatWasWritten) {
  const Bytes image(100'000, 3);
  const Bytes message = serialize_example(sample(image));
  const ImageExample e = parse_example(message);
  EXPECT_EQ(Bytes(e.encoded.begin(), e.encoded.end()), image);
  EXPECT_GE(e.encoded.data(), message.data());  // a view, not a copy
  EXPECT_LT(e.encoded.data(), message.data() + message.size());
  EXPECT_EQ(e.label, 417);
  EXPECT_EQ(e.synset, "n02782093");
  EXPECT_EQ(e.text, "balloon");
  EXPECT_EQ(e.filename, "n02782093_1.JPEG");
  EXPECT_EQ(e.width, 500);
  EXPECT_EQ(e.boxes, sample(image).boxes);
}

// int64_list and float_list may also come unpacked, one tag a value, as old writers do.
TEST(Example, ReadsUnpackedLists) {
  const Bytes label{0x0a, 0x11, 'i', 'm', 'a', 'g', 'e',  '/',  'c',  'l',  'a',  's', 's',
                    '/',  'l',  'a', 'b', 'e', 'l', 0x12, 0x04, 0x1a, 0x02, 0x08, 0x07};
  const Bytes encoded{0x0a, 0x0d, 'i', 'm', 'a',  'g',  'e',  '/',  'e',  'n',  'c',
                      'o',  'd',  'e', 'd', 0x12, 0x05, 0x0a, 0x03, 0x0a, 0x01, 'x'};
  Bytes map;
  for (const Bytes& entry : {label, encoded}) {
    map.push_back(0x0a);
    map.push_back(static_cast<std::uint8_t>(entry.size()));
    map.insert(map.end(), entry.begin(), entry.end());
  }
  Bytes message{0x0a, static_cast<std::uint8_t>(map.size())};
  message.insert(message.end(), map.begin(), map.end());
  const ImageExample e = parse_example(message);
  EXPECT_EQ(e.label, 7);
  ASSERT_EQ(e.encoded.size(), 1u);
  EXPECT_EQ(e.encoded[0], 'x');
}

TEST(Example, DamageNeverCrashes) {
  const Bytes message = serialize_example(sample(Bytes(300, 3)));
  for (std::size_t size = 0; size < message.size(); ++size)
    EXPECT_THROW(parse_example({message.data(), size}), DataError) << size;
  Random random(5);
  for (int i = 0; i < 5000; ++i) {
    Bytes damaged = message;
    damaged[random.below(damaged.size())] = static_cast<std::uint8_t>(random.below(256));
    try {
      parse_example(damaged);
    } catch (const DataError&) {
    }
  }
}

}  // namespace
}  // namespace redline::data
