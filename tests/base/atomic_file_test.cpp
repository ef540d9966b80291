#include "base/atomic_file.h"

#include <cstddef>
#include <fstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "base/error.h"
#include "temporary_folder.h"

namespace redline {
namespace {

TEST(AtomicFile, HasItsNameOnlyAfterCommit) {
  TemporaryFolder folder;
  {
    AtomicFile file(folder / "a.txt");
    file.write("hello ");
    file.write("there");
    EXPECT_EQ(file.size(), 11u);
    EXPECT_FALSE(std::filesystem::exists(folder / "a.txt"));
    file.commit();
  }
  EXPECT_EQ(read_file(folder / "a.txt"), "hello there");
  EXPECT_EQ(folder.entries(), 1);
}

TEST(AtomicFile, LeavesTheOldContentAndNothingElseWhenAbandoned) {
  TemporaryFolder folder;
  write_file_atomically(folder / "a.txt", "old");
  {
    AtomicFile file(folder / "a.txt");
    file.write("new");
  }
  EXPECT_EQ(read_file(folder / "a.txt"), "old");
  EXPECT_EQ(folder.entries(), 1);
}

TEST(AtomicFile, ReplacesWhatWasThere) {
  TemporaryFolder folder;
  write_file_atomically(folder / "a.txt", "old and longer");
  write_file_atomically(folder / "a.txt", "new", Sync::no);
  EXPECT_EQ(read_file(folder / "a.txt"), "new");
}

TEST(AtomicFile, WritesToWhatALinkNames) {
  TemporaryFolder folder;
  std::filesystem::create_directory(folder / "real");
  write_file_atomically(folder / "real" / "a.txt", "old");
  std::filesystem::create_symlink("real/a.txt", folder / "link");
  write_file_atomically(folder / "link", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(read_file(folder / "real" / "a.txt"), "new");
}

TEST(AtomicFile, WritesToAPipeInsteadOfReplacingIt) {
  TemporaryFolder folder;
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  { AtomicFile abandoned(pipe); }
  write_file_atomically(pipe, "hello");
  char text[16] = {};
  EXPECT_EQ(::read(reader, text, sizeof text), 5);
  EXPECT_STREQ(text, "hello");
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_EQ(folder.entries(), 1);
  ::close(reader);
}

TEST(AtomicFile, WritesToAnOpenFileByItsDescriptor) {
  TemporaryFolder folder;
  const std::string path = folder / "out";
  const int open_file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  ASSERT_EQ(::write(open_file, "first ", 6), 6);
  write_file_atomically("/proc/self/fd/" + std::to_string(open_file), "second ");
  ASSERT_EQ(::write(open_file, "third", 5), 5);
  ::close(open_file);
  EXPECT_EQ(read_file(path), "first second third");
}

TEST(AtomicFile, AFullDeviceIsAnError) {
  if (!std::filesystem::is_character_file("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  EXPECT_THROW(write_file_atomically("/dev/full", "hello"), IoError);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

TEST(AtomicFile, KeepsTheOrderOfSmallAndLargeWrites) {
  TemporaryFolder folder;
  std::string expected;
  AtomicFile file(folder / "big");
  for (std::size_t size : {1u, 300'000u, 7u, 262'144u, 262'143u, 2u, 100'000u, 200'000u}) {
    const std::string piece(size, static_cast<char>('a' + expected.size() % 26));
    file.write(piece);
    expected += piece;
  }
  file.commit();
  EXPECT_EQ(read_file(folder / "big"), expected);
}

TEST(AtomicFile, NamesThePathAndTheReason) {
  TemporaryFolder folder;
  try {
    AtomicFile file(folder / "missing" / "a.txt");
    FAIL() << "no folder, yet no error";
  } catch (const IoError& e) {
    EXPECT_EQ(e.code(), ExitCode::io);
    EXPECT_NE(std::string(e.what()).find("missing/a.txt: No such file or directory"), std::string::npos)
        << e.what();
  }
}

TEST(AtomicFile, RefusesToReplaceAFolder) {
  TemporaryFolder folder;
  std::filesystem::create_directories(folder / "taken/inside");
  EXPECT_THROW(write_file_atomically(folder / "taken", "x"), IoError);
  EXPECT_EQ(folder.entries(), 1);
  EXPECT_THROW(write_file_atomically(folder.path() / "", "x"), IoError);
}

// A file size limit stands in for a full disk: write(2) fails part of the way either way. In a child process,
// since the limit cannot be raised again.
TEST(AtomicFile, LeavesNothingWhenTheDiskIsFull) {
  TemporaryFolder folder;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 20, 1 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    int code = 1;
    try {
      write_file_atomically(folder / "big", std::string(2 << 20, 'x'));
    } catch (const IoError&) {
      code = 42;
    }
    ::_exit(code);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 42);
  EXPECT_EQ(folder.entries(), 0);
}

TEST(AtomicFile, RemovesTheLeftoversOfDeadProcessesOnly) {
  TemporaryFolder folder;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    AtomicFile file(folder / "half");
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  ASSERT_EQ(folder.entries(), 1);
  std::ofstream(folder / ".not.ours.partial") << "x";
  std::ofstream(folder / "12-3.partial") << "x";
  AtomicFile mine(folder / "mine");
  EXPECT_EQ(remove_partial_files(folder.path()), 1u);
  EXPECT_EQ(folder.entries(), 3);
  mine.commit();
}

TEST(ReadFile, ReadsFilesThatSayNoSize) {
  EXPECT_NE(read_file("/proc/self/status").find("Pid:"), std::string::npos);
  EXPECT_THROW(read_file("/no/such/file"), IoError);
  EXPECT_THROW(read_file("/"), IoError);
}

TEST(ReadFile, EndsWhereAFileHasNoEnd) {
  TemporaryFolder folder;
  write_file_atomically(folder / "a.txt", "hello");
  EXPECT_EQ(read_file(folder / "a.txt", 5), "hello");
  EXPECT_THROW(read_file(folder / "a.txt", 4), DataError);
  EXPECT_THROW(read_file("/dev/zero", 1 << 20), DataError);
}

}  // namespace
}  // namespace redline
