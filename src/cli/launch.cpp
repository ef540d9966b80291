#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/signals.h"
#include "cli/command.h"
#include "comm/launcher.h"
#include "comm/world.h"

namespace redline::cli {
namespace {

struct LaunchArguments {
  comm::LaunchOptions launch;
  std::string master;
  std::optional<double> join_seconds;
  std::vector<std::string> command;
};

// What is launched knows for how long its ranks wait for each other: its launchers wait as long.
std::optional<double> join_seconds_of(const std::vector<std::string>& command) {
  constexpr std::string_view kFlag = "--join-timeout";
  std::string text;
  for (std::size_t i = 0; i < command.size(); ++i) {
    const std::string_view word = command[i];
    if (word == kFlag && i + 1 < command.size())
      text = command[i + 1];
    else if (word.starts_with(kFlag) && word.substr(kFlag.size()).starts_with('='))
      text = word.substr(kFlag.size() + 1);
  }
  double seconds = 0;
  // A value that cannot be read is for the command to refuse.
  return !text.empty() && CLI::detail::lexical_cast(text, seconds) ? std::optional(seconds) : std::nullopt;
}

int run_launch(const LaunchArguments& options) {
  comm::LaunchOptions launch = options.launch;
  if (!options.master.empty())
    comm::parse_endpoint(options.master, "--master", launch.master_host, launch.master_port);
  const std::vector<std::string>& command = options.command;
  launch.join_seconds = options.join_seconds.value_or(join_seconds_of(command).value_or(launch.join_seconds));
  const bool train = !command.empty() && (command[0] == "train" || command[0] == "profile");
  if (!train && !(command.size() > 1 && command[0] == "bench" && command[1] == "comm"))
    throw UsageError(
        "only 'train', 'profile' and 'bench comm' can be launched: redline launch -g 2 -- train …");
  launch.program = {"redline"};
  launch.program.insert(launch.program.end(), command.begin(), command.end());
  const bool resumes = std::ranges::any_of(
      command, [](const std::string& word) { return word == "--resume" || word.starts_with("--resume="); });
  if (train && !resumes) launch.on_restart = {"--resume"};
  const StopSignals signals;
  outlive_readers();
  return comm::launch(launch, [&] { return signals.signal(); });
}

}  // namespace

void add_launch(CLI::App& app, Context& context) {
  CLI::App& command =
      add_command(app, "launch", "Train with several processes, on this machine or on several",
                  {"redline launch -g 4 -- train flowers -b 64 -e 20", "redline launch -g 2 -- bench comm",
                   "redline launch -g 2 --max-restarts 3 -- train flowers --name first",
                   "redline launch -g 8 --nodes 2 --node-rank 0 --master node0:29500 --token-file job.token "
                   "-- train flowers"});
  const auto options = std::make_shared<LaunchArguments>();
  comm::LaunchOptions& launch = options->launch;
  command.add_option("-g,--processes", launch.processes, "Processes on this machine, such as one per GPU")
      ->required();
  command.add_option("--nodes", launch.nodes,
                     "Number of machines; run this command on each, with its own --node-rank");
  command.add_option("--node-rank", launch.node_rank, "Index of this machine, from 0");
  command.add_option(
      "--master", options->master,
      "HOST:PORT of node 0's launcher; rank 0 takes the next port (default, on one machine: a free port of "
      "127.0.0.1)");
  command.add_option("--token-file", launch.token_file,
                     "File with a secret that all machines share; node 0 creates it if it is missing");
  command.add_option("--run-id", launch.run_id,
                     "Name of the job, the same on every machine (default: from --master)");
  command.add_option(
      "--max-restarts", launch.max_restarts,
      "How often to restart the job from its last checkpoint after it lost a process (node 0 decides)");
  command
      .add_option("--min-nodes", launch.min_nodes,
                  "Start with this many machines if the others do not join within 30 s (default: all)")
      ->type_name("N");
  command.add_option("--log-dir", launch.log_dir, "Write each process's stderr to rank-N.log in this folder");
  command
      .add_option("--join-timeout", options->join_seconds,
                  "How long the machines wait for each other (default: as the command, 300)")
      ->type_name("SECONDS");
  command.add_option("command", options->command, "After --: train or bench comm, with its options")
      ->required()
      ->type_name("COMMAND");
  on_run(command, context, [options] { return run_launch(*options); });
}

}  // namespace redline::cli
