// Ranks as threads of one process: each has its own communicator, and they talk over real sockets. Faults
// that need processes of their own are in tests/cli.
#include "comm/communicator.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "comm/connect.h"
#include "comm/exchange.h"
#include "comm/wire.h"
#include "comm/world.h"
#include "graph/half.h"
#include "tests/comm/run_ranks.h"

namespace redline::comm {
namespace {

using std::chrono::milliseconds;

const std::vector<std::string> kNoFailures3(3), kNoFailures2(2);

TEST(Communicator, AddsUpOverAllRanksAndGivesEveryRankTheSameBits) {
  std::mutex mutex;
  std::vector<std::vector<float>> results;
  const auto failures = run_ranks(3, [&](const ConnectOptions& options) {
    const auto communicator = connect(options);
    std::vector<float> values(100'001);  // large enough for the ring, and not a multiple of the ranks
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = 0.1F * static_cast<float>(i % 97) + static_cast<float>(communicator->rank());
    communicator->all_reduce(values.data(), values.size(), Type::f32, Channel::gradients);
    std::vector<double> few{1.0, static_cast<double>(communicator->rank())};
    communicator->all_reduce(few);
    EXPECT_EQ(few, (std::vector<double>{3, 3}));
    communicator->barrier();
    const std::lock_guard lock(mutex);
    results.push_back(values);
  });
  EXPECT_EQ(failures, kNoFailures3);
  ASSERT_EQ(results.size(), 3U);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
  for (std::size_t i = 0; i < results[0].size(); i += 997)
    EXPECT_NEAR(results[0][i], 3 * 0.1 * static_cast<double>(i % 97) + 3, 1e-4) << i;
}

TEST(Communicator, AddsUpHalvesRoundingEachSumOnce) {
  const auto failures = run_ranks(2, [](const ConnectOptions& options) {
    const auto communicator = connect(options);
    const float mine = communicator->rank() == 0 ? 1.0F : 0x1.8p-8F;  // the sum lies between two bf16 numbers
    std::vector<std::uint16_t> brain(5, graph::float_to_bf16(mine)), half(5, graph::float_to_f16(mine));
    communicator->all_reduce(brain.data(), brain.size(), Type::bf16);
    communicator->all_reduce(half.data(), half.size(), Type::f16);
    EXPECT_EQ(graph::bf16_to_float(brain[4]), 1.0F + 0x1p-7F);
    EXPECT_EQ(graph::f16_to_float(half[4]), 1.0F + 0x1.8p-8F);
  });
  EXPECT_EQ(failures, kNoFailures2);
}

TEST(Communicator, BroadcastsAndGathersAndKnowsItsNeighbours) {
  const auto failures = run_ranks(3, [](const ConnectOptions& options) {
    const auto communicator = connect(options);
    for (const int root : {0, 2}) {
      std::vector<int> values(4, communicator->rank());
      communicator->broadcast(std::as_writable_bytes(std::span(values)), root);
      EXPECT_EQ(values, std::vector<int>(4, root));
    }
    EXPECT_EQ(communicator->gather(10.0 + communicator->rank()), (std::vector<double>{10, 11, 12}));
    const Neighbours found = neighbours(*communicator);
    EXPECT_EQ(found.index, communicator->rank());
    EXPECT_EQ(found.count, 3);
  });
  EXPECT_EQ(failures, kNoFailures3);
}

TEST(Communicator, NobodyPassesABarrierBeforeAllAreThere) {
  std::atomic<int> there = 0;
  const auto failures = run_ranks(3, [&](const ConnectOptions& options) {
    const auto communicator = connect(options);
    if (communicator->rank() == 1) std::this_thread::sleep_for(milliseconds(50));
    ++there;
    communicator->barrier();
    EXPECT_EQ(there, 3);
  });
  EXPECT_EQ(failures, kNoFailures3);
}

TEST(Communicator, ChannelsDoNotWaitForEachOther) {
  const auto failures = run_ranks(2, [](const ConnectOptions& options) {
    const auto communicator = connect(options);
    float gradient = 1;
    double number = 2;
    // The two ranks make their calls in opposite orders, on two threads each.
    const auto first = [&] { communicator->all_reduce(&gradient, 1, Type::f32, Channel::gradients); };
    const auto second = [&] { communicator->all_reduce(&number, 1, Type::f64, Channel::norms); };
    std::thread other;
    if (communicator->rank() == 0) {
      other = std::thread(first);
      std::this_thread::sleep_for(milliseconds(20));
      second();
    } else {
      other = std::thread(second);
      std::this_thread::sleep_for(milliseconds(20));
      first();
    }
    other.join();
    EXPECT_EQ(gradient, 2);
    EXPECT_EQ(number, 4);
  });
  EXPECT_EQ(failures, kNoFailures2);
}

// What bench comm times and checks at length, for the sanitizers.
TEST(Fabric, EveryOperationGivesEachRankItsResult) {
  const auto failures = run_ranks(3, [](const ConnectOptions& options) {
    const auto communicator = connect(options);
    const auto fabric = communicator->make_fabric();
    constexpr std::size_t kPart = 5'000;
    const auto rank = static_cast<std::size_t>(communicator->rank());
    std::vector<float> mine(3 * kPart), sums(mine), gathered(mine), first(mine);
    for (std::size_t i = 0; i < mine.size(); ++i) {
      mine[i] = static_cast<float>(i % 89 + rank);
      sums[i] = static_cast<float>(3 * (i % 89) + 3);
      gathered[i] = static_cast<float>(i % 89 + i / kPart);
      first[i] = static_cast<float>(i % 89);
    }
    const auto part = sums.begin() + static_cast<std::ptrdiff_t>(rank * kPart);
    const std::vector<std::pair<Operation, std::vector<float>>> cases = {
        {Operation::all_reduce, sums},
        {Operation::reduce_scatter, {part, part + kPart}},
        {Operation::all_gather, gathered},
        {Operation::reduce_scatter_all_gather, sums},
        {Operation::broadcast, first}};
    for (const auto& [operation, expected] : cases) {
      for (const std::string& algorithm : fabric->algorithms(operation)) {
        const auto exchange = fabric->make_exchange({operation, Type::f32, mine.size(), algorithm});
        exchange->fill(std::as_bytes(std::span(mine)));
        EXPECT_EQ(exchange->run(2).size(), 2U);
        std::vector<float> result(expected.size());
        exchange->read(std::as_writable_bytes(std::span(result)));
        EXPECT_EQ(result, expected) << static_cast<int>(operation) << " " << algorithm;
      }
    }
  });
  EXPECT_EQ(failures, kNoFailures3);
}

TEST(Communicator, WorksOverIpv6) {
  std::string why;
  if (connect_to("::1", 1, Clock::now() + milliseconds(100), why).fd() < 0 && why.find("refused") == why.npos)
    GTEST_SKIP() << "there is no IPv6 here: " << why;
  const auto failures = run_ranks(2, [](ConnectOptions options) {
    options.world.master_host = "::1";
    const auto communicator = connect(options);
    EXPECT_EQ(communicator->gather(1), (std::vector<double>{1, 1}));
    EXPECT_EQ(communicator->description(), "gloo over ::1");
  });
  EXPECT_EQ(failures, kNoFailures2);
}

TEST(Faults, ARankThatFailsIsNamedByAllOthers) {
  const Stopwatch watch;
  const auto failures = run_ranks(3, [](const ConnectOptions& options) {
    const auto communicator = connect(options);
    if (communicator->rank() == 1) {
      std::this_thread::sleep_for(milliseconds(50));
      communicator->leave("the data is damaged");
      return;
    }
    double value = 0;
    communicator->all_reduce({&value, 1});
  });
  EXPECT_LT(watch.seconds(), 2);  // by word, not by the time limit
  for (const int rank : {0, 2}) {
    EXPECT_TRUE(failures[static_cast<std::size_t>(rank)].starts_with("rank 1 ("))
        << failures[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(failures[static_cast<std::size_t>(rank)].ends_with(" failed: the data is damaged"));
  }
}

// A wrong option or damaged data ends every rank with its code, which nobody starts again; others may.
TEST(Faults, WhatCannotBeHelpedByAnotherStartHasItsCodeOnEveryRank) {
  const std::vector<std::pair<ExitCode, ExitCode>> all = {{ExitCode::usage, ExitCode::usage},
                                                          {ExitCode::bad_data, ExitCode::bad_data},
                                                          {ExitCode::io, ExitCode::try_again},
                                                          {ExitCode::internal, ExitCode::try_again}};
  for (const auto& [own, others] : all) {
    for (const int leaver : {0, 1}) {
      std::atomic<int> heard = 0;
      run_ranks(2, [&](const ConnectOptions& options) {
        try {  // the other may hear of it while it is still connecting
          const auto communicator = connect(options);
          if (communicator->rank() == leaver) return communicator->leave("it cannot go on", own);
          communicator->barrier();
        } catch (const PeerError& failure) {
          heard = static_cast<int>(failure.code());
        }
      });
      EXPECT_EQ(heard, static_cast<int>(others));
    }
  }
}

TEST(Faults, ARankThatKeepsTheOthersWaitingIsNamed) {
  std::atomic<bool> done = false;
  const auto failures = run_ranks(3, [&](ConnectOptions options) {
    options.limits.collective = milliseconds(2000);
    const auto communicator = connect(options);
    if (communicator->rank() == 2) {
      while (!done) std::this_thread::sleep_for(milliseconds(20));
      return;
    }
    double value = 0;
    try {
      communicator->all_reduce({&value, 1});
    } catch (...) {
      done = true;
      throw;
    }
  });
  for (const std::size_t rank : {0U, 1U}) {
    EXPECT_TRUE(failures[rank].starts_with("rank 2 (")) << failures[rank];
    EXPECT_NE(failures[rank].find("kept the others waiting"), std::string::npos) << failures[rank];
  }
}

// Gloo may write to a connection whose other end is gone before it has noticed.
TEST(Faults, WritingToWhoIsGoneDoesNotEndTheProcess) {
  std::signal(SIGPIPE, SIG_DFL);
  // One that left before the other was connected to it would be missed.
  const auto failures = run_ranks(2, [](const ConnectOptions& options) { connect(options)->gather(1); });
  EXPECT_EQ(failures, kNoFailures2);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  EXPECT_EQ(::write(ends[1], "x", 1), -1);
  EXPECT_EQ(errno, EPIPE);
  ::close(ends[1]);
}

TEST(Faults, WaitingForADeviceEndsWhenARankIsLostAndNamesIt) {
  const auto failures = run_ranks(3, [](const ConnectOptions& options) {
    const auto communicator = connect(options);
    int asked = 0;
    communicator->wait("a step", [&] { return ++asked == 3; });
    EXPECT_EQ(asked, 3);
    if (communicator->rank() == 1) return communicator->leave("the card fell off");
    communicator->wait("a step", [] { return false; });
  });
  for (const std::size_t rank : {0U, 2U}) {
    EXPECT_TRUE(failures[rank].starts_with("rank 1 (")) << failures[rank];
    EXPECT_TRUE(failures[rank].ends_with(" failed: the card fell off")) << failures[rank];
  }
}

TEST(Faults, ADeviceThatTakesTooLongEndsTheWaiting) {
  const auto failures = run_ranks(2, [](ConnectOptions options) {
    options.limits.collective = milliseconds(1000);
    const auto communicator = connect(options);
    communicator->wait("a step", [] { return false; });
  });
  for (const std::string& failure : failures)
    EXPECT_NE(failure.find("waited more than 1 s for data from its peers"), std::string::npos) << failure;
}

TEST(Faults, WhoeverHangsIsToldAfterAGrace) {
  std::atomic<bool> stuck = false;
  std::string cause;
  run_ranks(2, [&](ConnectOptions options) {
    options.grace = milliseconds(100);
    options.on_stuck = [&, rank = options.world.rank](const std::string& why) {
      if (rank == 1) cause = why;
      if (rank == 1) stuck = true;
    };
    const auto communicator = connect(options);
    communicator->barrier();
    std::this_thread::sleep_for(milliseconds(50));  // until the other is out of it too
    if (communicator->rank() == 0) return communicator->leave("enough");
    for (int i = 0; i < 200 && !stuck; ++i) std::this_thread::sleep_for(milliseconds(10));
  });
  EXPECT_TRUE(stuck);
  EXPECT_NE(cause.find("rank 0 ("), std::string::npos) << cause;
}

Environment environment(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

TEST(World, IsReadFromEveryLaunchersVariables) {
  EXPECT_EQ(find_world(environment({})).size, 1);

  const World torch = find_world(environment({{"RANK", "3"},
                                              {"WORLD_SIZE", "4"},
                                              {"LOCAL_WORLD_SIZE", "2"},
                                              {"MASTER_ADDR", "node7"},
                                              {"MASTER_PORT", "1234"},
                                              {"TORCHELASTIC_RUN_ID", "job"},
                                              {"TORCHELASTIC_RESTART_COUNT", "2"}}));
  EXPECT_EQ(torch.rank, 3);
  EXPECT_EQ(torch.size, 4);
  EXPECT_EQ(torch.master_host, "node7");
  EXPECT_EQ(torch.master_port, 1236);  // 1234 is the agent's
  EXPECT_EQ(torch.run_id, "job");      // agents may have counted their restarts differently
  EXPECT_FALSE(torch.one_machine);

  const World kubernetes = find_world(environment(
      {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "job-master-0"}, {"MASTER_PORT", "23456"}}));
  EXPECT_EQ(kubernetes.master_port, 23456);

  const World mpi = find_world(environment({{"OMPI_COMM_WORLD_RANK", "1"},
                                            {"OMPI_COMM_WORLD_SIZE", "2"},
                                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                            {"PMIX_NAMESPACE", "77"}}));
  EXPECT_EQ(mpi.rank, 1);
  EXPECT_EQ(mpi.master_host, "127.0.0.1");
  EXPECT_TRUE(mpi.one_machine);
  EXPECT_THROW(find_world(environment({{"OMPI_COMM_WORLD_RANK", "1"},
                                       {"OMPI_COMM_WORLD_SIZE", "4"},
                                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}})),
               UsageError);

  const World slurm = find_world(environment({{"SLURM_PROCID", "2"},
                                              {"SLURM_STEP_NUM_TASKS", "4"},
                                              {"SLURM_STEP_NUM_NODES", "2"},
                                              {"SLURM_JOB_ID", "9"},
                                              {"SLURM_STEP_NODELIST", "gpu[03-04]"}}));
  EXPECT_EQ(slurm.rank, 2);
  EXPECT_EQ(slurm.master_host, "gpu03");
  EXPECT_GE(slurm.master_port, 20000);
  // A batch script outside srun is one process, however many tasks the job has.
  EXPECT_EQ(
      find_world(environment({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "9"}})).size, 1);

  const World flux = find_world(environment({{"FLUX_TASK_RANK", "3"},
                                             {"FLUX_JOB_SIZE", "4"},
                                             {"FLUX_JOB_NNODES", "2"},
                                             {"FLUX_JOB_ID", "f3"},
                                             {"PMI_RANK", "3"},
                                             {"PMI_SIZE", "4"},
                                             {"MASTER_ADDR", "node1"}}));
  EXPECT_EQ(flux.rank, 3);
  EXPECT_EQ(flux.launcher, "flux run");
  EXPECT_EQ(flux.run_id, "f3");
  EXPECT_EQ(flux.master_host, "node1");
  EXPECT_FALSE(flux.one_machine);

  const World pals = find_world(environment({{"PALS_RANKID", "1"},
                                             {"PALS_APID", "a7"},
                                             {"PMI_RANK", "1"},
                                             {"PMI_SIZE", "2"},
                                             {"PMI_LOCAL_SIZE", "2"}}));
  EXPECT_EQ(pals.rank, 1);
  EXPECT_EQ(pals.run_id, "a7");
  EXPECT_TRUE(pals.one_machine);

  const std::map<std::string, std::string> hydra = {
      {"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "4"}};
  EXPECT_EQ(find_world(environment(hydra)).rank, 1);
  EXPECT_EQ(find_world(environment(hydra)).size, 4);
  // On several machines somebody has to say where rank 0 is.
  auto apart = hydra;
  apart["MPI_LOCALNRANKS"] = "2";
  EXPECT_THROW(find_world(environment(apart)), UsageError);
  apart["MASTER_ADDR"] = "node1";
  EXPECT_EQ(find_world(environment(apart)).master_host, "node1");

  // Within a Slurm job, Hydra starts a process of its own on each machine by srun, whose variables its ranks
  // inherit.
  auto in_slurm = hydra;
  for (const auto& [name, value] : std::map<std::string, std::string>{{"SLURM_PROCID", "0"},
                                                                      {"SLURM_STEP_NUM_TASKS", "2"},
                                                                      {"SLURM_STEP_NUM_NODES", "2"},
                                                                      {"SLURM_JOB_ID", "9"},
                                                                      {"SLURM_STEP_NODELIST", "gpu[03-04]"}})
    in_slurm[name] = value;
  EXPECT_EQ(find_world(environment(in_slurm)).rank, 1);
  EXPECT_EQ(find_world(environment(in_slurm)).size, 4);
  EXPECT_EQ(find_world(environment(in_slurm)).run_id, "9");
  in_slurm.erase("MPI_LOCALNRANKS");  // srun --mpi=pmi2 sets PMI's variables too
  in_slurm["PMI_SIZE"] = "2";
  EXPECT_EQ(find_world(environment(in_slurm)).launcher, "srun");

  EXPECT_THROW(find_world(environment({{"RANK", "4"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}})),
               UsageError);
  EXPECT_THROW(find_world(environment({{"RANK", "x"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}})),
               UsageError);
  EXPECT_THROW(find_world(environment({{"RANK", "0"}, {"WORLD_SIZE", "4"}})), UsageError);
}

// A process that was meant to be one of many does not train alone.
TEST(World, HalfOfItIsAnError) {
  for (const char* name : {"RANK", "WORLD_SIZE"}) {
    EXPECT_THROW(find_world(environment({{name, "1"}})), UsageError) << name;
    EXPECT_EQ(
        find_world(environment({{name, "1"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}}))
            .size,
        2)
        << name;
  }
  EXPECT_THROW(find_world(environment({{"PMI_RANK", "1"}})), UsageError);
  EXPECT_THROW(find_world(environment({{"OMPI_COMM_WORLD_RANK", "0"}})), UsageError);
  // PMIx's own launcher says which process this is, and not of how many.
  EXPECT_THROW(find_world(environment({{"PMIX_RANK", "1"}})), UsageError);
  EXPECT_EQ(find_world(environment({{"PMIX_RANK", "0"}})).size, 1);
  EXPECT_THROW(find_world(environment({{"FLUX_TASK_RANK", "1"}})), UsageError);
}

TEST(World, ReadsSlurmsListsAndEndpoints) {
  EXPECT_EQ(first_host("node1"), "node1");
  EXPECT_EQ(first_host("node1,node2"), "node1");
  EXPECT_EQ(first_host("node[007,009-011]"), "node007");
  EXPECT_EQ(first_host("rack[2-3]-gpu,x"), "rack2-gpu");
  EXPECT_THROW(first_host("node[1-2"), UsageError);

  std::string host;
  std::uint16_t port = 0;
  parse_endpoint("[fe80::1]:29500", "--master", host, port);
  EXPECT_EQ(host, "fe80::1");
  EXPECT_EQ(port, 29500);
  parse_endpoint("node1:80", "--master", host, port);
  EXPECT_EQ(host, "node1");
  for (const char* bad : {"node1", "fe80::1:80", ":80", "node1:", "node1:70000", "[]:80"})
    EXPECT_THROW(parse_endpoint(bad, "--master", host, port), UsageError) << bad;
}

}  // namespace
}  // namespace redline::comm
