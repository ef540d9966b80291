#include "base/process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

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

}  // namespace
}  // namespace redline
