#include "bench/comm_bench.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/statistics.h"
#include "graph/half.h"

namespace redline::bench {
namespace {

using comm::Operation;
using comm::Type;

constexpr std::pair<Operation, const char*> kOperations[] = {
    {Operation::all_reduce, "all-reduce"},
    {Operation::reduce_scatter, "reduce-scatter"},
    {Operation::all_gather, "all-gather"},
    {Operation::reduce_scatter_all_gather, "reduce-scatter+all-gather"},
    {Operation::broadcast, "broadcast"}};
constexpr std::pair<Type, const char*> kTypes[] = {
    {Type::f32, "fp32"}, {Type::f16, "fp16"}, {Type::bf16, "bf16"}, {Type::f64, "fp64"}};

bool is_parted(Operation operation) {
  return operation == Operation::reduce_scatter || operation == Operation::all_gather ||
         operation == Operation::reduce_scatter_all_gather;
}

// The ranks' input values: small integers, so that sums are exact where the type can represent them. The
// length of their pattern is coprime to the sizes of parts and chunks, so that misplaced values show.
constexpr std::size_t kPattern = 251;
double value_of(int rank, std::size_t i) {
  return static_cast<double>((i % kPattern * 7 + static_cast<std::size_t>(rank) * 5) % 31 + 1);
}

void put(Type type, double value, std::byte* to) {
  const auto copy = [&](auto bits) { std::memcpy(to, &bits, sizeof bits); };
  switch (type) {
    case Type::f32:
      return copy(static_cast<float>(value));
    case Type::f64:
      return copy(value);
    case Type::f16:
      return copy(graph::float_to_f16(static_cast<float>(value)));
    case Type::bf16:
      return copy(graph::float_to_bf16(static_cast<float>(value)));
  }
}

double get(Type type, const std::byte* from) {
  const auto load = [&](auto bits) {
    std::memcpy(&bits, from, sizeof bits);
    return bits;
  };
  switch (type) {
    case Type::f32:
      return static_cast<double>(load(0.0F));
    case Type::f64:
      return load(0.0);
    case Type::f16:
      return static_cast<double>(graph::f16_to_float(load(std::uint16_t{})));
    case Type::bf16:
      return static_cast<double>(graph::bf16_to_float(load(std::uint16_t{})));
  }
  throw InternalError("unknown element type {}", static_cast<int>(type));
}

// Half the distance between neighbouring numbers near 1.
double unit_of(Type type) {
  switch (type) {
    case Type::f32:
      return 0x1p-24;
    case Type::f64:
      return 0x1p-53;
    case Type::f16:
      return 0x1p-11;
    case Type::bf16:
      return 0x1p-9;
  }
  throw InternalError("unknown element type {}", static_cast<int>(type));
}

// One exchange, with each rank's input and the expected result.
class Checked {
 public:
  Checked(const comm::ExchangeOptions& options, int rank, int ranks)
      : options_(options),
        rank_(rank),
        ranks_(static_cast<std::size_t>(ranks)),
        width_(size_of(options.type)),
        part_(options.count / ranks_) {
    for (std::size_t i = 0; i < kPattern; ++i)
      for (int r = 0; r < ranks; ++r) sums_[i] += value_of(r, i);
  }

  std::vector<std::byte> input() const {
    std::vector<std::byte> pattern(kPattern * width_), values(options_.count * width_);
    for (std::size_t i = 0; i < kPattern; ++i) put(options_.type, value_of(rank_, i), &pattern[i * width_]);
    for (std::size_t at = 0; at < values.size(); at += pattern.size())
      std::copy_n(pattern.begin(), std::min(pattern.size(), values.size() - at),
                  values.begin() + static_cast<std::ptrdiff_t>(at));
    return values;
  }

  // What is wrong with the result; empty if nothing is.
  std::string verdict(const comm::Exchange& exchange) const {
    const bool own_part = options_.operation == Operation::reduce_scatter;
    const std::size_t first = own_part ? static_cast<std::size_t>(rank_) * part_ : 0;
    std::vector<std::byte> values((own_part ? part_ : options_.count) * width_);
    exchange.read(values);
    // Each of the ranks' additions may round once.
    const double tolerance = static_cast<double>(ranks_) * unit_of(options_.type);
    for (std::size_t i = 0; i < values.size() / width_; ++i) {
      const double want = expected(first + i), got = get(options_.type, &values[i * width_]);
      if (!(std::abs(got - want) <= tolerance * want))
        return fmt::format("value {} on rank {} is {}, not {}", first + i, rank_, got, want);
    }
    return {};
  }

 private:
  double expected(std::size_t i) const {
    if (options_.operation == Operation::broadcast) return value_of(0, i);
    if (options_.operation == Operation::all_gather) return value_of(static_cast<int>(i / part_), i);
    return sums_[i % kPattern];
  }

  const comm::ExchangeOptions& options_;
  int rank_;
  std::size_t ranks_, width_, part_;
  std::array<double, kPattern> sums_{};
};

// Per repetition, over the ranks.
std::vector<double> combine(comm::Communicator& control, const std::vector<double>& mine, bool slowest) {
  const std::size_t ranks = static_cast<std::size_t>(control.size()), count = mine.size();
  std::vector<double> all(ranks * count);
  std::ranges::copy(
      mine, all.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(control.rank()) * count));
  control.all_reduce(all);
  std::vector<double> combined = mine;
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t r = 0; r < ranks; ++r) {
      const double seconds = all[r * count + i];
      combined[i] = slowest ? std::max(combined[i], seconds) : std::min(combined[i], seconds);
    }
  }
  return combined;
}

// All ranks take the text of the lowest rank that has one.
std::string agree(comm::Communicator& control, const std::string& mine) {
  const std::vector<double> sizes = control.gather(static_cast<double>(mine.size()));
  const auto speaker = std::ranges::find_if(sizes, [](double size) { return size > 0; });
  if (speaker == sizes.end()) return {};
  std::string text = mine;
  text.resize(static_cast<std::size_t>(*speaker));
  control.broadcast(std::as_writable_bytes(std::span(text)), static_cast<int>(speaker - sizes.begin()));
  return text;
}

// The outcome of one rank's part of a collective.
template <typename Work>
std::string reason_of(const Work& work) {
  try {
    work();
    return {};
  } catch (const UnavailableError& error) {
    return error.what();
  }
}

// Empty when stopped; `go_on` is asked by all ranks together.
std::optional<CommTiming> measure(const CommBenchOptions& options, Operation operation,
                                  const std::string& algorithm, std::size_t size, comm::Fabric& fabric,
                                  comm::Communicator& control, const std::function<bool()>& go_on) {
  constexpr double kStretch = 0.5;  // seconds of repetitions in one go
  const auto ranks = static_cast<std::size_t>(control.size());
  const std::size_t width = size_of(options.type), unit = is_parted(operation) ? ranks * width : width;
  const std::size_t bytes = (size + unit - 1) / unit * unit;
  CommTiming timing{operation, algorithm, bytes, control.size(), CommStatus::ok, {}, {}};
  const comm::ExchangeOptions wanted{operation, options.type, bytes / width, algorithm};
  const Checked checked(wanted, control.rank(), control.size());
  std::unique_ptr<comm::Exchange> exchange;
  std::vector<double> seconds;
  timing.reason = agree(control, reason_of([&] {
                          exchange = fabric.make_exchange(wanted);
                          exchange->fill(checked.input());
                          seconds = exchange->run(std::max(1, options.warmup));
                        }));
  if (!timing.reason.empty()) {
    timing.status = CommStatus::unavailable;
    return timing;
  }
  timing.reason = agree(control, checked.verdict(*exchange));
  if (timing.reason.empty()) {
    const double expected = std::ranges::max(control.gather(seconds.back()));
    const double most = expected > 0 ? options.seconds / expected : options.repeat;
    const int repeat = static_cast<int>(std::clamp(most, 1.0, static_cast<double>(options.repeat)));
    const int part = expected > 0 ? static_cast<int>(std::clamp(kStretch / expected, 1.0, 1e6)) : repeat;
    for (int left = repeat; left > 0; left -= part) {
      if (!go_on()) return {};
      const auto times =
          combine(control, exchange->run(std::min(left, part)), operation == Operation::broadcast);
      timing.seconds.insert(timing.seconds.end(), times.begin(), times.end());
    }
    timing.reason = agree(control, checked.verdict(*exchange));
  }
  if (!timing.reason.empty()) timing.status = CommStatus::wrong;
  return timing;
}

bool among(const std::vector<std::string>& wanted, const std::string& name) {
  return wanted.empty() || std::ranges::find(wanted, name) != wanted.end();
}

// The wanted ones among the fabric's; all, if an operation has none of them.
std::vector<std::string> choose(const CommBenchOptions& options, const comm::Fabric& fabric,
                                Operation operation) {
  const std::vector<std::string> all = fabric.algorithms(operation);
  std::vector<std::string> chosen;
  for (const std::string& name : all) {
    const std::size_t slash = name.find('/');
    if (among(options.algorithms, name.substr(0, slash)) &&
        (slash == std::string::npos || among(options.protocols, name.substr(slash + 1))))
      chosen.push_back(name);
  }
  return chosen.empty() ? all : chosen;
}

void check_names(const CommBenchOptions& options, const comm::Fabric& fabric) {
  std::vector<std::string> algorithms, protocols;
  for (const auto& [operation, text] : kOperations) {
    for (const std::string& name : fabric.algorithms(operation)) {
      const std::size_t slash = name.find('/');
      const auto add = [](std::vector<std::string>& to, const std::string& word) {
        if (std::ranges::find(to, word) == to.end()) to.push_back(word);
      };
      add(algorithms, name.substr(0, slash));
      if (slash != std::string::npos) add(protocols, name.substr(slash + 1));
    }
  }
  const auto check = [&](const char* flag, const std::vector<std::string>& wanted,
                         const std::vector<std::string>& there) {
    for (const std::string& name : wanted) {
      if (std::ranges::find(there, name) != there.end()) continue;
      if (there.empty())
        throw UsageError("{} {}: {} has none to choose from", flag, name, fabric.description());
      throw UsageError("{} {}: {} has {}", flag, name, fabric.description(), fmt::join(there, ", "));
    }
  };
  check("--algorithms", options.algorithms, algorithms);
  check("--protocols", options.protocols, protocols);
}

}  // namespace

void validate(const CommBenchOptions& options) {
  if (options.operations.empty() || options.sizes.empty())
    throw UsageError("--operations and --sizes each need at least one value");
  if (options.repeat < 1) throw UsageError("--repeat {} must be at least 1", options.repeat);
  if (options.warmup < 0) throw UsageError("--warmup {} is negative", options.warmup);
  if (!(options.seconds > 0)) throw UsageError("--seconds {} must be more than 0", options.seconds);
}

std::string name_of(Operation operation) {
  for (const auto& [value, name] : kOperations)
    if (value == operation) return name;
  throw InternalError("unknown operation {}", static_cast<int>(operation));
}

Operation parse_operation(const std::string& text) {
  std::string choices;
  for (const auto& [value, name] : kOperations) {
    if (text == name) return value;
    choices += choices.empty() ? name : fmt::format(", {}", name);
  }
  throw UsageError("--operations {}: choose among {}", text, choices);
}

std::string name_of(Type type) {
  for (const auto& [value, name] : kTypes)
    if (value == type) return name;
  throw InternalError("unknown element type {}", static_cast<int>(type));
}

Type parse_comm_type(const std::string& text) {
  for (const auto& [value, name] : kTypes)
    if (text == name && value != Type::f64) return value;
  throw UsageError("--dtype {}: choose among fp32, fp16, bf16", text);
}

double bus_factor(Operation operation, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (operation) {
    case Operation::all_reduce:
    case Operation::reduce_scatter_all_gather:
      return 2 * others;
    case Operation::reduce_scatter:
    case Operation::all_gather:
      return others;
    case Operation::broadcast:
      return 1;
  }
  throw InternalError("unknown operation {}", static_cast<int>(operation));
}

double CommTiming::median_seconds() const { return median(seconds); }
double CommTiming::p90_seconds() const { return quantile(seconds, 0.9); }
double CommTiming::algorithm_bandwidth() const { return static_cast<double>(bytes) / median_seconds(); }
double CommTiming::bus_bandwidth() const { return algorithm_bandwidth() * bus_factor(operation, ranks); }

std::vector<CommTiming> bench_comm(const CommBenchOptions& options, comm::Fabric& fabric,
                                   comm::Communicator& control, const CommProgress& progress,
                                   const CommDone& done) {
  validate(options);
  check_names(options, fabric);
  // Sizes innermost: a change of algorithm may mean new connections.
  std::vector<std::pair<Operation, std::string>> series;
  for (const Operation operation : options.operations)
    for (const std::string& algorithm : choose(options, fabric, operation))
      series.emplace_back(operation, algorithm);
  const auto all = static_cast<std::int64_t>(series.size() * options.sizes.size());
  std::vector<CommTiming> timings;
  std::int64_t passed = 0;
  for (const auto& [operation, algorithm] : series) {
    for (std::size_t i = 0; i < options.sizes.size(); ++i, ++passed) {
      const auto go_on = [&] { return std::ranges::max(control.gather(progress(passed, all) ? 0 : 1)) == 0; };
      auto timing = go_on() ? measure(options, operation, algorithm, options.sizes[i], fabric, control, go_on)
                            : std::nullopt;
      if (!timing) return timings;
      timings.push_back(std::move(*timing));
      done(timings.back());
      if (timings.back().status != CommStatus::unavailable) continue;
      passed += static_cast<std::int64_t>(options.sizes.size() - i);  // it cannot do the other sizes either
      break;
    }
  }
  return timings;
}

std::string comm_csv(const std::vector<CommTiming>& timings) {
  std::string text =
      "operation,algorithm,ranks,bytes,repetitions,latency_p50_us,latency_p90_us,algorithm_bandwidth_gb_s,"
      "bus_bandwidth_gb_s,status\n";
  for (const CommTiming& t : timings) {
    text +=
        fmt::format("{},{},{},{},{},", name_of(t.operation), t.algorithm, t.ranks, t.bytes, t.seconds.size());
    if (t.measured())
      text += fmt::format("{:.3f},{:.3f},{:.6f},{:.6f},ok\n", 1e6 * t.median_seconds(), 1e6 * t.p90_seconds(),
                          t.algorithm_bandwidth() / 1e9, t.bus_bandwidth() / 1e9);
    else
      text += fmt::format(",,,,{}\n", t.status == CommStatus::wrong ? "wrong" : "unavailable");
  }
  return text;
}

nlohmann::ordered_json to_json(const CommTiming& t) {
  nlohmann::ordered_json json = {{"operation", name_of(t.operation)},
                                 {"algorithm", t.algorithm},
                                 {"ranks", t.ranks},
                                 {"bytes", t.bytes}};
  if (!t.measured()) {
    json["status"] = t.status == CommStatus::wrong ? "wrong" : "unavailable";
    json["reason"] = t.reason;
    return json;
  }
  json["status"] = "ok";
  json["latency_seconds_p50"] = t.median_seconds();
  json["latency_seconds_p90"] = t.p90_seconds();
  json["algorithm_bandwidth_bytes_per_second"] = t.algorithm_bandwidth();
  json["bus_bandwidth_bytes_per_second"] = t.bus_bandwidth();
  json["seconds"] = t.seconds;
  return json;
}

}  // namespace redline::bench
