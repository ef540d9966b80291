#include "bench/scaling_model.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/error.h"
#include "bench/comm_bench.h"

namespace redline::bench {
namespace {

constexpr std::array<std::pair<Collective, const char*>, 3> kCollectives = {{
    {Collective::ring, "ring"},
    {Collective::tree, "tree"},
    {Collective::hierarchical, "hierarchical"},
}};

// How the GPUs of a job are spread over nodes.
struct Layout {
  double gpus, nodes, per_node;
  Layout(const Network& network, int count)
      : gpus(count),
        nodes(std::ceil(static_cast<double>(count) / network.gpus_per_node)),
        per_node(std::min(count, network.gpus_per_node)) {}
  // The bandwidth of a ring or tree over all of them: the links that leave a node work in parallel.
  double pace(const Network& network, double bytes) const {
    if (nodes == 1) return network.intra.bandwidth_at(bytes);
    const double out = network.inter.bandwidth_at(bytes) * per_node;
    return per_node == 1 ? out : std::min(network.intra.bandwidth_at(bytes), out);
  }
};

double ring_seconds(const Network& network, const Layout& at, double bytes) {
  // The longest path of a part: p - 1 hops, including all those between nodes.
  const double hops_out = at.nodes == 1 ? 0 : std::min(at.nodes, at.gpus - 1);
  const double hops_in = at.gpus - 1 - hops_out;
  const double latency = hops_out * network.inter.latency + hops_in * network.intra.latency;
  return 2 * (latency + (at.gpus - 1) / at.gpus * bytes / at.pace(network, bytes));
}

double tree_seconds(const Network& network, const Layout& at, double bytes) {
  const double depth = at.nodes == 1 ? 0 : std::ceil(std::log2(at.nodes));
  const double latency = depth * network.inter.latency + (at.per_node - 1) * network.intra.latency;
  return 2 * (latency + bytes / at.pace(network, bytes));
}

double hierarchical_seconds(const Network& network, const Layout& at, double bytes) {
  const double inside = (at.per_node - 1) * network.intra.latency +
                        (at.per_node - 1) / at.per_node * bytes / network.intra.bandwidth_at(bytes);
  if (at.nodes == 1) return 2 * inside;
  const double share = bytes / at.per_node, part = share / network.inter.bandwidth_at(share);
  const double ring = (at.nodes - 1) * network.inter.latency + (at.nodes - 1) / at.nodes * part;
  const double tree = std::ceil(std::log2(at.nodes)) * network.inter.latency + part;
  return 2 * (inside + std::min(ring, tree));
}

// The expected maximum of n normal draws, in standard deviations (Blom's approximation).
double expected_maximum(int n) {
  if (n <= 1) return 0;
  const double part = (n - 0.375) / (n + 0.25);
  double low = 0, high = 10;
  while (high - low > 1e-9) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < part ? low : high) = middle;
  }
  return low;
}

struct Number {
  double value = 0;
  std::string_view unit;
};

Number parse_number(std::string_view text) {
  Number number;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number.value);
  if (error != std::errc() || !std::isfinite(number.value)) return {};
  number.unit = text.substr(static_cast<std::size_t>(end - text.data()));
  return number;
}

double scale_of(std::string_view unit, const std::map<std::string_view, double>& units) {
  const auto found = units.find(unit);
  return found == units.end() ? 0 : found->second;
}

nlohmann::ordered_json read_json(const std::string& path, const char* flag) {
  try {
    return nlohmann::ordered_json::parse(read_file(path));
  } catch (const nlohmann::json::exception& error) {
    throw DataError("{} {}: not JSON: {}", flag, path, error.what());
  }
}

// From a record of bench comm: the time of the fastest algorithm for each size of an all-reduce.
Link link_of_record(const std::string& path, const char* flag) {
  const nlohmann::ordered_json record = read_json(path, flag);
  std::map<double, double> best;
  int ranks = 0;
  try {
    ranks = record.at("ranks").get<int>();
    for (const auto& result : record.at("results")) {
      if (result.at("operation") != name_of(comm::Operation::all_reduce) || result.at("status") != "ok")
        continue;
      const double bytes = result.at("bytes").get<double>(),
                   seconds = result.at("latency_seconds_p50").get<double>();
      if (!(bytes > 0 && seconds > 0))
        throw DataError("{} {}: an all-reduce of {} bytes in {} s", flag, path, bytes, seconds);
      const auto [at, added] = best.try_emplace(bytes, seconds);
      if (!added) at->second = std::min(at->second, seconds);
    }
  } catch (const nlohmann::json::exception& error) {
    throw DataError("{} {}: not a record of bench comm: {}", flag, path, error.what());
  }
  if (ranks < 2) throw DataError("{} {}: it has {} ranks, but at least two are needed", flag, path, ranks);
  try {
    return fit_link({best.begin(), best.end()}, ranks);
  } catch (const DataError& error) {
    throw DataError("{} {}: {}", flag, path, error.what());
  }
}

// Seconds from the start of the step to the last sum, if computation runs at (1 - contention) of its speed
// during communication.
double simulate(const StepShape& shape, double contention, const std::vector<double>& durations) {
  double now = 0, done = 0,
         network_free = 0;  // done: how far the computation is, in time of the undisturbed step
  std::size_t next = 0;
  while (true) {
    const double target = next < shape.buckets.size() ? shape.buckets[next].ready : shape.backward_end;
    while (done < target) {
      const double disturbed = std::max(0.0, network_free - now) * (1 - contention);
      if (now < network_free && done + disturbed < target) {
        done += disturbed;
        now = network_free;
        continue;
      }
      now += now < network_free ? (target - done) / (1 - contention) : target - done;
      done = target;
    }
    if (next == shape.buckets.size()) break;
    network_free = std::max(network_free, now) + durations[next++];
  }
  return std::max(now, network_free) + (shape.seconds - shape.backward_end);
}

}  // namespace

double Link::bandwidth_at(double bytes) const {
  if (by_size.empty()) return bandwidth;
  const auto above = std::ranges::lower_bound(by_size, bytes, {}, &std::pair<double, double>::first);
  if (above == by_size.begin()) return above->second;
  if (above == by_size.end()) return by_size.back().second;
  const auto& [x0, y0] = *(above - 1);
  const auto& [x1, y1] = *above;
  return y0 + (y1 - y0) * std::log(bytes / x0) / std::log(x1 / x0);
}

std::string name_of(Collective collective) {
  for (const auto& [value, name] : kCollectives)
    if (value == collective) return name;
  throw InternalError("unknown collective {}", static_cast<int>(collective));
}

Collective parse_collective(const std::string& text) {
  for (const auto& [value, name] : kCollectives)
    if (text == name) return value;
  throw UsageError("--collective {}: choose among best, ring, tree, hierarchical", text);
}

double all_reduce_seconds(const Network& network, Collective collective, double bytes, int gpus) {
  if (gpus <= 1) return 0;
  const Layout layout(network, gpus);
  switch (collective) {
    case Collective::ring:
      return ring_seconds(network, layout, bytes);
    case Collective::tree:
      return tree_seconds(network, layout, bytes);
    case Collective::hierarchical:
      return hierarchical_seconds(network, layout, bytes);
  }
  throw InternalError("unknown collective {}", static_cast<int>(collective));
}

std::pair<double, Collective> best_all_reduce(const Network& network, double bytes, int gpus) {
  std::pair<double, Collective> best{all_reduce_seconds(network, Collective::ring, bytes, gpus),
                                     Collective::ring};
  for (const Collective other : {Collective::tree, Collective::hierarchical}) {
    const double seconds = all_reduce_seconds(network, other, bytes, gpus);
    if (seconds < best.first) best = {seconds, other};
  }
  return best;
}

Link fit_link(const std::vector<std::pair<double, double>>& times, int ranks) {
  if (times.size() < 2) throw DataError("fitting a link's bandwidth and latency needs times of two sizes");
  // seconds = a + b bytes, each point weighed by 1 / seconds^2.
  double w = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (const auto& [bytes, seconds] : times) {
    const double weight = 1 / (seconds * seconds);
    w += weight, x += weight * bytes, y += weight * seconds;
    xx += weight * bytes * bytes, xy += weight * bytes * seconds;
  }
  const double slope = (w * xy - x * y) / (w * xx - x * x);
  if (!(slope > 0)) throw DataError("these times do not grow with the size: no bandwidth explains them");
  const double messages = 2.0 * (ranks - 1), start = std::max(0.0, (y - slope * x) / w);
  Link link{messages / ranks / slope, start / messages, {}};
  // Where latency is most of the time, the rest is noise.
  for (const auto& [bytes, seconds] : times)
    if (seconds > 2 * start) link.by_size.emplace_back(bytes, messages / ranks * bytes / (seconds - start));
  return link;
}

double parse_seconds(const std::string& text, const char* flag) {
  static const std::map<std::string_view, double> kUnits = {
      {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};
  const Number number = parse_number(text);
  const double seconds = number.value * scale_of(number.unit, kUnits);
  if (!(seconds > 0)) throw UsageError("{} {}: write a time as 12.5ms, 800us or 1.2s", flag, text);
  return seconds;
}

Link parse_link(const std::string& text, const char* flag) {
  static const std::map<std::string_view, double> kUnits = {
      {"Gb/s", 1e9 / 8}, {"Mb/s", 1e6 / 8}, {"Tb/s", 1e12 / 8}, {"GB/s", 1e9}, {"MB/s", 1e6}, {"TB/s", 1e12}};
  if (text.ends_with(".json")) return link_of_record(text, flag);
  const std::size_t comma = text.find(',');
  const Number rate = parse_number(std::string_view(text).substr(0, comma));
  const double bandwidth = rate.value * scale_of(rate.unit, kUnits);
  if (comma == std::string::npos || !(bandwidth > 0))
    throw UsageError("{} {}: write bandwidth and latency as 400Gb/s,5us, or the .json file of a bench comm",
                     flag, text);
  return {bandwidth, parse_seconds(text.substr(comma + 1), flag), {}};
}

StepShape StepShape::scaled_to(double wanted) const {
  StepShape scaled = *this;
  const double factor = wanted / seconds;
  scaled.seconds = wanted;
  scaled.backward_end *= factor;
  for (Bucket& bucket : scaled.buckets) bucket.ready *= factor;
  return scaled;
}

nlohmann::ordered_json to_json(const StepShape& shape) {
  nlohmann::ordered_json json = {{"seconds", shape.seconds},
                                 {"backward_end_seconds", shape.backward_end},
                                 {"buckets", nlohmann::ordered_json::array()}};
  for (const StepShape::Bucket& bucket : shape.buckets)
    json["buckets"].push_back({{"bytes", bucket.bytes}, {"ready_seconds", bucket.ready}});
  return json;
}

StepShape parse_step_shape(const nlohmann::ordered_json& json, const std::string& path) {
  StepShape shape;
  try {
    const auto& step = json.at("step");
    shape.seconds = step.at("seconds").get<double>();
    shape.backward_end = step.at("backward_end_seconds").get<double>();
    for (const auto& bucket : step.at("buckets"))
      shape.buckets.push_back({bucket.at("bytes").get<double>(), bucket.at("ready_seconds").get<double>()});
  } catch (const nlohmann::json::exception& error) {
    throw DataError("--step {}: not a record of bench comm --predict: {}", path, error.what());
  }
  double before = 0;
  bool good = shape.seconds > 0 && shape.backward_end > 0 && shape.backward_end <= shape.seconds &&
              !shape.buckets.empty();
  for (const StepShape::Bucket& bucket : shape.buckets) {
    good = good && bucket.bytes > 0 && bucket.ready >= before && bucket.ready <= shape.backward_end;
    before = bucket.ready;
  }
  if (!good) throw DataError("--step {}: its times contradict each other", path);
  return shape;
}

void validate(const ScalingOptions& options) {
  if (options.network.gpus_per_node < 1)
    throw UsageError("--gpus-per-node {} must be at least 1", options.network.gpus_per_node);
  if (!(options.contention >= 0 && options.contention <= 1))
    throw UsageError("--contention {} must be between 0 and 1", options.contention);
  if (!(options.spread >= 0 && options.spread <= 1))
    throw UsageError("--spread {} must be between 0 and 1", options.spread);
}

Prediction predict(const StepShape& shape, const ScalingOptions& options, int gpus) {
  Prediction result;
  result.gpus = gpus;
  std::vector<double> durations;
  double largest = 0;
  for (const StepShape::Bucket& bucket : shape.buckets) {
    auto [seconds, collective] = best_all_reduce(options.network, bucket.bytes, gpus);
    if (!options.best) {
      collective = options.collective;
      seconds = all_reduce_seconds(options.network, collective, bucket.bytes, gpus);
    }
    durations.push_back(seconds);
    result.communication_seconds += seconds;
    if (bucket.bytes <= largest) continue;
    largest = bucket.bytes;
    result.collective = name_of(collective);
  }
  const double slowest = shape.seconds * (1 + options.spread * expected_maximum(gpus));
  result.straggler_seconds = slowest - shape.seconds;
  result.step_seconds = simulate(shape.scaled_to(slowest), options.contention, durations);
  result.exposed_seconds = result.step_seconds - slowest;
  result.efficiency = shape.seconds / result.step_seconds;
  return result;
}

nlohmann::ordered_json to_json(const Prediction& p) {
  return {{"gpus", p.gpus},
          {"step_seconds", p.step_seconds},
          {"communication_seconds", p.communication_seconds},
          {"exposed_seconds", p.exposed_seconds},
          {"straggler_seconds", p.straggler_seconds},
          {"efficiency", p.efficiency},
          {"collective", p.collective}};
}

}  // namespace redline::bench
