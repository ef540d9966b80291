#include "profile/files.h"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <string_view>
#include <unordered_map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/build_info.h"
#include "base/clock.h"
#include "base/error.h"

namespace redline::profile {
namespace {

using backend::Activity;

// A file that is compressed as it is written and appears atomically.
class GzipFile {
 public:
  explicit GzipFile(const std::filesystem::path& path) : file_(path, Sync::no) {
    constexpr int kGzip = 15 + 16, kFast = 2;  // the largest trace takes seconds
    check(deflateInit2(&stream_, kFast, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) == Z_OK,
          "zlib failed to start");
  }
  ~GzipFile() { deflateEnd(&stream_); }
  GzipFile(const GzipFile&) = delete;
  GzipFile& operator=(const GzipFile&) = delete;

  void write(std::string_view text) {
    bytes_ += text.size();
    push(text, Z_NO_FLUSH);
  }
  void commit() {
    push({}, Z_FINISH);
    file_.commit();
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  void push(std::string_view text, int flush) {
    std::array<std::byte, 1 << 16> out;
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream_.avail_in = static_cast<uInt>(text.size());
    do {
      stream_.next_out = reinterpret_cast<Bytef*>(out.data());
      stream_.avail_out = static_cast<uInt>(out.size());
      deflate(&stream_, flush);
      file_.write(std::span(out.data(), out.size() - stream_.avail_out));
    } while (stream_.avail_out == 0);
  }

  AtomicFile file_;
  z_stream stream_{};
  std::uint64_t bytes_ = 0;
};

// Text as a JSON string, with quotes.
std::string json_text(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Copies and fills that belong to no op already have a readable name.
bool shows_label(const Activity& a) { return a.op != nullptr || a.kind == Activity::Kind::kernel; }

// Ops are drawn as a separate process next to the device's.
constexpr int kOpsProcess = 1'000'000;
constexpr const char* kDataName =
    "enumerate(DataLoader)#Redline.__next__";  // the name that the plugin looks for

std::int64_t moment_of(const TelemetrySample& sample) { return steady_nanoseconds(sample.time); }

class TraceWriter {
 public:
  TraceWriter(const std::filesystem::path& path, const Timeline& timeline, const OpArguments& arguments,
              const std::vector<TelemetrySample>& samples, const Subject& subject, std::uint64_t most_bytes)
      : file_(path),
        timeline_(timeline),
        arguments_(arguments),
        samples_(samples),
        subject_(subject),
        most_(most_bytes) {
    origin_ = timeline.steps.empty() ? 0 : timeline.steps.front().begin;
    for (const DeviceEvent& event : timeline.events) origin_ = std::min(origin_, event.activity.begin);
  }

  TraceWritten write() {
    file_.write(head());
    names();
    flush();
    const auto host = by_step(timeline_.host, [&](const HostSpan& span) { return step_of(span.begin); });
    const auto events = by_step(timeline_.events, [](const DeviceEvent& event) { return event.step; });
    const auto calls = by_step(timeline_.calls, [&](const Activity& call) { return step_of(call.begin); });
    auto sample = std::ranges::lower_bound(samples_, origin_, {}, moment_of);
    for (std::size_t i = 0; i < timeline_.steps.size(); ++i) {
      step(timeline_.steps[i]);
      // A device may lag behind the host.
      const std::int64_t end = std::max(timeline_.steps[i].end, timeline_.steps[i].device_end);
      for (; sample != samples_.end() && moment_of(*sample) < end; ++sample) counters(*sample);
      for (const HostSpan* span : host[i]) host_work(*span);
      for (const DeviceEvent* event : events[i]) device(*event);
      for (const Activity* call : calls[i]) host_call(*call);
      if (!flush()) break;
    }
    written_.steps_left_out = static_cast<std::int64_t>(timeline_.steps.size()) - written_.steps;
    file_.write(kTail);
    file_.commit();
    written_.bytes = file_.bytes();
    return written_;
  }

 private:
  std::string head() const {
    // HolisticTraceAnalysis looks for "rank": with a space after the colon.
    return fmt::format(
        "{{\"schemaVersion\": 1,\n\"program\": {},\n\"deviceProperties\": [{{\"id\": {}, \"name\": {}, "
        "\"totalGlobalMem\": {}, \"computeMajor\": {}, \"computeMinor\": {}, \"numSms\": {}}}],\n"
        "\"distributedInfo\": {{\"backend\": \"{}\", \"rank\": {}, \"world_size\": {}}},\n"
        "\"displayTimeUnit\": \"ms\",\n\"traceEvents\": [",
        json_text(program_text()), subject_.device, json_text(subject_.device_name), subject_.device_memory,
        subject_.compute_major, subject_.compute_minor, subject_.processors,
        timeline_.host_computes ? "gloo" : "nccl", subject_.rank, subject_.world_size);
  }

  void names() {
    meta("process_name", subject_.process, 0, json_text("redline"));
    meta("thread_name", subject_.process, subject_.process, json_text("training"));
    if (timeline_.host_computes) return;
    meta("process_name", subject_.device, 0, json_text(subject_.device_name));
    meta("process_name", kOpsProcess + subject_.device, 0, json_text("ops of the plan"));
    std::vector<int> lanes;
    for (const DeviceEvent& event : timeline_.events) lanes.push_back(event.lane);
    std::ranges::sort(lanes);
    lanes.erase(std::unique(lanes.begin(), lanes.end()), lanes.end());
    for (const int lane : lanes) {
      meta("thread_name", subject_.device, lane, json_text(fmt::format("stream {}", lane)));
      meta("thread_name", kOpsProcess + subject_.device, lane,
           json_text(fmt::format("ops of stream {}", lane)));
    }
    for (const Activity& call : timeline_.calls) {
      const auto row = subject_.process + 1 + static_cast<int>(callers_.size());
      if (callers_.emplace(call.stream, row).second)
        meta("thread_name", subject_.process, row, json_text(fmt::format("CUDA calls {}", callers_.size())));
    }
  }

  int step_of(std::int64_t moment) const { return step_at(timeline_.steps, moment); }

  template <typename Item, typename Step>
  std::vector<std::vector<const Item*>> by_step(const std::vector<Item>& items, Step step) const {
    std::vector<std::vector<const Item*>> lists(timeline_.steps.size());
    for (const Item& item : items)
      if (const int at = step(item); at >= 0) lists[static_cast<std::size_t>(at)].push_back(&item);
    return lists;
  }

  void step(const StepSpan& step) {
    complete("user_annotation", fmt::format("\"ProfilerStep#{}\"", step.number), subject_.process,
             subject_.process, step.begin, step.end, "");
  }

  void counters(const TelemetrySample& sample) {
    const std::int64_t at = moment_of(sample);
    if (sample.gpu) {
      const GpuSample& gpu = *sample.gpu;
      if (gpu.sm_clock_mhz) counter("GPU clock", "MHz", subject_.device, at, *gpu.sm_clock_mhz);
      if (gpu.power_mw) counter("GPU power", "W", subject_.device, at, 1e-3 * *gpu.power_mw);
      return;
    }
    if (sample.cpu.clock_mhz) counter("CPU clock", "MHz", subject_.process, at, *sample.cpu.clock_mhz);
    if (sample.cpu_power_w) counter("CPU power", "W", subject_.process, at, *sample.cpu_power_w);
  }

  void host_work(const HostSpan& span) {
    const bool data = span.work == HostWork::data;
    complete(data ? "user_annotation" : "cpu_op", json_text(data ? kDataName : name_of(span.work)),
             subject_.process, subject_.process, span.begin, span.end, "");
  }

  // Each thread's calls get their own row: their clock is slightly off ours, and Perfetto drops events that
  // partly overlap another in the same row.
  void host_call(const Activity& call) {
    complete("cuda_runtime", name(*call.name), subject_.process, callers_.at(call.stream), call.begin,
             call.end, fmt::format("\"correlation\": {0}, \"External id\": {0}", call.correlation));
  }

  void device(const DeviceEvent& event) {
    const Activity& a = event.activity;
    if (timeline_.host_computes) {
      complete("cpu_op", label(a), subject_.process, subject_.process, a.begin, a.end, arguments_of(a));
      return;
    }
    std::string args = fmt::format(
        "\"device\": {}, \"context\": {}, \"stream\": {}, \"correlation\": {}, \"External id\": {}",
        subject_.device, a.context, event.lane, a.correlation, a.correlation);
    if (shows_label(a)) args += fmt::format(", \"op\": {}", label(a));
    if (const std::string& own = arguments_of(a); !own.empty()) args += ", " + own;
    const char* category = "kernel";
    if (a.kind == Activity::Kind::kernel) {
      const double blocks = static_cast<double>(a.grid[0]) * a.grid[1] * a.grid[2];
      const double warps = std::ceil(static_cast<double>(a.block[0]) * a.block[1] * a.block[2] / 32);
      const int processors = std::max(1, subject_.processors);
      args += fmt::format(
          ", \"grid\": [{}, {}, {}], \"block\": [{}, {}, {}], \"registers per thread\": {}, \"shared "
          "memory\": {}, "
          "\"blocks per SM\": {:.3f}, \"warps per SM\": {:.3f}, \"est. achieved occupancy %\": {:.0f}",
          a.grid[0], a.grid[1], a.grid[2], a.block[0], a.block[1], a.block[2], a.registers,
          a.static_shared + a.dynamic_shared, blocks / processors, blocks * warps / processors,
          estimated_occupancy(a, subject_.processors));
    } else {
      category = a.kind == Activity::Kind::copy ? "gpu_memcpy" : "gpu_memset";
      const double seconds = 1e-9 * static_cast<double>(std::max<std::int64_t>(1, a.end - a.begin));
      args += fmt::format(", \"bytes\": {}, \"memory bandwidth (GB/s)\": {:.3f}", a.bytes,
                          static_cast<double>(a.bytes) / seconds / 1e9);
    }
    complete(category, name(*a.name), subject_.device, event.lane, a.begin, a.end, args);
    if (shows_label(a))
      complete("gpu_user_annotation", label(a), kOpsProcess + subject_.device, event.lane, a.begin, a.end,
               arguments_of(a));
  }

  void meta(const char* what, int process, int thread, const std::string& name) {
    put(fmt::format(
        "{{\"ph\": \"M\", \"name\": \"{}\", \"pid\": {}, \"tid\": {}, \"args\": {{\"name\": {}}}}}", what,
        process, thread, name));
  }

  // Names and labels as JSON, cached: there are few, and each is in many events.
  const std::string& name(const std::string& text) {
    std::string& known = names_[&text];
    if (known.empty()) known = json_text(text);
    return known;
  }
  const std::string& label(const Activity& a) {
    std::string& known = labels_[a.op != nullptr ? static_cast<const void*>(a.op) : a.name];
    if (known.empty()) known = json_text(label_of(a));
    return known;
  }

  const std::string& arguments_of(const Activity& a) const {
    static const std::string none;
    const auto found = arguments_.find(a.op);
    return found == arguments_.end() ? none : found->second;
  }

  void counter(const char* name, const char* unit, int process, std::int64_t at, double value) {
    put(
        fmt::format("{{\"ph\": \"C\", \"name\": \"{0} ({1})\", \"pid\": {2}, \"tid\": 0, \"ts\": {3:.3f}, "
                    "\"args\": {{\"{1}\": {4:.6g}}}}}",
                    name, unit, process, 1e-3 * static_cast<double>(at - origin_), value));
  }

  // `name` is JSON already.
  void complete(const char* category, const std::string& name, int process, int thread, std::int64_t begin,
                std::int64_t end, const std::string& args) {
    // Relative microseconds: absolute nanoseconds do not fit into a reader's double.
    put(fmt::format(
        "{{\"ph\": \"X\", \"cat\": \"{}\", \"name\": {}, \"pid\": {}, \"tid\": {}, \"ts\": {:.3f}, \"dur\": "
        "{:.3f}, "
        "\"args\": {{{}}}}}",
        category, name, process, thread, 1e-3 * static_cast<double>(begin - origin_),
        1e-3 * static_cast<double>(end - begin), args));
    ++pending_events_;
  }

  void put(const std::string& event) {
    pending_ += first_ ? "\n" : ",\n";
    pending_ += event;
    first_ = false;
  }

  // Writes what is pending, a whole step or the names; false if there is no room for it.
  bool flush() {
    if (file_.bytes() + pending_.size() + kTail.size() > most_) return false;
    file_.write(pending_);
    written_.events += pending_events_;
    if (pending_events_ > 0) ++written_.steps;
    pending_.clear();
    pending_events_ = 0;
    return true;
  }

  static constexpr std::string_view kTail = "\n]}\n";
  GzipFile file_;
  const Timeline& timeline_;
  const OpArguments& arguments_;
  const std::vector<TelemetrySample>& samples_;
  const Subject& subject_;
  std::uint64_t most_;
  std::int64_t origin_ = 0;
  bool first_ = true;
  std::map<std::uint32_t, int> callers_;  // rows of the threads that made calls
  std::unordered_map<const std::string*, std::string> names_;
  std::unordered_map<const void*, std::string> labels_;  // by op, or by name for events without one
  std::string pending_;
  std::uint64_t pending_events_ = 0;
  TraceWritten written_;
};

// "[[64, 3, 224, 224], [64, 3, 7, 7]]"; for a bucket with dozens of tensors, the first ones.
std::string dims_of(const graph::Graph& graph, const std::vector<graph::TensorId>& ids) {
  constexpr std::size_t kMost = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(ids.size(), kMost); ++i) {
    if (ids[i] == graph::kNone) continue;
    const graph::Shape& shape = graph.tensor(ids[i]).shape;
    std::string dims;
    for (int d = 0; d < shape.rank(); ++d) dims += fmt::format("{}{}", d == 0 ? "" : ", ", shape[d]);
    text += fmt::format("{}[{}]", text.empty() ? "" : ", ", dims);
  }
  return "[" + text + "]";
}

// A field of a CSV file.
std::string field(const std::string& text) {
  std::string safe = "\"";
  for (const char c : text) {
    if (c == '"') safe += '"';
    safe += c;
  }
  return safe + '"';
}

std::string event_row(const Activity& a, std::int64_t origin, const Subject& subject) {
  const double start = 1e-9 * static_cast<double>(a.begin - origin),
               seconds = 1e-9 * static_cast<double>(a.end - a.begin);
  std::string row = fmt::format("{:.9f},{:.9f},", start, 1e3 * seconds);
  if (a.kind == Activity::Kind::kernel && a.grid[0] > 0) {
    row += fmt::format("{},{},{},{},{},{},{},{},{},", a.grid[0], a.grid[1], a.grid[2], a.block[0], a.block[1],
                       a.block[2], a.registers, a.static_shared, a.dynamic_shared);
  } else {
    row += ",,,,,,,,,";
  }
  if (a.bytes > 0) {
    row += fmt::format("{:.6f},{:.6f},", static_cast<double>(a.bytes) / 1e6,
                       seconds > 0 ? static_cast<double>(a.bytes) / seconds / 1e9 : 0.0);
  } else {
    row += ",,";
  }
  row += fmt::format("{},{},{},{},{},", a.from, a.to,
                     field(fmt::format("{} ({})", subject.device_name, subject.device)), a.context, a.stream);
  return row + fmt::format("{},{},{},,,,,\n", field(a.name == nullptr ? label_of(a) : *a.name), a.correlation,
                           field(shows_label(a) ? label_of(a) : ""));
}

template <typename T>
std::string or_empty(const std::optional<T>& value) {
  return value ? fmt::format("{}", *value) : "";
}

std::string sample_row(const TelemetrySample& s, std::int64_t origin, const Subject& subject) {
  std::string row =
      fmt::format("{:.9f},", 1e-9 * static_cast<double>(moment_of(s) - origin)) + std::string(14, ',');
  row += field(fmt::format("{} ({})", subject.device_name, subject.device)) + ",,,\"[sample]\",,,";
  if (s.gpu) {
    const GpuSample& g = *s.gpu;
    return row + fmt::format("{},{},{},{},{}\n", or_empty(g.sm_clock_mhz), or_empty(g.memory_clock_mhz),
                             or_empty(g.temperature_c), or_empty(g.power_mw), or_empty(g.power_limit_mw));
  }
  return row + fmt::format("{},,{},{},\n", s.cpu.clock_mhz ? fmt::format("{:.0f}", *s.cpu.clock_mhz) : "",
                           or_empty(s.cpu.temperature_c),
                           s.cpu_power_w ? fmt::format("{:.0f}", 1000 * *s.cpu_power_w) : "");
}

}  // namespace

OpArguments op_arguments(const std::vector<PlanRuns>& plans) {
  OpArguments all;
  for (const PlanRuns& runs : plans) {
    const graph::Graph& graph = runs.plan->graph();
    const std::vector<plan::Work> work = plan::work_of(*runs.plan, runs.plan->groups);
    for (std::size_t i = 0; i < work.size(); ++i) {
      const plan::Group& group = runs.plan->groups[i];
      const graph::Op& op = graph.ops()[static_cast<std::size_t>(plan::lead_of(graph, group))];
      std::string text;
      if (!plan::updates_many(graph, group))
        text = fmt::format("\"Input Dims\": {}, \"Output Dims\": {}, ", dims_of(graph, op.inputs),
                           dims_of(graph, op.outputs));
      all[&op] =
          text + fmt::format("\"op FLOPs\": {:.0f}, \"op bytes\": {:.0f}", work[i].flops, work[i].bytes);
    }
  }
  return all;
}

TraceWritten write_trace(const Timeline& timeline, const OpArguments& arguments,
                         const std::vector<TelemetrySample>& samples, const Subject& subject,
                         const std::filesystem::path& path, std::uint64_t most_bytes) {
  return TraceWriter(path, timeline, arguments, samples, subject, most_bytes).write();
}

double estimated_occupancy(const Activity& kernel, int processors) {
  // Limits of an SM from Volta to Hopper: threads, registers, blocks, and bytes of shared memory.
  constexpr double kThreads = 2048, kRegisters = 65536, kBlocks = 32, kShared = 228 * 1024;
  const double threads = static_cast<double>(kernel.block[0]) * kernel.block[1] * kernel.block[2];
  if (threads <= 0) return 0;
  const double registers = std::ceil(std::max(1, kernel.registers) / 8.0) * 8 * threads;
  const double shared = kernel.static_shared + kernel.dynamic_shared + 1024.0;
  double blocks = std::min({kBlocks, std::floor(kThreads / threads), std::floor(kRegisters / registers),
                            std::floor(kShared / shared)});
  if (processors > 0) {
    const double launched = static_cast<double>(kernel.grid[0]) * kernel.grid[1] * kernel.grid[2];
    blocks = std::min(blocks, std::ceil(launched / processors));
  }
  return std::clamp(100 * blocks * threads / kThreads, 0.0, 100.0);
}

std::int64_t write_kernel_csv(const Timeline& timeline, const std::vector<TelemetrySample>& samples,
                              const Subject& subject, const std::filesystem::path& path,
                              std::uint64_t most_bytes) {
  AtomicFile file(path, Sync::no);
  file.write(
      "Start,Duration,Grid X,Grid Y,Grid Z,Block X,Block Y,Block Z,Registers Per Thread,Static SMem,Dynamic "
      "SMem,"
      "Size,Throughput,SrcMemType,DstMemType,Device,Context,Stream,Name,Correlation_ID,Op,SM Clock,Memory "
      "Clock,"
      "Temperature,Power,Power Limit\n"
      "s,ms,,,,,,,,B,B,MB,GB/s,,,,,,,,,MHz,MHz,C,mW,mW\n");
  std::int64_t origin = timeline.begin();  // or the first copy, where inputs came ahead
  if (!timeline.events.empty()) origin = std::min(origin, timeline.events.front().activity.begin);
  auto sample = samples.begin();
  const auto add_samples = [&](std::int64_t until) {
    for (; sample != samples.end() && moment_of(*sample) <= until; ++sample)
      if (moment_of(*sample) >= origin) file.write(sample_row(*sample, origin, subject));
  };
  std::vector<std::uint64_t> sizes(timeline.steps.size());  // bytes of each step so far
  std::uint64_t largest = 0;
  std::int64_t last = static_cast<std::int64_t>(timeline.steps.size()) - 1;
  int begun = -1;
  for (const DeviceEvent& event : timeline.events) {
    if (event.step > last) continue;
    if (event.step > begun) {
      // Start a step only if there is room for it and for the rest of the one before.
      if (begun >= 0 && file.size() + 2 * largest > most_bytes) {
        last = begun;
        continue;
      }
      begun = event.step;
    }
    add_samples(event.activity.begin);
    const std::string row = event_row(event.activity, origin, subject);
    largest = std::max(largest, sizes[static_cast<std::size_t>(event.step)] += row.size());
    file.write(row);
  }
  add_samples(last >= 0 ? timeline.steps[static_cast<std::size_t>(last)].device_end : timeline.end());
  file.commit();
  return last + 1;
}

std::string iteration_text(const Timeline& timeline, const Subject& subject) {
  std::string text =
      "# seconds from the end of one step on the device to the end of the next: data and optimizer are "
      "inside\n";
  const std::vector<double> seconds = timeline.iteration_seconds();
  for (std::size_t i = 0; i < seconds.size(); ++i)
    text += fmt::format("Iteration Duration {} {} : {:.9f}\n", timeline.steps[i].number, subject.device,
                        seconds[i]);
  const double total = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  const auto whole = static_cast<std::int64_t>(total);
  text += fmt::format("Training time: {}:{:02}:{:09.6f}\n", whole / 3600, whole / 60 % 60,
                      total - static_cast<double>(whole / 60 * 60));
  return text;
}

}  // namespace redline::profile
