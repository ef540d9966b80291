#include "base/stacks.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <csignal>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace redline {
namespace {

// Waits until it is let go; the stacks must name this function.
class Waiter {
 public:
  [[gnu::noinline]] void wait_here() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return done_; });
  }
  void expect(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ == count; });
  }
  void let_go() {
    const std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0;
  bool done_ = false;
};

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

TEST(Stacks, EveryThreadIsNamedByWhereItWaits) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the sanitizer puts signals off until a thread does something else";
#endif
  Waiter waiter;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back([&] { waiter.wait_here(); });
  waiter.expect(3);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // until all of them sleep
  const std::string text = thread_stacks();
  waiter.let_go();
  for (std::thread& thread : threads) thread.join();
  // Three at one place are told once.
  EXPECT_EQ(count_of(text, "Waiter::wait_here"), 1U) << text;
  EXPECT_EQ(count_of(text, "  threads "), 1U) << text;
  EXPECT_EQ(count_of(text, "does not answer"), 0U) << text;
  EXPECT_NE(text.find("asks"), std::string::npos) << text;
  EXPECT_NE(text.find("EveryThreadIsNamedByWhereItWaits"), std::string::npos) << text;
}

// A thread that takes no signals is told all the same, and nothing waits for it for long.
TEST(Stacks, AThreadThatDoesNotAnswerIsToldByItsState) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the sanitizer puts signals off until a thread does something else";
#endif
  Waiter waiter;
  std::thread deaf([&] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    waiter.wait_here();
  });
  waiter.expect(1);
  const std::string text = thread_stacks();
  waiter.let_go();
  deaf.join();
  EXPECT_EQ(count_of(text, "does not answer: state "), 1U) << text;
}

TEST(Stacks, SymbolsAreShownAsWritten) {
  EXPECT_EQ(demangled("_ZN7redline3fooEif"), "redline::foo(int, float)");
  EXPECT_EQ(demangled("main"), "main");
  EXPECT_EQ(demangled("_Znonsense"), "_Znonsense");
}

}  // namespace
}  // namespace redline
