#include "data/sources/zip.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/random.h"
#include "base/temporary_folder.h"
#include "data/archives.h"
#include "data/pictures.h"

namespace redline::data {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::uint8_t>;
using Files = std::map<std::string, Bytes>;

struct Zip {
  TemporaryFolder folder;
  Files files{{"a/one.txt", Bytes(5000, 'x')}, {"b.bin", {1, 2, 3}}, {"empty", {}}};

  Zip() { write_archive(folder / "z.zip", ArchiveFormat::zip, files); }
  Bytes bytes() const { return bytes_of(folder / "z.zip"); }
  RandomFile with(const Bytes& content) const {
    fs::remove(folder / "other.zip");
    write_whole(folder / "other.zip", content);
    return RandomFile(folder / "other.zip");
  }
};

Files read_all(const RandomFile& file) {
  Files found;
  ZipReader reader;
  FileBytes memory;
  for (const ZipMember& member : list_zip(file)) {
    const auto bytes = reader.read(file, member, 1 << 20, memory);
    found[member.name] = Bytes(bytes.begin(), bytes.end());
  }
  return found;
}

TEST(Zip, GivesEveryFile) {
  const Zip zip;
  EXPECT_EQ(read_all(RandomFile(zip.folder / "z.zip")), zip.files);
}

// Content is read in pieces of a MiB.
TEST(Zip, LargeFilesComeInPieces) {
  constexpr std::size_t kMib = 1 << 20;
  Random random(1, 2);
  Files files;
  for (const std::size_t size : {kMib - 1, kMib, 3 * kMib + 7}) {
    Bytes& content = files[fmt::format("noise {}", size)];
    for (std::size_t i = 0; i < size; ++i) content.push_back(static_cast<std::uint8_t>(random.below(256)));
    files[fmt::format("zeros {}", size)] = Bytes(size);
  }
  for (const ArchiveFormat format : {ArchiveFormat::zip, ArchiveFormat::stored_zip}) {
    const TemporaryFolder folder;
    write_archive(folder / "z.zip", format, files);
    const RandomFile file(folder / "z.zip");
    ZipReader reader;
    FileBytes memory;
    for (const ZipMember& member : list_zip(file))
      EXPECT_TRUE(std::ranges::equal(reader.read(file, member, 8 << 20, memory), files.at(member.name)))
          << member.name;
    // Damage in a later piece.
    Bytes damaged = bytes_of(folder / "z.zip");
    for (const ZipMember& member : list_zip(file))
      if (member.name.starts_with("noise 3")) damaged[member.header + 2 * kMib] ^= 1;
    write_whole(folder / "damaged.zip", damaged);
    const RandomFile other(folder / "damaged.zip");
    for (const ZipMember& member : list_zip(other))
      if (member.name.starts_with("noise 3")) {
        EXPECT_THROW(reader.read(other, member, 8 << 20, memory), DataError);
      }
  }
}

TEST(Zip, EveryCutIsFound) {
  const Zip zip;
  const Bytes whole = zip.bytes();
  for (std::size_t size = 0; size < whole.size(); size += 7)
    EXPECT_THROW(read_all(zip.with({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)})),
                 DataError)
        << size;
}

// A flipped bit may leave a time or an attribute different, never the content.
TEST(Zip, EveryFlippedByteIsFoundOrHarmless) {
  const Zip zip;
  const Bytes whole = zip.bytes();
  for (std::size_t at = 0; at < whole.size(); ++at) {
    Bytes damaged = whole;
    damaged[at] ^= 0x11;
    try {
      const Files found = read_all(zip.with(damaged));
      for (const auto& [name, content] : found)
        EXPECT_TRUE(!zip.files.contains(name) || content == zip.files.at(name)) << at;
    } catch (const DataError&) {
    }
  }
}

TEST(Zip, AMemberThatGrowsPastItsSizeOrTheLimitIsRefused) {
  const Zip zip;
  const RandomFile file(zip.folder / "z.zip");
  ZipReader reader;
  FileBytes memory;
  for (ZipMember member : list_zip(file)) {
    if (member.name != "a/one.txt") continue;
    EXPECT_THROW(reader.read(file, member, 4999, memory), DataError);
    member.size = 100;  // a directory that lies
    EXPECT_THROW(reader.read(file, member, 1 << 20, memory), DataError);
  }
}

// Two entries for the same bytes: the trick by which a small zip unpacks to petabytes.
TEST(Zip, MembersThatShareBytesAreRefused) {
  const Zip zip;
  Bytes bytes = zip.bytes();
  std::vector<std::size_t> entries;
  for (std::size_t i = 0; i + 4 < bytes.size(); ++i)
    if (bytes[i] == 'P' && bytes[i + 1] == 'K' && bytes[i + 2] == 1 && bytes[i + 3] == 2)
      entries.push_back(i);
  ASSERT_EQ(entries.size(), 3u);
  for (std::size_t i = 0; i < 4; ++i) bytes[entries[1] + 42 + i] = bytes[entries[0] + 42 + i];
  EXPECT_NE(message_of<DataError>([&] { list_zip(zip.with(bytes)); }).find("hostile"), std::string::npos);
}

TEST(Zip, NamesThatLeadOutsideAreRefused) {
  const TemporaryFolder folder;
  for (const char* name : {"../out", "a/../../out", "/tmp/out"}) {
    write_archive(folder / "bad.zip", ArchiveFormat::zip, Files{{name, {1}}});
    EXPECT_NE(
        message_of<DataError>([&] { list_zip(RandomFile(folder / "bad.zip")); }).find("inside the archive"),
        std::string::npos);
  }
}

TEST(Zip, RandomBytesNeverCrash) {
  const Zip zip;
  Random random(3, 0);
  for (int round = 0; round < 300; ++round) {
    Bytes bytes = zip.bytes();
    for (int i = 0; i < 4; ++i)
      bytes[static_cast<std::size_t>(random.below(bytes.size()))] =
          static_cast<std::uint8_t>(random.next_u32());
    try {
      read_all(zip.with(bytes));
    } catch (const DataError&) {
    }
  }
}

}  // namespace
}  // namespace redline::data
