#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
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
// What is compared in the step: candidates that take at most so much longer than the fastest, for groups of
// at least this share of the step.
constexpr double kClose = 1.1, kLeastShare = 0.002;
constexpr std::size_t kMostClose = 4;

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
    const std::map<std::string, std::size_t> answers = choose();
    for (const Candidates& of_group : candidates) {
      std::size_t which = of_group.list.size() > 1 ? answers.at(of_group.key) : 0;
      if (rules.candidate >= 0)
        which = std::min(static_cast<std::size_t>(rules.candidate), of_group.list.size() - 1);
      chosen.steps.push_back(of_group.list.at(which).make());
    }
    shared.allocate();
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

  // By key, the candidate to take.
  std::map<std::string, std::size_t> choose() {
    std::map<std::string, std::size_t> position;  // of a question
    std::vector<Question> questions;
    std::vector<std::vector<std::size_t>> askers;  // by question, its groups
    std::vector<std::vector<double>> seconds;      // by question and candidate
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const auto& [key, list, cudnn] = candidates[i];
      if (list.size() < 2) continue;
      const auto [found, added] = position.try_emplace(key, questions.size());
      if (added) {
        Question& question = questions.emplace_back(Question{.key = key});
        for (const Candidate& one : list) question.candidates.push_back(one.name);
        question.complete = std::ranges::all_of(
            cudnn, [&](const CudnnPlans& plans) { return shared.convs().is_complete(plans.shape); });
        askers.emplace_back();
        seconds.emplace_back(list.size(), kNever);
      }
      askers[found->second].push_back(i);
      questions[found->second].value += values[i];
    }
    std::optional<Bench> bench;  // made when something has to be timed
    for (std::size_t q = 0; q < questions.size(); ++q) {
      questions[q].time = [&, q](std::size_t candidate, double best) {
        // Few choices are not worth a long warm-up.
        const double warm_up = std::min(0.3, 0.01 * static_cast<double>(questions.size()));
        if (!bench) bench.emplace(*this, warm_up);
        return seconds[q][candidate] = bench->time(askers[q].front(), candidate, best);
      };
    }
    const Stopwatch watch;
    const std::vector<std::size_t> answers =
        tune(questions, choices,
             {&left.timing, [&] { return watch.seconds(); }, rules.stop, rules.progress, again});
    for (std::size_t q = 0; again && q < questions.size(); ++q)
      add_close(questions[q], askers[q], seconds[q], answers[q]);
    const auto open = std::ranges::count_if(
        questions, [&](const Question& question) { return !choices.find(question.key); });
    if (open > 0 && !rules.deterministic)
      log_info(
          "{} of {} kernels may not be the fastest: later runs continue timing, and --tune times all of them",
          open, questions.size());
    for (auto& [key, at] : position) at = answers[at];
    return position;
  }

  // Adds a question to be compared in the step, if it has close candidates and matters enough.
  void add_close(const Question& question, const std::vector<std::size_t>& groups,
                 const std::vector<double>& seconds, std::size_t answer) {
    const double step = std::accumulate(values.begin(), values.end(), 0.0);
    std::vector<std::size_t> close;
    for (std::size_t c = 0; c < seconds.size(); ++c) {
      if (seconds[c] <= kClose * seconds[answer] && seconds[answer] < kNever) close.push_back(c);
    }
    if (close.size() < 2 || question.value < kLeastShare * step) return;
    std::ranges::stable_sort(close, {}, [&](std::size_t c) { return c == answer ? 0 : seconds[c]; });
    close.resize(std::min(close.size(), kMostClose));
    Alternatives& alternatives =
        chosen.questions.emplace_back(Alternatives{question.key, {}, question.value});
    for (const std::size_t c : close) alternatives.candidates.push_back(question.candidates[c]);
    std::vector<CloseGroup>& of_groups = chosen.close.emplace_back();
    for (const std::size_t i : groups) {
      CloseGroup& of = of_groups.emplace_back(CloseGroup{i, {}});
      for (const std::size_t c : close) of.candidates.push_back(candidates[i].list[c]);
    }
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
