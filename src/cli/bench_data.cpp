// redline bench data: how fast the loader makes batches of a data set.
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "backend/backend.h"
#include "base/error.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/signals.h"
#include "base/text.h"
#include "bench/data_bench.h"
#include "cli/bench.h"
#include "cli/command.h"
#include "cli/progress_line.h"

namespace redline::cli {
namespace {

struct DataFlags {
  bench::DataBenchOptions options;
  std::string path, json, decode = "cpu";
  bool warm_only = false;
};

// 1, 2, 4, … and all cores.
std::vector<int> doubling_up_to(int cores) {
  std::vector<int> counts;
  for (int count = 1; count < cores; count *= 2) counts.push_back(count);
  counts.push_back(cores);
  return counts;
}

double copy_rate(const bench::DataBench& bench, int threads) {
  for (const bench::CopyTiming& copy : bench.copies)
    if (copy.threads == threads) return copy.bytes_per_second;
  return 0;
}

const char* transform_name(const bench::DataTiming& timing) {
  return timing.train ? "training" : "evaluation";
}
const char* cache_name(const bench::DataTiming& timing) { return timing.cold ? "cold" : "warm"; }

void print_bench(const bench::DataBench& bench, const DataFlags& flags) {
  fmt::print("{}: {}, {} + {} images, {} on average; {} px, batch {}\n", flags.path, bench.kind,
             bench.train_images, bench.val_images, format_bytes(static_cast<std::uint64_t>(bench.mean_bytes)),
             flags.options.image_size, flags.options.batch_size);
  if (flags.options.decoder)
    fmt::print("training images decoded by {}\n", flags.options.decoder->description());
  fmt::print("memory copy:");
  for (const bench::CopyTiming& copy : bench.copies)
    fmt::print(" {:.1f} GB/s with {} thread{}{}", copy.bytes_per_second / 1e9, copy.threads,
               copy.threads == 1 ? "" : "s", &copy == &bench.copies.back() ? "\n" : ",");
  fmt::print("\n{:<10} {:<5} {:>7} {:>9} {:>9}   {:>7} {:>7} {:>7} {:>9}   {:>6} {:>8}\n", "transform",
             "cache", "threads", "images/s", "a thread", "read", "decode", "resize", "hand over", "GB/s",
             "of copy");
  for (const bench::DataTiming& t : bench.timings) {
    const double copy = copy_rate(bench, t.threads);
    fmt::print(
        "{:<10} {:<5} {:>7} {:>9.1f} {:>9.1f}   {:>7.3f} {:>7.3f} {:>7.3f} {:>9.3f}   {:>6.2f} {:>7.1f}%\n",
        transform_name(t), cache_name(t), t.threads, t.images_per_second, t.images_per_second / t.threads,
        t.stages.read * 1e3, t.stages.decode * 1e3, t.stages.resize * 1e3, t.hand_over * 1e3,
        t.bytes_moved / 1e9, copy > 0 ? 100 * t.bytes_moved / copy : 0.0);
  }
  fmt::print(
      "\nread, decode, resize, hand over: thread milliseconds per image. GB/s: what must be copied at that "
      "rate, counting\nreads and writes; of copy: compared with plain memory copies.\n");
  fmt::print("peak memory {}\n", format_bytes(bench.peak_memory));
}

nlohmann::ordered_json to_json(const bench::DataBench& bench, const DataFlags& flags) {
  nlohmann::ordered_json json = bench_record("bench data");
  json.update({{"path", flags.path},
               {"source", bench.kind},
               {"train_images", bench.train_images},
               {"val_images", bench.val_images},
               {"mean_bytes", bench.mean_bytes},
               {"image_size", flags.options.image_size},
               {"batch", flags.options.batch_size},
               {"decoder", flags.options.decoder ? flags.options.decoder->description() : "cpu"},
               {"peak_memory_bytes", bench.peak_memory},
               {"copy", nlohmann::ordered_json::array()},
               {"timings", nlohmann::ordered_json::array()}});
  for (const bench::CopyTiming& copy : bench.copies)
    json["copy"].push_back({{"threads", copy.threads}, {"bytes_per_second", copy.bytes_per_second}});
  for (const bench::DataTiming& t : bench.timings)
    json["timings"].push_back({{"transform", transform_name(t)},
                               {"cache", cache_name(t)},
                               {"threads", t.threads},
                               {"images", t.images},
                               {"images_per_second", t.images_per_second},
                               {"seconds_an_image",
                                {{"read", t.stages.read},
                                 {"decode", t.stages.decode},
                                 {"resize", t.stages.resize},
                                 {"hand_over", t.hand_over}}},
                               {"waiting_share", t.waited},
                               {"relieved_share", t.cpu_share},
                               {"bytes_moved_per_second", t.bytes_moved}});
  return json;
}

// Throws UnavailableError if there is no GPU or it has no decoder.
std::shared_ptr<backend::ImageDecoder> gpu_decoder() {
  backend::DeviceOptions device;
  device.device = "cuda";
  try {
    return backend::make_backend(device)->make_image_decoder();
  } catch (const UnavailableError&) {
    throw UnavailableError("--decode gpu: no GPU can be used (`redline doctor` says why); use --decode cpu");
  }
}

int run_data_bench(DataFlags& flags) {
  require_optimised_build();
  if (flags.decode == "gpu") flags.options.decoder = gpu_decoder();
  flags.options.path = flags.path;
  flags.options.cold = !flags.warm_only;
  if (flags.options.threads.empty()) flags.options.threads = doubling_up_to(inspect_machine().cores_allowed);
  ResultFile file(flags.json);
  const StopSignals signals;
  ProgressLine line("measuring", "settings");
  bench::DataBench bench;
  try {
    bench = bench::bench_data(flags.options, [&](std::int64_t done, std::int64_t of) {
      if (of > 0) line.update(done, of);  // else it only asks whether to go on
      return !signals.requested();
    });
  } catch (const data::Stopped&) {
    line.clear();
    print_stderr("redline: stopped; nothing was written\n");
    return kSignalExit + signals.signal();
  }
  line.clear();
  print_bench(bench, flags);
  file.write(to_json(bench, flags));
  return 0;
}

}  // namespace

void add_bench_data(CLI::App& group, Context& context) {
  CLI::App& command = add_command(
      group, "data", "Time reading, decoding and resizing a data set's images, by thread count and stage",
      {"redline bench data shapes", "redline bench data imagenet --threads 1,8,16 --json data.json",
       "redline bench data imagenet --decode gpu --batch-size 256 --warm-only"});
  const auto flags = std::make_shared<DataFlags>();
  bench::DataBenchOptions& o = flags->options;
  command.add_option("path", flags->path, "The data set")->type_name("PATH")->required();
  command
      .add_option("--threads", o.threads, "Thread counts, separated by commas (default: 1, 2, 4 … all cores)")
      ->delimiter(',');
  command.add_option("--image-size", o.image_size, "Image height and width in pixels")->capture_default_str();
  command.add_option("-b,--batch-size,--batch", o.batch_size, "Batch size")->capture_default_str();
  command
      .add_option("--decode", flags->decode,
                  "Where training JPEGs are decoded: cpu, or gpu for its JPEG engines")
      ->check(CLI::IsMember({"cpu", "gpu"}))
      ->capture_default_str();
  command.add_option("--seconds", o.seconds, "Length of each measurement")->capture_default_str();
  command.add_option("--max-bad", o.max_bad, "Fraction of images that may be damaged")->capture_default_str();
  command.add_flag("--warm-only", flags->warm_only, "Do not drop the page cache to measure cold");
  command.add_option("--json", flags->json, "Also write the result to this file")->type_name("FILE");
  on_run(command, context, [flags] { return run_data_bench(*flags); });
}

}  // namespace redline::cli
