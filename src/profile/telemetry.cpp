#include "profile/telemetry.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"

namespace redline::profile {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

double unix_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

template <typename T>
std::string cell(const std::optional<T>& value) {
  return value ? fmt::format(",{}", *value) : ",";
}

std::string cell(const std::optional<double>& value, int digits) {
  return value ? fmt::format(",{:.{}f}", *value, digits) : ",";
}

}  // namespace

std::string telemetry_header() {
  return "unix_seconds,seconds,gpu_sm_clock_mhz,gpu_memory_clock_mhz,gpu_power_mw,gpu_power_limit_mw,"
         "gpu_temperature_c,gpu_throttle,gpu_use_pct,gpu_memory_use_pct,gpu_memory_used_bytes,gpu_energy_mj,"
         "pcie_received_kb_s,pcie_sent_kb_s,cpu_clock_mhz,cpu_power_mw,cpu_temperature_c,cpu_use,"
         "memory_resident_bytes,cpu_instructions,cpu_cycles,cpu_cache_misses,rank,host,device,"
         "cpu_steal_pct,cpu_others_pct,gpu_other_processes\n";
}

std::string telemetry_row(const TelemetrySample& sample, const TelemetrySource& source) {
  const GpuSample gpu = sample.gpu.value_or(GpuSample{});
  const CpuSample& cpu = sample.cpu;
  std::string row = fmt::format("{:.6f},{:.6f}", sample.unix_seconds, sample.seconds);
  row += cell(gpu.sm_clock_mhz) + cell(gpu.memory_clock_mhz) + cell(gpu.power_mw) + cell(gpu.power_limit_mw) +
         cell(gpu.temperature_c);
  row += gpu.throttle ? "," + throttle_text(*gpu.throttle) : ",";
  row += cell(gpu.use_pct) + cell(gpu.memory_use_pct) + cell(gpu.memory_used) + cell(gpu.energy_mj);
  row += cell(sample.pcie.received) + cell(sample.pcie.sent);
  std::optional<double> milliwatts;
  if (sample.cpu_power_w) milliwatts = *sample.cpu_power_w * 1000;
  row += cell(cpu.clock_mhz, 0) + cell(milliwatts, 0) + cell(cpu.temperature_c, 1);
  row += fmt::format(",{:.3f},{}", sample.cpu_use, cpu.resident_bytes);
  row += cell(cpu.instructions) + cell(cpu.cycles) + cell(cpu.cache_misses);
  row += fmt::format(",{},{},{}", source.rank, source.host, source.device);
  // A resumed run may continue a file of an older version, so new columns come last.
  std::optional<double> stolen, others;
  if (sample.cpu_shares) {
    stolen = 100 * sample.cpu_shares->stolen;
    others = 100 * sample.cpu_shares->others;
  }
  return row + cell(stolen, 2) + cell(others, 2) + cell(sample.gpu_state.other_processes) + "\n";
}

void TelemetrySums::add(const TelemetrySample& now) {
  const auto put = [](Mean& mean, const auto& value, double scale) {
    if (value) mean.add(static_cast<double>(*value) * scale);
  };
  ++sums_.samples;
  if (!first_) {
    first_ = now;
  } else {
    cpu_use_.add(now.cpu_use);
  }
  last_ = now;
  put(cpu_clock_, now.cpu.clock_mhz, 1);
  std::optional<double> temperature = now.cpu.temperature_c;
  if (now.gpu) {
    put(sm_clock_, now.gpu->sm_clock_mhz, 1);
    put(memory_clock_, now.gpu->memory_clock_mhz, 1);
    put(power_, now.gpu->power_mw, 1e-3);
    put(limit_, now.gpu->power_limit_mw, 1e-3);
    put(use_, now.gpu->use_pct, 1);
    temperature.reset();
    if (now.gpu->temperature_c) temperature = *now.gpu->temperature_c;
    const std::uint64_t throttle = now.gpu->throttle.value_or(0);
    sums_.throttle |= throttle;
    capped_.add((throttle & kThrottlePower) != 0 ? 1 : 0);
    faulted_.add((throttle & kThrottleFault) != 0 ? 1 : 0);
    if (now.gpu_state.max_sm_clock_mhz) sums_.max_sm_clock_mhz = *now.gpu_state.max_sm_clock_mhz;
    if (const auto most = now.gpu_state.max_power_limit_mw) sums_.max_power_limit_w = 1e-3 * *most;
    if (const auto others = now.gpu_state.other_processes)
      sums_.other_processes = std::max(sums_.other_processes.value_or(0), *others);
  } else {
    put(power_, now.cpu_power_w, 1);
  }
  if (temperature) sums_.temperature_c = std::max(sums_.temperature_c.value_or(*temperature), *temperature);
}

TelemetrySummary TelemetrySums::summary() const {
  TelemetrySummary result = sums_;
  result.sm_clock_mhz = sm_clock_.value();
  result.memory_clock_mhz = memory_clock_.value();
  result.power_w = power_.value();
  result.power_limit_w = limit_.value();
  result.use_pct = use_.value();
  result.cpu_clock_mhz = cpu_clock_.value();
  result.cpu_use = cpu_use_.value();
  result.power_capped = capped_.value().value_or(0);
  result.faulted = faulted_.value().value_or(0);
  if (!first_) return result;
  result.seconds = seconds_between(first_->time, last_->time);
  result.cpu = shares_between(first_->cpu, last_->cpu);
  if (last_->gpu && first_->gpu) {
    if (last_->gpu->energy_mj && first_->gpu->energy_mj)
      result.joules = 1e-3 * static_cast<double>(*last_->gpu->energy_mj - *first_->gpu->energy_mj);
  } else if (last_->cpu.energy_uj && first_->cpu.energy_uj) {
    result.joules = 1e-6 * static_cast<double>(*last_->cpu.energy_uj - *first_->cpu.energy_uj);
  }
  return result;
}

std::chrono::milliseconds parse_sampling(const std::string& text, const std::string& flag) {
  if (text.empty() || text == "off") return std::chrono::milliseconds(0);
  char* unit = nullptr;
  const double number = std::strtod(text.c_str(), &unit);
  const std::string rest = unit;
  const double milliseconds = rest == "s" ? number * 1000 : rest == "ms" ? number : 0;
  if (!(milliseconds >= 10 && milliseconds <= 60'000)) {
    throw UsageError(
        "{0} '{1}' is not an interval from 10ms to 60s: write 50ms, 0.5s or off; if {1} is the data, put it "
        "before {0}",
        flag, text);
  }
  return std::chrono::milliseconds(static_cast<std::int64_t>(milliseconds));
}

Telemetry::Telemetry(TelemetryOptions options)
    : options_(std::move(options)),
      cpu_(options_.root, options_.file.empty() ? Counting::off : Counting::on) {
  if (!options_.pci_address.empty()) {
    try {
      nvml_ = std::make_unique<Nvml>(options_.pci_address, options_.nvml);
    } catch (const UnavailableError& reason) {
      log_warning("{}", reason.what());
    }
  }
  if (!options_.file.empty()) {
    file_ = std::make_unique<AppendFile>(options_.file, Existing::append);
    if (file_->empty()) file_->append(telemetry_header());
    if (const std::string why = cpu_.refusal(); !why.empty()) log_debug("telemetry: {}", why);
  }
  thread_ = std::thread([this] { run(); });
}

Telemetry::~Telemetry() {
  {
    const std::lock_guard guard(lock_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Telemetry::run() {
  std::unique_lock guard(lock_);
  for (Clock::time_point due = Clock::now();; due += options_.interval) {
    sample();
    // After a sample that took longer than the interval, skip some rather than lag behind.
    const Clock::time_point now = Clock::now();
    if (due + options_.interval < now) due = now - options_.interval;
    if (wake_.wait_until(guard, due + options_.interval, [this] { return stop_; })) break;
  }
  sample();
}

void Telemetry::sample() {
  TelemetrySample now;
  now.time = Clock::now();
  now.unix_seconds = unix_now();
  now.seconds = seconds_between(start_, now.time);
  now.cpu = cpu_.read();
  const bool slow = seconds_between(slow_read_, now.time) >= 1;
  if (slow) slow_read_ = now.time;
  if (nvml_) {
    now.gpu = nvml_->read();
    if (slow) gpu_state_ = nvml_->read_state();
    if (slow && file_) pcie_ = nvml_->read_pcie();
    now.gpu_state = gpu_state_;
    now.pcie = pcie_;
  }
  if (!shares_begin_) shares_begin_ = now.cpu;
  if (slow) {
    if (const auto shares = shares_between(*shares_begin_, now.cpu)) {
      cpu_shares_ = shares;
      shares_begin_ = now.cpu;
    }
  }
  now.cpu_shares = cpu_shares_;
  if (latest_) {
    const double passed = seconds_between(latest_->time, now.time);
    if (passed > 0) now.cpu_use = (now.cpu.cpu_seconds - latest_->cpu.cpu_seconds) / passed;
    if (passed > 0 && now.cpu.energy_uj && latest_->cpu.energy_uj)
      now.cpu_power_w = 1e-6 * static_cast<double>(*now.cpu.energy_uj - *latest_->cpu.energy_uj) / passed;
  }
  window_.add(now);
  whole_.add(now);
  if (options_.keep > 0) {
    kept_.push_back(now);
    if (kept_.size() > options_.keep) kept_.pop_front();
  }
  write(now);
  latest_ = now;
}

void Telemetry::write(const TelemetrySample& now) {
  if (!file_) return;
  try {
    file_->append(telemetry_row(now, options_.source));
    if (stop_) file_->finish();
  } catch (const IoError& reason) {
    log_warning("{}; telemetry is no longer written", reason.what());
    file_.reset();
  }
}

std::optional<TelemetrySample> Telemetry::latest() const {
  const std::lock_guard guard(lock_);
  return latest_;
}

std::vector<TelemetrySample> Telemetry::samples() const {
  const std::lock_guard guard(lock_);
  return {kept_.begin(), kept_.end()};
}

void Telemetry::restart() {
  const std::lock_guard guard(lock_);
  window_ = {};
  sample();
}

TelemetrySummary Telemetry::summary() {
  const std::lock_guard guard(lock_);
  sample();
  return window_.summary();
}

TelemetrySummary Telemetry::whole() {
  const std::lock_guard guard(lock_);
  sample();
  return whole_.summary();
}

std::string live_text(const std::optional<TelemetrySample>& sample) {
  if (!sample || !sample->gpu) return {};
  const GpuSample& gpu = *sample->gpu;
  std::string text;
  const auto add = [&text](const std::string& part) { text += text.empty() ? part : "  " + part; };
  if (gpu.use_pct) add(fmt::format("GPU {}%", *gpu.use_pct));
  if (gpu.sm_clock_mhz) add(fmt::format("{} MHz", *gpu.sm_clock_mhz));
  if (gpu.power_mw) add(fmt::format("{:.0f} W", *gpu.power_mw / 1000.0));
  return text;
}

}  // namespace redline::profile
