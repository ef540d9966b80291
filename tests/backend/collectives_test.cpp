// Gradients of ranks that are threads of one process, over real sockets: what is begun while backward goes on
// must be the sums over all ranks when the update begins.
#include "backend/host/collectives.h"

#include <gtest/gtest.h>

#include "tests/comm/run_ranks.h"
#include "tests/plan/fakes.h"

namespace redline::backend {
namespace {

using comm::ConnectOptions;

plan::Plan plan_with(graph::DType wire) {
  plan::Options options;
  options.model.model = "resnet18";
  options.model.image_size = 32;
  options.model.batch = 1;
  options.bucket_bytes = std::size_t{8} << 20;
  options.all_reduce = true;
  options.gradient_wire = wire;
  return plan::make_plan(options, plan::FakeBackend{});
}

// Whole numbers whose sums over two ranks are exact in 8 bits, in a pattern that no bucket's size is a
// multiple of.
float value_of(int rank, std::size_t i, int step) {
  return static_cast<float>((i % 61 + 17 * static_cast<std::size_t>(rank) + static_cast<std::size_t>(step)) %
                            100);
}

// One rank's gradient memory, filled by "ops" as backward would: at the ends of each bucket and at places
// between them, for there are many.
class Gradients {
 public:
  Gradients(const plan::Plan& plan, int rank)
      : plan_(plan), rank_(rank), values_(plan.gradient_bytes / sizeof(float)) {}
  std::byte* data() { return reinterpret_cast<std::byte*>(values_.data()); }

  // What backward has not written yet would spoil the sums.
  void forget() {
    for (const plan::Bucket& bucket : plan_.buckets)
      for (const std::size_t i : places(bucket)) values_[i] = 1e6F;
  }
  void complete_after(std::size_t op, int step) {
    for (const plan::Bucket& bucket : plan_.buckets) {
      if (bucket.ready_after != static_cast<int>(op)) continue;
      for (const std::size_t i : places(bucket)) values_[i] = value_of(rank_, i, step);
    }
  }
  // The first place where they are not the sums of two ranks; -1 when all are.
  std::ptrdiff_t wrong_place(int step) const {
    for (const plan::Bucket& bucket : plan_.buckets)
      for (const std::size_t i : places(bucket))
        if (values_[i] != value_of(0, i, step) + value_of(1, i, step)) return static_cast<std::ptrdiff_t>(i);
    return -1;
  }

 private:
  static std::vector<std::size_t> places(const plan::Bucket& bucket) {
    const std::size_t first = bucket.offset / sizeof(float),
                      last = (bucket.offset + bucket.bytes) / sizeof(float) - 1;
    std::vector<std::size_t> found;
    for (std::size_t i = first; i < last; i += 37) found.push_back(i);
    found.push_back(last);
    return found;
  }

  const plan::Plan& plan_;
  int rank_;
  std::vector<float> values_;
};

void run_step(const plan::Plan& plan, Collectives& collectives, Gradients& gradients, int step) {
  const auto& ops = plan.graph().ops();
  gradients.forget();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].kind == graph::OpKind::all_reduce) {
      collectives.finish(i);
    } else {
      gradients.complete_after(i, step);
      collectives.begin_after(i);
    }
  }
}

TEST(Collectives, EveryBucketHoldsTheSumsOfAllRanksInEveryStep) {
  for (const graph::DType wire : {graph::DType::f32, graph::DType::bf16}) {
    const plan::Plan plan = plan_with(wire);
    ASSERT_GT(plan.buckets.size(), 3U);
    const auto failures = comm::run_ranks(2, [&](const ConnectOptions& options) {
      Gradients gradients(plan, options.world.rank);
      Collectives collectives(comm::connect(options), plan, gradients.data());
      const int steps = wire == graph::DType::f32 ? 2 : 1;  // conversions take long under a sanitizer
      for (int step = 0; step < steps; ++step) {
        run_step(plan, collectives, gradients, step);
        EXPECT_EQ(gradients.wrong_place(step), -1) << "in step " << step;
      }
      EXPECT_GT(collectives.take_exposed().count(), 0);
      EXPECT_EQ(collectives.take_exposed().count(), 0) << "told once";
    });
    EXPECT_EQ(failures, std::vector<std::string>(2));
  }
}

TEST(Collectives, NormsGetMeansOverAllRanks) {
  const plan::Plan plan = plan_with(graph::DType::f32);
  const auto failures = comm::run_ranks(2, [&](const ConnectOptions& options) {
    Gradients gradients(plan, options.world.rank);
    Collectives collectives(comm::connect(options), plan, gradients.data());
    std::vector<double> values{1.0 + options.world.rank, -4.0 * options.world.rank};
    collectives.average(values);
    EXPECT_EQ(values, (std::vector<double>{1.5, -2}));
  });
  EXPECT_EQ(failures, std::vector<std::string>(2));
}

TEST(Collectives, ALostRankEndsTheStepOfTheOther) {
  const plan::Plan plan = plan_with(graph::DType::f32);
  const auto failures = comm::run_ranks(2, [&](const ConnectOptions& options) {
    Gradients gradients(plan, options.world.rank);
    const std::shared_ptr<comm::Communicator> communicator = comm::connect(options);
    if (options.world.rank == 1) return communicator->leave("the data is damaged");
    Collectives collectives(communicator, plan, gradients.data());
    run_step(plan, collectives, gradients, 0);
  });
  EXPECT_TRUE(failures[0].ends_with(" failed: the data is damaged")) << failures[0];
  EXPECT_EQ(failures[1], "");
}

}  // namespace
}  // namespace redline::backend
