#include "base/signals.h"

#include <csignal>

#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "base/error.h"

namespace redline {
namespace {

TEST(StopSignals, TheFirstRaisesTheFlag) {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGHUP}) {
    StopSignals signals;
    EXPECT_FALSE(signals.requested());
    EXPECT_EQ(signals.signal(), 0);
    ::raise(signal);
    EXPECT_TRUE(signals.requested());
    EXPECT_EQ(signals.signal(), signal);
  }
}

TEST(StopSignals, StartsOverWithEachOne) {
  {
    StopSignals signals;
    ::raise(SIGINT);
    EXPECT_THROW(StopSignals(), InternalError);
  }
  StopSignals signals;
  EXPECT_FALSE(signals.requested());
}

// Ends of child processes: status as waitpid gives it.
template <typename Body>
int status_of_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(0);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

TEST(StopSignals, TheSecondEndsTheProcessWithItsCode) {
  const int status = status_of_child([] {
    StopSignals signals;
    ::raise(SIGTERM);
    ::raise(SIGINT);
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGINT);
}

// As timeout(1) does: a process, and then its group.
TEST(StopSignals, TheSameAtOnceIsNotASecond) {
  const int status = status_of_child([] {
    StopSignals signals;
    ::raise(SIGINT);
    ::raise(SIGINT);
    ::_exit(signals.signal() == SIGINT ? 3 : 4);
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

TEST(StopSignals, TheSameLaterIsASecond) {
  const int status = status_of_child([] {
    StopSignals signals;
    ::raise(SIGINT);
    ::usleep(300'000);
    ::raise(SIGINT);
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGINT);
}

// A shell and the system both tell of a closed terminal.
TEST(StopSignals, AClosedTerminalMayBeToldTwice) {
  const int status = status_of_child([] {
    StopSignals signals;
    ::raise(SIGHUP);
    ::raise(SIGHUP);
    ::_exit(signals.signal() == SIGHUP ? 3 : 4);
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

TEST(StopSignals, LeavesAnIgnoredHangupIgnored) {
  const int status = status_of_child([] {
    ::signal(SIGHUP, SIG_IGN);  // as nohup does
    StopSignals signals;
    ::raise(SIGHUP);
    ::_exit(signals.requested() ? 4 : 3);
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

int code_while_setting_up(int signal, bool again, bool before = false) {
  const int status = status_of_child([&] {
    StopSignals signals;
    if (before) ::raise(signal);
    signals.end_at_once(true, again);
    ::raise(signal);
  });
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

TEST(StopSignals, WhileNothingWouldBeLostTheFirstEndsTheProcess) {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGHUP}) {
    EXPECT_EQ(code_while_setting_up(signal, false), 128 + signal);
    EXPECT_EQ(code_while_setting_up(signal, true), signal == SIGINT ? 130 : 75);
  }
}

TEST(StopSignals, OneThatCameBeforeEndsTheProcessToo) {
  EXPECT_EQ(code_while_setting_up(SIGTERM, false, true), 128 + SIGTERM);
}

TEST(StopSignals, GivesBackTheOldBehaviour) {
  const int status = status_of_child([] {
    { StopSignals signals; }
    ::raise(SIGTERM);
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

}  // namespace
}  // namespace redline
