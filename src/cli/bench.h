// What the commands under `redline bench` share.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "backend/backend.h"
#include "backend/memory_study.h"
#include "base/atomic_file.h"
#include "base/clock.h"
#include "cli/command.h"
#include "profile/cpu_sensors.h"

namespace redline::cli {

// Throws UnavailableError in an unoptimised build: its timings would mislead.
void require_optimised_build();

// The head of a recorded result: schema, kind, time, program and machine.
nlohmann::ordered_json bench_record(const char* kind);

// A memory study of the device of `backend`, which was created with `options`.
std::shared_ptr<backend::MemoryStudy> memory_study_of(const backend::Backend& backend,
                                                      backend::DeviceOptions options);

// What else uses the processors while something is measured, from its construction on.
class MachineWatch {
 public:
  MachineWatch() : before_(sensors_.read()) {}
  // Prints and returns what disturbed it so far: "other processes used 80.0% of the CPU time". Nothing on a
  // quiet machine, and where that is unknown. `host_computes`: the CPU is what is measured.
  std::vector<std::string> disturbances(bool host_computes);

 private:
  Stopwatch watch_;
  profile::CpuSensors sensors_{"/", profile::Counting::off};
  profile::CpuSample before_;
};

// A file for a result. Opened before measuring, so that a bad path does not cost a measurement. Without
// write() nothing is left behind; an empty path means no file.
class ResultFile {
 public:
  explicit ResultFile(const std::string& path) {
    if (!path.empty()) file_.emplace(path, Sync::no);
  }
  void write(const std::string& text);
  void write(const nlohmann::ordered_json& record);

 private:
  std::optional<AtomicFile> file_;
};

void add_bench_ab(CLI::App& group, Context& context);
void add_bench_comm(CLI::App& group, Context& context);
void add_bench_data(CLI::App& group, Context& context);
void add_bench_lr(CLI::App& group, Context& context);
void add_bench_memory(CLI::App& group, Context& context);
void add_bench_throughput(CLI::App& group, Context& context);

}  // namespace redline::cli
