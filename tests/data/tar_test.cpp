#include "data/sources/tar.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "base/random_file.h"
#include "base/temporary_folder.h"
#include "data/pictures.h"

namespace redline::data {
namespace {

using Bytes = std::vector<std::uint8_t>;

void append(Bytes& archive, const std::string& name, const Bytes& content) {
  const Bytes header = tar_header(name, content.size());
  archive.insert(archive.end(), header.begin(), header.end());
  archive.insert(archive.end(), content.begin(), content.end());
  archive.resize(archive.size() + tar_padding(content.size()));
}

Bytes archive_of(const std::vector<std::pair<std::string, Bytes>>& files) {
  Bytes archive;
  for (const auto& [name, content] : files) append(archive, name, content);
  archive.resize(archive.size() + kTarEnd);
  return archive;
}

std::vector<TarMember> list(const Bytes& archive) {
  return list_tar(
      [&](std::uint64_t offset, std::span<std::uint8_t> into) {
        ASSERT_LE(offset + into.size(), archive.size());
        std::copy_n(archive.begin() + static_cast<std::ptrdiff_t>(offset), into.size(), into.begin());
      },
      0, archive.size());
}

const Bytes kSmall{1, 2, 3};

// Header fields changed after the fact need their checksum made anew.
void fix_checksum(Bytes& archive, std::size_t at) {
  std::fill_n(archive.begin() + static_cast<std::ptrdiff_t>(at) + 148, 8, ' ');
  unsigned sum = 0;
  for (std::size_t i = 0; i < 512; ++i) sum += archive[at + i];
  std::snprintf(reinterpret_cast<char*>(archive.data()) + at + 148, 7, "%06o", sum);
}

TEST(Tar, FindsWhatWasWritten) {
  const Bytes archive =
      archive_of({{"a.txt", kSmall}, {"folder/b", Bytes(512, 7)}, {"empty", {}}, {"c", Bytes(513, 9)}});
  const std::vector<TarMember> members = list(archive);
  ASSERT_EQ(members.size(), 4u);
  EXPECT_EQ(members[0], (TarMember{"a.txt", 512, 3}));
  EXPECT_EQ(members[1], (TarMember{"folder/b", 1536, 512}));
  EXPECT_EQ(members[3].name, "c");
  EXPECT_EQ(archive[members[3].offset + 512], 9);
}

TEST(Tar, TarItselfReadsWhatWasWritten) {
  if (std::system("command -v tar >/dev/null 2>&1") != 0) GTEST_SKIP() << "no tar here";
  const TemporaryFolder folder;
  write_whole(folder / "a.tar", archive_of({{"a", kSmall}, {"x/b", Bytes(700, 7)}}));
  ASSERT_EQ(std::system(("tar -C " + folder.path().string() + " -xf " + (folder / "a.tar").string()).c_str()),
            0);
  EXPECT_EQ(bytes_of(folder / "a"), kSmall);
  EXPECT_EQ(bytes_of(folder / "x/b"), Bytes(700, 7));
}

TEST(Tar, ReadsLongNamesInGnuAndPaxArchives) {
  if (std::system("command -v tar >/dev/null 2>&1") != 0) GTEST_SKIP() << "no tar here";
  const TemporaryFolder folder;
  const std::string name = std::string(120, 'd') + "/" + std::string(130, 'f');
  std::filesystem::create_directories((folder / "in" / name).parent_path());
  write_whole(folder / "in" / name, kSmall);
  for (const std::string format : {"gnu", "pax", "posix"}) {
    const std::filesystem::path path = folder / (format + ".tar");
    const std::string command = "tar --format=" + format + " -C " + (folder / "in").string() + " -cf " +
                                path.string() + " " + std::string(120, 'd');
    ASSERT_EQ(std::system(command.c_str()), 0);
    const RandomFile file(path);
    const auto members = list_tar(
        [&](std::uint64_t at, std::span<std::uint8_t> into) { file.read(at, into); }, 0, file.size());
    ASSERT_EQ(members.size(), 1u) << format;
    EXPECT_EQ(members[0].name, name);
    Bytes content(3);
    file.read(members[0].offset, content);
    EXPECT_EQ(content, kSmall);
  }
}

TEST(Tar, LargeSizesSurvive) {
  const std::uint64_t size = std::uint64_t{150} << 30;  // over what eleven octal digits hold
  const Bytes header = tar_header("big", size);
  const auto members = list_tar(
      [&](std::uint64_t offset, std::span<std::uint8_t> into) {
        std::fill(into.begin(), into.end(), 0);
        if (offset == 0) std::copy(header.begin(), header.end(), into.begin());
      },
      0, size + 4096);
  ASSERT_EQ(members.size(), 1u);
  EXPECT_EQ(members[0].size, size);
}

// Also one between two members: a tar ends with zeros.
TEST(Tar, EveryTruncationIsSeen) {
  const Bytes archive = archive_of({{"a", kSmall}, {"b", Bytes(600, 1)}});
  const std::size_t end_of_content = 512 + 512 + 512 + 600;
  for (std::size_t size = 1; size < end_of_content; ++size) {
    EXPECT_THROW(list({archive.begin(), archive.begin() + static_cast<std::ptrdiff_t>(size)}), DataError)
        << size;
  }
}

TEST(Tar, DamageInAHeaderIsSeen) {
  const Bytes good = archive_of({{"a", kSmall}});
  for (std::size_t at = 0; at < 300; ++at) {
    if (at == 155) continue;  // the byte after the checksum's end means nothing
    Bytes damaged = good;
    damaged[at] ^= 0x41;
    EXPECT_THROW(list(damaged), DataError) << at;
  }
}

TEST(Tar, NamesThatLeaveTheArchiveAndLinksAreRefused) {
  for (const char* name : {"/etc/passwd", "../up", "a/../../b", "a/.."})
    EXPECT_THROW(list(archive_of({{name, kSmall}})), DataError) << name;
  EXPECT_EQ(list(archive_of({{"a..b/..c", kSmall}})).size(), 1u);
  for (const char type : {'1', '2', '3', '6'}) {
    Bytes archive = archive_of({{"link", {}}});
    archive[156] = static_cast<std::uint8_t>(type);
    fix_checksum(archive, 0);
    EXPECT_THROW(list(archive), DataError) << type;
  }
  Bytes folder = archive_of({{"folder/", {}}});
  folder[156] = '5';
  fix_checksum(folder, 0);
  EXPECT_TRUE(list(folder).empty());
}

TEST(Tar, DamagedExtendedHeadersAreRefused) {
  for (const std::string content :
       {"x", "9999 path=a\n", "11 path=abcd", "-5 path=a\n", "6 path\n", "12 size=12x\n"}) {
    Bytes archive = archive_of({{"pax", Bytes(content.begin(), content.end())}, {"a", kSmall}});
    archive[156] = 'x';
    fix_checksum(archive, 0);
    EXPECT_THROW(list(archive), DataError) << content;
  }
}

TEST(RandomFile, ReadsAtAnyPlaceAndKnowsItsEnd) {
  const TemporaryFolder folder;
  write_whole(folder / "a", {{10, 11, 12, 13, 14}});
  const RandomFile file(folder / "a");
  EXPECT_EQ(file.size(), 5u);
  Bytes two(2);
  file.read(3, two);
  EXPECT_EQ(two, (Bytes{13, 14}));
  EXPECT_THROW(file.read(4, two), DataError);
  EXPECT_THROW(RandomFile(folder / "b"), IoError);
  EXPECT_THROW(RandomFile(folder.path()), IoError);
}

}  // namespace
}  // namespace redline::data
