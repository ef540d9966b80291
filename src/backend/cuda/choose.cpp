#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "backend/cuda/step.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "base/sha256.h"
#include "plan/traffic.h"

namespace redline::backend::cuda {
namespace {

using graph::TensorId;
using plan::Region;

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr int kMostPlans = 16;  // of cuDNN's, of one shape

// Random bytes that are small finite numbers in every type: on zeros, kernels look faster than they are.
void fill_random(const DeviceMemory& memory) {
  std::vector<std::uint16_t> pattern(std::size_t{1} << 20);
  Random random(1);
  for (std::uint16_t& value : pattern) value = 0x3000U | (random.next_u32() & 0x87ffU);
  const std::size_t bytes = memory.size();
  std::size_t filled = std::min(pattern.size() * 2, bytes);
  upload(memory.data(), std::as_bytes(std::span(pattern)).first(filled));
  while (filled < bytes) {
    const std::size_t next = std::min(filled, bytes - filled);
    copy_async(memory.data() + filled, memory.data(), next, nullptr);
    filled += next;
  }
}

// The memory that steps are timed on: activations and gradients in their own places, and stand-ins for
// tensors that outlive a step, which timing must not change. Filled with random numbers, and cleared at the
// end.
class TimingMemory {
 public:
  TimingMemory(const plan::Plan& plan, const Places& places, const DeviceMemory& activations,
               const DeviceMemory& gradients)
      : plan_(plan), places_(places), used_{&activations, &gradients} {
    for (const plan::Placement& placement : plan.placements) {
      if (stands_in(placement)) each_ = std::max(each_, (placement.bytes + 255) / 256 * 256);
    }
    kept_ = DeviceMemory(kMostKept * each_);
    check_cuda(cudaDeviceSynchronize(), "waiting for the device");
    fill_random(kept_);
    for (const DeviceMemory* memory : used_) fill_random(*memory);
    check_cuda(cudaDeviceSynchronize(), "filling device memory");
  }
  ~TimingMemory() {
    for (const DeviceMemory* memory : used_) cudaMemset(memory->data(), 0, memory->size());
    cudaDeviceSynchronize();
  }
  TimingMemory(const TimingMemory&) = delete;
  TimingMemory& operator=(const TimingMemory&) = delete;

  // For one group.
  Places places() const {
    auto offsets = std::make_shared<std::map<TensorId, std::size_t>>();
    const auto kept = [this, offsets](TensorId id) {
      const std::size_t offset = offsets->try_emplace(id, offsets->size() * each_).first->second;
      check(offset < kept_.size(), "too many tensors to time");
      return kept_.data() + offset;
    };
    return {[this, kept](TensorId id) {
              return id != graph::kNone && stands_in(plan_.placement(id)) ? kept(id) : places_.address(id);
            },
            [this, kept](TensorId id, DType dtype) {
              return stands_in(plan_.placement(id)) ? kept(id) : places_.weights(id, dtype);
            }};
  }

 private:
  static constexpr std::size_t kMostKept = 16;  // tensors of one group
  static bool stands_in(const plan::Placement& placement) {
    return placement.region == Region::state || placement.region == Region::host_io;
  }

  const plan::Plan& plan_;
  const Places& places_;
  const DeviceMemory* used_[2];
  std::size_t each_ = 256;
  DeviceMemory kept_;
};

// Times steps by the device's clock, after a warm-up: an idle GPU does not run at the clocks of training.
class StepTimer {
 public:
  explicit StepTimer(double warm_up) : warm_up_(warm_up) {}

  double seconds(const Step& step, double best) {
    step(stream_.get());  // loads the kernel
    wait_for(stream_.get());
    const double warm_up = std::exchange(warm_up_, 0);
    for (const Stopwatch watch; watch.seconds() < warm_up;) run([&] { step(stream_.get()); });
    constexpr double kLong = 2e-3, kLaunching = 50e-6;  // kLaunching: by the host, perhaps included
    const double once = run([&] { step(stream_.get()); });
    if (once > 1.5 * best + kLaunching) return once;
    // As one graph, like a step.
    const int runs = std::clamp(static_cast<int>(kLong / once), 1, 8);
    const Graph graph = capture_graph(stream_.get(), [&] {
      for (int i = 0; i < runs; ++i) step(stream_.get());
    });
    const GraphExec exec = instantiate(graph);
    double fastest = kNever;
    for (int i = 0; i < (once > kLong ? 2 : 4); ++i)
      fastest =
          std::min(fastest, run([&] { check_cuda(cudaGraphLaunch(exec.get(), stream_.get()), "timing"); }));
    return fastest / runs;
  }

 private:
  double run(const std::function<void()>& launch) const { return timer_.seconds(stream_.get(), launch); }

  Stream stream_ = make_stream();
  DeviceTimer timer_;
  double warm_up_;  // seconds, before the first
};

// About how long each group takes, to find those that matter.
std::vector<double> values_of(const plan::Plan& plan) {
  constexpr double kBytes = 3e12, kFlops = 5e14, kWideFlops = 5e13;  // a second; fp32 has no matrix units
  const double flops = plan.weights == DType::f32 ? kWideFlops : kFlops;
  std::vector<double> values;
  for (const plan::Work& work : plan::work_of(plan, plan.groups))
    values.push_back(work.flops / flops + work.bytes / kBytes);
  return values;
}

struct Chooser {
  const plan::Plan& plan;
  const Places& places;
  const DeviceMemory &activations, &gradients;
  Shared& shared;
  Choices& choices;
  const ChoosingRules& rules;
  ChoosingTime& left;
  std::vector<double> values = values_of(plan);  // by group
  std::vector<Candidates> candidates = {};       // by group
  bool again = false;                            // times what is remembered too
  Chosen chosen = {};

  Chosen run() {
    make_all_candidates();
    const std::vector<Answer> answers = choose();
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const std::vector<Candidate>& list = candidates[i].list;
      const std::size_t which =
          rules.candidate < 0 ? answers[i].candidate : static_cast<std::size_t>(rules.candidate);
      chosen.steps.push_back(list.at(std::min(which, list.size() - 1)).make());
    }
    shared.allocate();
    if (!chosen.alternatives.empty()) chosen.candidates = std::move(candidates);
    return std::move(chosen);
  }

  GroupView group(std::size_t i) const { return {plan, plan.groups[i], places}; }

  // cuDNN builds plans, for all shapes at once, before its candidates can be made. If the choice is
  // remembered, only the plan that it names is built; none if the first candidate is one of our own kernels
  // and will be taken.
  void make_all_candidates() {
    std::string keys;
    for (std::size_t i = 0; i < plan.groups.size(); ++i)
      keys += candidates.emplace_back(make_candidates(group(i), shared)).key + '\n';
    if (rules.in_step) chosen.compared = "step_" + hex(sha256(keys)).substr(0, 16);
    again = rules.in_step && !choices.find(chosen.compared);
    std::map<std::string, ConvRequest> requests;
    for (std::size_t i = 0; i < plan.groups.size(); ++i) {
      const Candidates& own = candidates[i];
      if (rules.deterministic && !own.list.empty()) continue;
      const auto known = again ? std::nullopt : choices.find(own.key);
      for (const auto& [prefix, shape] : own.cudnn) {
        const bool named = known && known->starts_with(prefix);
        if (known && !named) continue;
        ConvRequest& request = requests.try_emplace(shape.key(), ConvRequest{shape}).first->second;
        if (named)
          request.plans.push_back(known->substr(prefix.size(), known->find(kWith) - prefix.size()));
        else
          request.others = true;
        request.value += values[i];
      }
    }
    std::vector<ConvRequest> all;
    for (auto& [key, request] : requests) all.push_back(std::move(request));
    const Stopwatch watch;
    shared.convs().build(std::move(all), rules.deterministic ? 1 : kMostPlans,
                         [&] { return watch.seconds() < left.building && !(rules.stop && rules.stop()); });
    left.building = std::max(0.0, left.building - watch.seconds());
    for (std::size_t i = 0; i < plan.groups.size(); ++i) {
      if (candidates[i].cudnn.empty()) continue;
      candidates[i] = make_candidates(group(i), shared);
      if (!candidates[i].list.empty()) continue;
      // The remembered candidate no longer exists, and cuDNN has not built any plan.
      for (const CudnnPlans& plans : candidates[i].cudnn)
        shared.convs().build({{plans.shape}}, 1, [] { return false; });
      candidates[i] = make_candidates(group(i), shared);
    }
  }

  std::vector<Answer> choose() {
    std::vector<Question> questions;  // by group
    std::set<std::string> keys;
    std::optional<Bench> bench;  // made when something has to be timed
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const auto& [key, list, cudnn] = candidates[i];
      Question& question = questions.emplace_back(Question{.key = key, .value = values[i]});
      for (const Candidate& one : list) question.candidates.push_back(one.name);
      question.complete = std::ranges::all_of(
          cudnn, [&](const CudnnPlans& plans) { return shared.convs().is_complete(plans.shape); });
      question.time = [&, i](std::size_t candidate, double best) {
        // Few choices are not worth a long warm-up.
        const double warm_up = std::min(0.3, 0.01 * static_cast<double>(keys.size()));
        if (!bench) bench.emplace(*this, warm_up);
        return bench->time(i, candidate, best);
      };
      if (list.size() > 1) keys.insert(key);
    }
    const Stopwatch watch;
    std::vector<Answer> answers =
        tune(questions, choices,
             {&left.timing, [&] { return watch.seconds(); }, rules.stop, rules.progress, again});
    const auto open = std::ranges::count_if(keys, [&](const std::string& key) { return !choices.find(key); });
    if (open > 0 && !rules.deterministic)
      log_info(
          "{} of {} kernels may not be the fastest: later runs continue timing, and --tune times all of them",
          open, keys.size());
    if (again) chosen.alternatives = alternatives_of(questions, answers);
    return answers;
  }

  // Times the candidates of groups.
  struct Bench {
    TimingMemory memory;
    Shared shared;
    StepTimer timer;
    const plan::Plan& plan;

    Bench(const Chooser& of, double warm_up)
        : memory(of.plan, of.places, of.activations, of.gradients),
          shared(of.shared.convs(), of.shared.device(), of.rules.tf32, nullptr),
          timer(warm_up),
          plan(of.plan) {}

    double time(std::size_t group, std::size_t candidate, double best) {
      try {
        shared.forget_own();
        const GroupView view(plan, plan.groups[group], memory.places());
        const Step step = make_candidates(view, shared).list.at(candidate).make();
        shared.allocate();
        return timer.seconds(step, best);
      } catch (const OutOfMemoryError&) {
        return kNever;  // a work space that does not fit
      } catch (const InternalError& error) {
        log_debug("{}", error.what());  // one of cuDNN's plans that does not run
        return kNever;
      }
    }
  };
};

}  // namespace

Chosen choose_steps(const plan::Plan& plan, const Places& places, const DeviceMemory& activations,
                    const DeviceMemory& gradients, Shared& shared, Choices& choices,
                    const ChoosingRules& rules, ChoosingTime& left) {
  return Chooser{plan, places, activations, gradients, shared, choices, rules, left}.run();
}

}  // namespace redline::backend::cuda
