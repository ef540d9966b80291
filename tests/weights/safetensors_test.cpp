#include "weights/safetensors.h"

#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "base/build_info.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/random.h"
#include "base/temporary_folder.h"

namespace redline::weights {
namespace {

using Floats = std::vector<float>;

// A file of these JSON and data bytes, as a stranger might have made it.
std::string file_of(const std::string& json, std::size_t data_bytes) {
  std::string text;
  for (int i = 0; i < 8; ++i) text += static_cast<char>(json.size() >> (8 * i));
  return text + json + std::string(data_bytes, 'x');
}

std::string tensor(const std::string& type, const std::string& shape, int begin, int end) {
  return R"({"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":[)" + std::to_string(begin) +
         "," + std::to_string(end) + "]}";
}

// What the reader says about content; empty when it takes it.
std::string complaint_about(const std::string& content) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "file", content, Sync::no);
  try {
    const SafetensorsReader reader(folder / "file");
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find((folder / "file").string()), std::string::npos) << error.what();
    return error.what();
  }
  return "";
}

TEST(Safetensors, ReadsWhatWasWritten) {
  const TemporaryFolder folder;
  const Floats weights = {1.5F, -2.25F, 3e-5F, 65504.0F, 0.1F, -0.0F};
  const std::int64_t count = 77;
  SafetensorsWriter writer(folder / "m.safetensors",
                           {{"count", ElementType::i64, {}},
                            {"a.weight", ElementType::f32, {2, 3}},
                            {"b", ElementType::f16, {6}},
                            {"c", ElementType::bf16, {3, 2, 1}},
                            {"none", ElementType::f16, {0, 4}}},
                           {{"format", "pt"}, {"who", "a \"test\""}});
  writer.write_bytes(std::as_bytes(std::span(&count, 1)));
  for (int i = 0; i < 3; ++i) writer.write(weights);
  writer.write({});
  const SafetensorsWriter::Written written = writer.commit();

  const std::string content = read_file(folder / "m.safetensors");
  EXPECT_EQ(written.bytes, content.size());
  EXPECT_EQ(written.crc32c, crc32c({reinterpret_cast<const std::uint8_t*>(content.data()), content.size()}));
  const SafetensorsReader reader(folder / "m.safetensors");
  Metadata expected = {{"format", "pt"}, {"who", "a \"test\""}};
  for (const auto& [key, value] : program_facts()) expected["redline." + key] = value;
  EXPECT_EQ(reader.metadata(), expected);
  ASSERT_EQ(reader.entries().size(), 5u);
  std::int64_t read_count = 0;
  reader.read_bytes(*reader.find("count"), std::as_writable_bytes(std::span(&read_count, 1)));
  EXPECT_EQ(read_count, 77);
  Floats values(6);
  reader.read(*reader.find("a.weight"), values);
  EXPECT_EQ(values, weights);
  EXPECT_TRUE(std::signbit(values[5]));
  reader.read(*reader.find("b"), values);
  for (std::size_t i = 0; i < 6; ++i)
    EXPECT_NEAR(values[i], weights[i], std::abs(weights[i]) * 0x1p-11 + 0x1p-25);
  reader.read(*reader.find("c"), values);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(values[i], weights[i], std::abs(weights[i]) * 0x1p-8);
  EXPECT_EQ(reader.find("c")->shape, (Dimensions{3, 2, 1}));
  EXPECT_EQ(reader.find("d"), nullptr);
  EXPECT_THROW(reader.read(*reader.find("count"), std::span(values).first(1)), DataError);
}

// Values that do not fit one buffer of the conversion, at sizes around its edge.
TEST(Safetensors, LongTensorsConvertWhole) {
  const TemporaryFolder folder;
  for (const std::int64_t size : {65535, 65536, 65537, 200000}) {
    Floats values(static_cast<std::size_t>(size)), read(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 251);
    SafetensorsWriter writer(folder / "m", {{"w", ElementType::f16, {size}}}, {}, Sync::no);
    writer.write(values);
    writer.commit();
    const SafetensorsReader reader(folder / "m");
    reader.read(reader.entries().front(), read);
    EXPECT_EQ(read, values);
  }
}

TEST(Safetensors, NothingAppearsBeforeCommit) {
  const TemporaryFolder folder;
  {
    SafetensorsWriter writer(folder / "m", {{"w", ElementType::f32, {2}}}, {});
    EXPECT_THROW(writer.commit(), InternalError);
    EXPECT_THROW(writer.write(Floats(3)), InternalError);
  }
  EXPECT_EQ(folder.entries(), 0);
}

TEST(Safetensors, TensorsOfStrangersLieWhereTheyMay) {
  const std::string whole =
      R"({"a":)" + tensor("F32", "[2]", 0, 8) + R"(,"b":)" + tensor("U8", "[3]", 8, 11) + "}";
  EXPECT_EQ(complaint_about(file_of(whole, 11)), "");
  EXPECT_EQ(complaint_about(file_of("{}", 0)), "");
  EXPECT_EQ(complaint_about(file_of(R"({"__metadata__":{"a":"b"}}   )", 0)), "");

  const auto expect = [](const std::string& content, const std::string& part) {
    EXPECT_NE(complaint_about(content).find(part), std::string::npos) << complaint_about(content) << "\n"
                                                                      << part;
  };
  expect(file_of(whole, 10), "cut off");
  expect(file_of(whole, 12), "end at byte 11");
  expect(file_of(R"({"a":)" + tensor("F32", "[2]", 0, 8) + R"(,"b":)" + tensor("U8", "[3]", 7, 10) + "}", 10),
         "begins at byte 7");  // overlap
  expect(file_of(R"({"a":)" + tensor("F32", "[2]", 0, 8) + R"(,"b":)" + tensor("U8", "[3]", 9, 12) + "}", 12),
         "begins at byte 9");  // hole
  expect(file_of(R"({"a":)" + tensor("U8", "[4]", 0, 4) + R"(,"a":)" + tensor("U8", "[4]", 4, 8) + "}", 8),
         "twice");
  expect(file_of(R"({"a":)" + tensor("F32", "[3]", 0, 8) + "}", 8), "does not take 8 bytes");
  expect(file_of(R"({"a":)" + tensor("F32", "[4294967296,4294967296]", 0, 0) + "}", 0),
         "does not take 0 bytes");
  expect(file_of(R"({"a":)" + tensor("F32", "[-1]", 0, 8) + "}", 8), "not a size");
  expect(file_of(R"({"a":)" + tensor("F32", "[1.5]", 0, 6) + "}", 6), "not a size");
  expect(file_of(R"({"a":)" + tensor("F8_E4M3", "[8]", 0, 8) + "}", 8), "F8_E4M3");
  expect(file_of(R"({"a":)" + tensor("F32", "[2]", 8, 0) + "}", 8), "damaged");
  expect(file_of(R"({"a":{"dtype":"F32","shape":[2]}})", 8), "data_offsets");
  expect(file_of(R"({"a":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})", 8), "nested");
  expect(file_of(R"({"a":[]})", 0), "object");
  expect(file_of(R"({"__metadata__":{"a":1}})", 0), "other than text");
  expect(file_of(R"({"a":)", 0), "not JSON");
  expect(file_of(" {}", 0), "begin with");
  expect(file_of("", 0), "begin with");
  expect("short", "only 5 bytes");
  expect(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10), "length of a header");
  expect(std::string("PK\x03\x04", 4) + std::string(100, 'z'),
         "length of a header");  // a zip: PyTorch's own format
}

// Every byte of a header changed to a few others: taken or refused with DataError, and never a tensor that
// lies outside the file.
TEST(Safetensors, DamagedHeadersNeverReachOutside) {
  const TemporaryFolder folder;
  const std::string json = R"({"__metadata__":{"k":"v"},"a":)" + tensor("F32", "[2,3]", 0, 24) + R"(,"b":)" +
                           tensor("BF16", "[]", 24, 26) + "}";
  const std::string whole = file_of(json, 26);
  Random random(7, 0);
  int refused = 0;
  for (std::size_t at = 0; at < 8 + json.size(); ++at) {
    for (int i = 0; i < 4; ++i) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(random.uniform() * 256);
      write_file_atomically(folder / "f", damaged, Sync::no);
      try {
        const SafetensorsReader reader(folder / "f");
        for (const Entry& entry : reader.entries()) {
          ASSERT_LE(entry.offset + entry.bytes, 26u);
          std::vector<std::byte> bytes(entry.bytes);
          reader.read_bytes(entry, bytes);
        }
      } catch (const DataError&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 400);
}

// Cut at every length: refused, with the file's name.
TEST(Safetensors, CutFilesAreRefused) {
  const std::string whole = file_of(R"({"a":)" + tensor("F32", "[2,3]", 0, 24) + "}", 24);
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_NE(complaint_about(whole.substr(0, size)), "") << size;
}

}  // namespace
}  // namespace redline::weights
