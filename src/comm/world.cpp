#include "comm/world.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <vector>

#include "base/atomic_file.h"
#include "base/error.h"

namespace redline::comm {
namespace {

// As torchrun's users know it.
constexpr std::uint16_t kDefaultPort = 29500;
// Concurrent jobs on a machine get different ports in [kFirstPort, kFirstPort + kPorts).
constexpr std::uint32_t kFirstPort = 20000, kPorts = 10000;

std::int64_t number(const char* name, const std::string& text, std::int64_t least, std::int64_t most) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
    throw UsageError("{}={} must be a number from {} to {}", name, text, least, most);
  return value;
}

std::string need(const Environment& environment, const char* name, const std::string& launcher) {
  const auto value = environment(name);
  if (!value || value->empty())
    throw UsageError("{} did not set {}: set it, or unset its other variables", launcher, name);
  return *value;
}

std::uint16_t port_of_job(const std::string& job) {
  std::uint32_t hash = 2166136261U;  // FNV-1a
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return static_cast<std::uint16_t>(kFirstPort + hash % kPorts);
}

void set_ranks(World& world, const std::string& rank, const char* rank_name, const std::string& size,
               const char* size_name) {
  constexpr std::int64_t kMost = 1 << 20;
  world.size = static_cast<int>(number(size_name, size, 1, kMost));
  world.rank = static_cast<int>(number(rank_name, rank, 0, world.size - 1));
}

// RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT: redline launch, torchrun, Kubernetes.
void from_rank_variables(const Environment& environment, World& world) {
  const auto torch_id = environment("TORCHELASTIC_RUN_ID"), own_id = environment("REDLINE_RUN_ID");
  world.launcher = own_id ? "redline launch" : torch_id ? "torchrun" : "the environment";
  set_ranks(world, need(environment, "RANK", world.launcher), "RANK",
            need(environment, "WORLD_SIZE", world.launcher), "WORLD_SIZE");
  if (world.size == 1) return;
  world.master_host = need(environment, "MASTER_ADDR", world.launcher);
  const auto port = environment("MASTER_PORT");
  world.master_port =
      port ? static_cast<std::uint16_t>(number("MASTER_PORT", *port, 1, 65535)) : kDefaultPort;
  // torchrun's agent may use MASTER_PORT for its own store. Not the next port either: if the system chose the
  // agent's port, the next one is among those that Linux gives to connections.
  if (torch_id && !own_id)
    world.master_port = static_cast<std::uint16_t>(world.master_port + (world.master_port < 65534 ? 2 : -2));
  // Not with TORCHELASTIC_RESTART_COUNT: each of torchrun's agents counts its own, and none the rounds.
  world.run_id = own_id.value_or(torch_id.value_or(""));
  const auto local = environment("LOCAL_WORLD_SIZE");
  world.one_machine = local && number("LOCAL_WORLD_SIZE", *local, 1, world.size) == world.size;
}

// MASTER_ADDR and MASTER_PORT if the user set them, else `host` and a port derived from the job.
void set_master(const Environment& environment, const std::string& host, World& world) {
  world.master_host = environment("MASTER_ADDR").value_or(host);
  const auto port = environment("MASTER_PORT");
  world.master_port =
      port ? static_cast<std::uint16_t>(number("MASTER_PORT", *port, 1, 65535)) : port_of_job(world.run_id);
}

// A launcher that gives ranks and the number of processes per machine, but not the host of rank 0.
struct Launcher {
  const char *name, *rank, *size;
  const char* own;               // a variable that no other launcher sets
  const char* local_size;        // ? ranks on this machine
  const char* machines;          // ? how many there are
  std::vector<const char*> job;  // the first that is set tells jobs apart
  const char* remedy;            // how MASTER_ADDR gets to the ranks
};

const Launcher kOpenMpi{"mpirun",
                        "OMPI_COMM_WORLD_RANK",
                        "OMPI_COMM_WORLD_SIZE",
                        "OMPI_COMM_WORLD_RANK",
                        "OMPI_COMM_WORLD_LOCAL_SIZE",
                        nullptr,
                        {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"},
                        "give mpirun -x MASTER_ADDR=<host of rank 0>"};
// In this order: the first two set the variables of the last as well.
const Launcher kOthers[] = {{"flux run",
                             "FLUX_TASK_RANK",
                             "FLUX_JOB_SIZE",
                             "FLUX_TASK_RANK",
                             nullptr,
                             "FLUX_JOB_NNODES",
                             {"FLUX_JOB_ID"},
                             "give flux run --env=MASTER_ADDR=<host of rank 0>"},
                            {"mpiexec (PALS)",
                             "PALS_RANKID",
                             "PMI_SIZE",
                             "PALS_RANKID",
                             "PMI_LOCAL_SIZE",
                             nullptr,
                             {"PALS_APID"},
                             "give mpiexec --env MASTER_ADDR=<host of rank 0>"},
                            {"mpiexec (MPICH, Intel MPI)",
                             "PMI_RANK",
                             "PMI_SIZE",
                             "MPI_LOCALNRANKS",
                             "MPI_LOCALNRANKS",
                             nullptr,
                             {"PBS_JOBID", "LSB_JOBID", "SLURM_JOB_ID"},
                             "give mpiexec -genv MASTER_ADDR <host of rank 0>"}};

const Launcher* find_launcher(const Environment& environment, const char* const Launcher::*variable) {
  const auto* found = std::ranges::find_if(
      kOthers, [&](const Launcher& one) { return environment(one.*variable).has_value(); });
  return found == std::end(kOthers) ? nullptr : found;
}

void from_launcher(const Launcher& by, const Environment& environment, World& world) {
  world.launcher = by.name;
  set_ranks(world, need(environment, by.rank, world.launcher), by.rank,
            need(environment, by.size, world.launcher), by.size);
  if (world.size == 1) return;
  if (by.local_size != nullptr) {
    const auto local = environment(by.local_size);
    world.one_machine = local && number(by.local_size, *local, 1, world.size) == world.size;
  }
  if (by.machines != nullptr) world.one_machine = environment(by.machines).value_or("") == "1";
  world.run_id = by.name;
  for (const char* name : by.job) {
    if (const auto job = environment(name)) {
      world.run_id = *job;
      break;
    }
  }
  if (!world.one_machine && !environment("MASTER_ADDR")) {
    throw UsageError("{} does not say where rank 0 is, and the ranks are on several machines: {}", by.name,
                     by.remedy);
  }
  set_master(environment, "127.0.0.1", world);
}

void from_slurm(const Environment& environment, World& world) {
  world.launcher = "srun";
  set_ranks(world, need(environment, "SLURM_PROCID", world.launcher), "SLURM_PROCID",
            need(environment, "SLURM_STEP_NUM_TASKS", world.launcher), "SLURM_STEP_NUM_TASKS");
  if (world.size == 1) return;
  world.one_machine = environment("SLURM_STEP_NUM_NODES").value_or("") == "1";
  world.run_id = need(environment, "SLURM_JOB_ID", world.launcher) + "." +
                 environment("SLURM_STEP_ID").value_or("0") + "." +
                 environment("SLURM_RESTART_COUNT").value_or("0");
  const auto nodes = environment("SLURM_STEP_NODELIST");
  set_master(environment,
             world.one_machine
                 ? "127.0.0.1"
                 : first_host(nodes ? *nodes : need(environment, "SLURM_JOB_NODELIST", world.launcher)),
             world);
}

}  // namespace

World find_world(const Environment& environment) {
  World world;
  const auto rank = environment("RANK"), size = environment("WORLD_SIZE");
  if (rank && size) {
    from_rank_variables(environment, world);
  } else if (environment(kOpenMpi.rank) || environment(kOpenMpi.size)) {
    from_launcher(kOpenMpi, environment, world);
  } else if (const Launcher* inner = find_launcher(environment, &Launcher::own)) {
    from_launcher(*inner, environment, world);  // before srun, which may have started the launcher itself
  } else if (environment("SLURM_STEP_NUM_TASKS")) {  // srun's: a batch script outside it is one process
    from_slurm(environment, world);
  } else if (const Launcher* other = find_launcher(environment, &Launcher::rank)) {
    from_launcher(*other, environment, world);
  } else if (rank || size) {
    throw UsageError("{} is set and {} is not: set both, or unset it to train alone",
                     rank ? "RANK" : "WORLD_SIZE", rank ? "WORLD_SIZE" : "RANK");
  } else if (const auto pmix = environment("PMIX_RANK"); pmix && *pmix != "0") {
    throw UsageError(
        "PMIX_RANK={} says that this is one of several processes, but nothing says how many: set RANK, "
        "WORLD_SIZE and MASTER_ADDR, or unset PMIX_RANK to train alone",
        *pmix);
  }
  if (world.size == 1) return World{};
  if (is_loopback_name(world.master_host)) world.one_machine = true;
  if (const auto token = environment("REDLINE_TOKEN")) world.token = *token;
  if (const auto path = environment("REDLINE_TOKEN_FILE")) world.token = read_token(*path);
  return world;
}

World find_world() {
  return find_world([](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
}

bool is_loopback_name(const std::string& host) {
  return host == "localhost" || host == "127.0.0.1" || host == "::1";
}

std::string read_token(const std::string& path) {
  std::string text;
  try {
    text = read_file(path);
  } catch (const IoError& failure) {
    throw IoError("the token file: {}", failure.what());
  }
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (text.size() < 16)
    throw UsageError("the token file {} holds {} characters: use 16 or more", path, text.size());
  if (text.size() > 1024)
    throw UsageError("the token file {} holds {} characters: use 1024 or fewer", path, text.size());
  return text;
}

std::string first_host(const std::string& list) {
  const std::size_t end = list.find_first_of(",[");
  std::string host = list.substr(0, end);
  if (end == std::string::npos || list[end] == ',') return host;
  const std::size_t last = list.find_first_of(",-]", end + 1);
  const std::size_t close = list.find(']', end);
  if (last == std::string::npos || close == std::string::npos)
    throw UsageError("the list of nodes '{}' cannot be read: set MASTER_ADDR to the host of rank 0", list);
  host += list.substr(end + 1, last - end - 1);
  return host + list.substr(close + 1, list.find(',', close) - close - 1);
}

void parse_endpoint(const std::string& text, const char* flag, std::string& host, std::uint16_t& port) {
  const std::size_t colon = text.rfind(':');
  const bool bracketed = text.starts_with('[');
  if (colon == std::string::npos || colon == 0 || (bracketed && (colon < 3 || text[colon - 1] != ']')) ||
      (!bracketed && text.find(':') != colon)) {
    throw UsageError("{} '{}' must be HOST:PORT, or [ADDRESS]:PORT for IPv6", flag, text);
  }
  host = bracketed ? text.substr(1, colon - 2) : text.substr(0, colon);
  port = static_cast<std::uint16_t>(number(flag, text.substr(colon + 1), 1, 65535));
}

}  // namespace redline::comm
