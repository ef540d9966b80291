// Predicts the time of a training step on many GPUs from a step measured on one and from the speed of the
// network. Pure arithmetic; times are in seconds, sizes in bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace redline::bench {

// How fast one GPU can send, and the latency of a message.
struct Link {
  double bandwidth = 0;  // bytes per second, in one direction
  double latency = 0;    // seconds
  // If measured: (bytes of an all-reduce, bandwidth), by ascending bytes. Small ones may stay in caches.
  std::vector<std::pair<double, double>> by_size = {};

  double bandwidth_at(double bytes) const;  // interpolated between measured sizes
};

// Nodes of `gpus_per_node`, each GPU with a link to the others of its node and one to other nodes.
struct Network {
  Link intra{450e9, 2e-6};  // NVLink 4 as rated
  Link inter{50e9, 5e-6};   // one InfiniBand NDR port per GPU, 400 Gb/s
  int gpus_per_node = 8;
};

enum class Collective : std::uint8_t { ring, tree, hierarchical };
std::string name_of(Collective collective);
Collective parse_collective(const std::string& name);  // throws UsageError

// Seconds of an all-reduce of `bytes` over `gpus` >= 1.
//   ring: 2 (p - 1) messages one after the other, each GPU sends 2 (p - 1) / p of the bytes.
//   tree: up and down a chain in each node and a double binary tree over the nodes; each byte goes up and
//   down once. hierarchical: reduce-scatter in each node, all-reduce of the parts between nodes (ring or
//   tree, the faster),
//     all-gather in each node.
// The links of a node to others work side by side; a step of a ring or tree goes at the pace of the slowest
// link.
double all_reduce_seconds(const Network& network, Collective collective, double bytes, int gpus);
// The fastest of the three, and which.
std::pair<double, Collective> best_all_reduce(const Network& network, double bytes, int gpus);

// Fits bandwidth and latency to times (bytes, seconds) of a ring all-reduce over `ranks`, by least squares of
// the relative errors. Throws DataError for fewer than two sizes.
Link fit_link(const std::vector<std::pair<double, double>>& times, int ranks);
// "400Gb/s,5us", "450GB/s,2us", "1.2GB/s,80us"; or the path of a record of bench comm to fit. Throws
// UsageError naming `flag`, DataError if the file is not such a record.
Link parse_link(const std::string& text, const char* flag);
// "12.5ms", "800us", "1.2s". Throws UsageError naming `flag`.
double parse_seconds(const std::string& text, const char* flag);

// One rank's step without waiting for others.
struct StepShape {
  double seconds = 0;       // of the whole step
  double backward_end = 0;  // from the start of the step; the update follows
  struct Bucket {
    double bytes = 0, ready = 0;  // ready: from the start of the step
  };
  std::vector<Bucket> buckets;  // in the order in which backward completes them

  StepShape scaled_to(double seconds) const;  // the same shape, faster or slower
};
nlohmann::ordered_json to_json(const StepShape& shape);
StepShape parse_step_shape(const nlohmann::ordered_json& json, const std::string& path);  // throws DataError

struct ScalingOptions {
  Network network;
  bool best = true;  // else `collective` alone
  Collective collective = Collective::ring;
  double contention = 0;  // fraction of its speed that computation loses during communication, 0..1
  double spread =
      0;  // standard deviation of step times between GPUs, relative to the step: all wait for the slowest
};
void validate(const ScalingOptions& options);  // throws UsageError

struct Prediction {
  int gpus = 1;
  double step_seconds = 0;
  double communication_seconds = 0;  // of all buckets together
  double exposed_seconds = 0;        // of these, not overlapped with computation; and the cost of contention
  double straggler_seconds = 0;      // waiting for the slowest GPU
  double efficiency = 1;             // the step alone over this one, with the same batch per GPU
  std::string collective;            // of the largest bucket
};

// Buckets are exchanged one after the other, each as soon as it is ready.
Prediction predict(const StepShape& shape, const ScalingOptions& options, int gpus);
nlohmann::ordered_json to_json(const Prediction& prediction);

}  // namespace redline::bench
