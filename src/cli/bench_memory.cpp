// redline bench memory: how fast bytes move, by method and size.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "backend/backend.h"
#include "base/error.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/signals.h"
#include "base/text.h"
#include "bench/memory_bench.h"
#include "bench/sizes.h"
#include "cli/bench.h"
#include "cli/command.h"
#include "cli/progress_line.h"

namespace redline::cli {
namespace {

struct MemoryFlags {
  bench::MemoryBenchOptions options;
  backend::DeviceOptions device;
  std::string sizes = "64K,1M,16M,256M";
  std::string json, csv;
  std::vector<std::string> plots;
};

// A method needs up to three arrays of this size in one memory.
void check_fits(const MemoryFlags& flags, const backend::Backend& backend) {
  constexpr std::uint64_t kArrays = 3;
  std::uint64_t largest = 0;
  for (const std::size_t size : flags.options.sizes) largest = std::max<std::uint64_t>(largest, size);
  std::uint64_t there = inspect_machine().memory_available;
  if (const auto memory = backend.device_memory()) there = std::min<std::uint64_t>(there, memory->free);
  if (there != 0 && kArrays * largest > there)
    throw UsageError("--sizes: {} needs {} of memory, and {} is available", format_bytes(largest),
                     format_bytes(kArrays * largest), format_bytes(there));
}

// memory.svg -> memory-host-to-device.svg
std::string chart_path(const std::string& path, backend::MemoryGroup group) {
  std::filesystem::path file = path;
  std::string name = bench::name_of(group);
  for (char& c : name) c = c == ' ' ? '-' : c;
  file.replace_filename(fmt::format("{}-{}{}", file.stem().string(), name, file.extension().string()));
  return file.string();
}

void print(const std::vector<bench::MemoryTiming>& timings) {
  for (const backend::MemoryGroup group : bench::kMemoryGroups) {
    if (const std::string table = bench::memory_table(timings, group); !table.empty())
      fmt::print("\n{}", table);
  }
  fmt::print(
      "\nMedian rate and half its 95% interval, +-? where the runs vary too much for one. Bytes read and "
      "bytes\n"
      "written both count if both are in one memory. of copy: relative to the plain copy, at the largest\n"
      "size. Every result was checked.\n");
}

int run_memory_bench(MemoryFlags& flags) {
  require_optimised_build();
  flags.options.sizes = bench::parse_sizes(flags.sizes);
  bench::validate(flags.options);
  if (flags.device.threads < 0) throw UsageError("--threads {} is negative", flags.device.threads);
  for (const std::string& plot : flags.plots) bench::check_chart_name(plot);
  const auto backend = backend::make_backend(flags.device);
  check_fits(flags, *backend);
  const auto study = memory_study_of(*backend, flags.device);
  ResultFile json(flags.json), csv(flags.csv);
  fmt::print("{}\n", backend->description());
  const StopSignals signals;
  MachineWatch watch;
  ProgressLine line("measuring", "settings");
  const auto timings = bench::bench_memory(flags.options, *study, [&](std::size_t done, std::size_t of) {
    line.update(static_cast<std::int64_t>(done), static_cast<std::int64_t>(of));
    return !signals.requested();
  });
  line.clear();
  if (signals.requested()) {
    print_stderr("redline: stopped; nothing was written\n");
    return kSignalExit + signals.signal();
  }
  print(timings);
  nlohmann::ordered_json record = bench_record("bench memory");
  record.update({{"device", backend->description()},
                 {"repeat", flags.options.repeat},
                 {"disturbed", watch.disturbances(!backend->device_memory())}});
  record.update(bench::memory_json(timings));
  json.write(record);
  csv.write(bench::memory_csv(timings));
  for (const std::string& plot : flags.plots) {
    for (const backend::MemoryGroup group : bench::kMemoryGroups) {
      const bench::BarChart chart = bench::memory_chart(timings, group);
      if (!chart.bars.empty()) bench::write_chart(chart, chart_path(plot, group));
    }
  }
  return 0;
}

}  // namespace

void add_bench_memory(CLI::App& group, Context& context) {
  CLI::App& command = add_command(
      group, "memory",
      "Time methods of moving bytes: to a GPU, back, and within memory, against a plain copy",
      {"redline bench memory", "redline bench memory --device cpu --sizes 1M,256M --json memory.json",
       "redline bench memory --methods strided --plot memory.svg"});
  const auto flags = std::make_shared<MemoryFlags>();
  flags->device.device = "auto";
  bench::MemoryBenchOptions& o = flags->options;
  command.add_option("--device", flags->device.device, "Device whose memory is measured: cuda, cpu, or auto")
      ->capture_default_str();
  command.add_option("--sizes", flags->sizes, "Bytes of an array: 4K,1G, or a range that doubles, 64K-256M")
      ->capture_default_str();
  command.add_option("--repeat", o.repeat, "Timed runs of each method and size")->capture_default_str();
  command.add_option("--methods", o.filter, "Only methods whose name contains this, and plain copies");
  command
      .add_option("--threads", flags->device.threads, "On a CPU: up to this many threads; 0: one per core")
      ->capture_default_str();
  command.add_option("--json", flags->json, "Also write the result, with every time, to this file")
      ->type_name("FILE");
  command.add_option("--csv", flags->csv, "Also write it as a table to this file")->type_name("FILE");
  command.add_option("--plot", flags->plots,
                     "Also draw a chart per direction: a name ending in .svg or .png");
  on_run(command, context, [flags] { return run_memory_bench(*flags); });
}

}  // namespace redline::cli
