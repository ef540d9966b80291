// What the commands under `redline bench` share.
#pragma once

#include <nlohmann/json.hpp>

#include "cli/command.h"

namespace redline::cli {

// A time from an unoptimised build misleads whoever reads it later: UnavailableError.
void require_optimised_build();

// The head of a recorded result: schema, kind, time, program and machine.
nlohmann::ordered_json bench_record(const char* kind);

void add_bench_comm(CLI::App& group, Context& context);
void add_bench_data(CLI::App& group, Context& context);
void add_bench_memory(CLI::App& group, Context& context);
void add_bench_throughput(CLI::App& group, Context& context);

}  // namespace redline::cli
