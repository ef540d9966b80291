#include "base/process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

namespace redline {
namespace {

TEST(Process, OneThatEndedDoesNotRunEvenBeforeItsParentWaits) {
  EXPECT_TRUE(is_running(::getpid()));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(0);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);  // leaves it a zombie
  EXPECT_FALSE(is_running(child));
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(is_running(child));
  EXPECT_FALSE(is_running(0));
}

TEST(Process, TheProgramsFolderHoldsTheProgram) {
  EXPECT_TRUE(std::filesystem::exists(program_folder() / program_invocation_short_name)) << program_folder();
}

TEST(Process, AScopedEnvironmentIsRestored) {
  ::setenv("REDLINE_TEST_SET", "before", 1);
  ::unsetenv("REDLINE_TEST_UNSET");
  const auto value = [](const char* name) { return std::string(std::getenv(name) ? std::getenv(name) : ""); };
  {
    const ScopedEnvironment scoped(
        {{"REDLINE_TEST_SET", "during"}, {"REDLINE_TEST_UNSET", "there"}, {"REDLINE_TEST_EMPTY", ""}});
    EXPECT_EQ(value("REDLINE_TEST_SET"), "during");
    EXPECT_EQ(value("REDLINE_TEST_UNSET"), "there");
    EXPECT_EQ(std::getenv("REDLINE_TEST_EMPTY"), nullptr);
  }
  EXPECT_EQ(value("REDLINE_TEST_SET"), "before");
  EXPECT_EQ(std::getenv("REDLINE_TEST_UNSET"), nullptr);
  ::unsetenv("REDLINE_TEST_SET");
}

}  // namespace
}  // namespace redline
