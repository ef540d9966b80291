#include "bench/data_bench.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/machine.h"
#include "data/loader.h"
#include "data/parallel.h"
#include "data/sampler.h"
#include "data/sources/record_source.h"

namespace redline::bench {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kCopyBytes = std::size_t{64}
                                   << 20;  // per thread: far more than its share of the caches
constexpr int kCopyRounds = 5;
constexpr int kSampledSizes = 200;
constexpr double kFastest = 4000;  // images/s per thread, faster than any decoder

void validate(const DataBenchOptions& o) {
  if (o.threads.empty()) throw UsageError("--threads is empty");
  for (const int threads : o.threads)
    if (threads < 1 || threads > 4096) throw UsageError("--threads {} is not between 1 and 4096", threads);
  if (!(o.seconds > 0 && o.seconds <= 3600))
    throw UsageError("--seconds {} is not between 0 and 3600", o.seconds);
}

std::uint64_t peak_memory() {
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<std::uint64_t>(usage.ru_maxrss) * 1024 : 0;
}

// The fastest of several rounds in which every thread copies its own memory.
CopyTiming time_copy(int threads) {
  struct Buffers {
    std::vector<std::uint8_t> from, to;
  };
  std::vector<Buffers> buffers(static_cast<std::size_t>(threads));
  const auto on_each = [&](const std::function<void(Buffers&)>& work) {
    std::vector<std::jthread> pool;
    for (Buffers& own : buffers) pool.emplace_back([&] { work(own); });
  };
  on_each([](Buffers& own) {
    own.from.assign(kCopyBytes, 1);
    own.to.assign(kCopyBytes, 0);
  });
  double fastest = 0;
  for (int round = 0; round < kCopyRounds; ++round) {
    const Stopwatch watch;
    on_each([](Buffers& own) { std::memcpy(own.to.data(), own.from.data(), kCopyBytes); });
    const double rate = 2.0 * static_cast<double>(kCopyBytes) * threads / watch.seconds();
    fastest = std::max(fastest, rate);
  }
  return {threads, fastest};
}

class Measurement {
 public:
  Measurement(const DataBenchOptions& options, std::shared_ptr<const data::RecordSource> source, bool train,
              int threads, std::function<void()> breathe)
      : options_(options), breathe_(std::move(breathe)) {
    data::LoaderOptions o;
    o.threads = threads;
    // Training needs whole batches, so few images mean small batches.
    o.batch_size = static_cast<int>(std::min<std::int64_t>(options.batch_size, source->count()));
    o.transform.train = train;
    o.transform.size = options.image_size;
    o.max_bad = options.max_bad;
    if (train) o.decoder = options.decoder;
    loader_ = std::make_unique<data::Loader>(std::move(source), o);
    target_.resize(static_cast<std::size_t>(o.batch_size) * image_bytes());
    result_.train = train;
    result_.threads = threads;
    loader_->start_epoch(0);
  }

  // Empties the ring first, so that the steady rate is measured.
  void warm_up() {
    for (int i = 0; i < 4; ++i) take();
    result_.images = 0;
  }

  // Until the time is up, or with one_pass at the end of the data at the latest.
  DataTiming run(bool one_pass, double mean_bytes) {
    const data::StageSeconds before = loader_->stage_seconds();
    const double waited_before = loader_->waited_seconds();
    const std::int64_t batches = one_pass ? loader_->batches_per_epoch() : 0;
    const Stopwatch watch;
    double copying = 0;
    do {
      copying += take();
    } while (watch.seconds() < options_.seconds && (!one_pass || taken_ < batches));
    const double seconds = watch.seconds();
    const auto images = static_cast<double>(result_.images);
    const data::StageSeconds after = loader_->stage_seconds();
    result_.images_per_second = images / seconds;
    result_.stages = {(after.read - before.read) / images, (after.decode - before.decode) / images,
                      (after.resize - before.resize) / images};
    result_.hand_over = copying / images;
    result_.waited = (loader_->waited_seconds() - waited_before) / seconds;
    result_.cpu_share = loader_->cpu_share();
    // Encoded image to a buffer, pixels to the ring, and from there to the trainer; or encoded image to the
    // ring, and from there to the GPU.
    const double moved = on_card_ ? 5 * mean_bytes : 2 * mean_bytes + 3 * static_cast<double>(image_bytes());
    result_.bytes_moved = result_.images_per_second * moved;
    result_.cold = one_pass;
    return result_;
  }

 private:
  std::size_t image_bytes() const {
    return static_cast<std::size_t>(options_.image_size) * static_cast<std::size_t>(options_.image_size) * 3;
  }

  // Takes a batch and copies it, unless it is on a GPU; returns the seconds of the copy.
  double take() {
    const auto breathe = [this] {
      breathe_();
      return false;
    };
    breathe_();
    data::Batch batch;
    loader_->wait(breathe);
    if (!loader_->next(batch)) {
      loader_->start_epoch(++epoch_);
      loader_->wait(breathe);
      check(loader_->next(batch), "an epoch without batches");
    }
    const Stopwatch watch;
    const std::size_t bytes = static_cast<std::size_t>(batch.count) * image_bytes();
    on_card_ = batch.device_images != nullptr;
    if (!on_card_) std::memcpy(target_.data(), batch.images, bytes);
    ++taken_;
    result_.images += batch.count;
    return watch.seconds();
  }

  const DataBenchOptions& options_;
  std::function<void()> breathe_;
  std::unique_ptr<data::Loader> loader_;
  std::vector<std::uint8_t> target_;
  std::int64_t epoch_ = 0, taken_ = 0;
  bool on_card_ = false;
  DataTiming result_;
};

// Reads what a measurement will need into the page cache: the first samples of epoch 0, as many as can be
// consumed and fit into half of the free memory.
void preload(const DataBenchOptions& options, const data::RecordSource& source, bool train, int threads,
             double mean_bytes, const std::function<void()>& breathe) {
  data::SamplerOptions o;
  o.samples = source.count();
  o.train = train;
  data::Sampler sampler(o);  // in batches of one: the order is the same
  sampler.start_epoch(0);
  const double asked = kFastest * threads * options.seconds;
  const double fits = static_cast<double>(inspect_machine().memory_available) / 2 / std::max(1.0, mean_bytes);
  const auto count = static_cast<std::int64_t>(std::min({static_cast<double>(source.count()), asked, fits}));
  std::vector<std::vector<std::uint8_t>> scratch(static_cast<std::size_t>(threads));
  data::parallel_for(
      count, threads,
      [&](std::int64_t item, int worker) {
        try {
          data::FileBytes memory(scratch[static_cast<std::size_t>(worker)]);
          source.read(sampler.sample(item, 0), memory);
        } catch (const Error&) {
          // The loader names it.
        }
      },
      [&](std::int64_t, std::int64_t) {
        breathe();
        return true;
      });
}

double mean_bytes_of(const data::RecordSource& source) {
  const std::int64_t step = std::max<std::int64_t>(1, source.count() / kSampledSizes);
  double bytes = 0;
  std::int64_t looked_at = 0;
  std::vector<std::uint8_t> scratch;
  for (std::int64_t i = 0; i < source.count(); i += step) {
    try {
      data::FileBytes memory(scratch);
      bytes += static_cast<double>(source.read(i, memory).size());
      ++looked_at;
    } catch (const Error&) {
      // The loader names it.
    }
  }
  return looked_at ? bytes / static_cast<double>(looked_at) : 0;
}

}  // namespace

std::uint64_t drop_page_cache(const fs::path& path) {
  std::uint64_t dropped = 0;
  const auto drop = [&](const fs::path& file) {
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    struct stat status {};
    ::fdatasync(fd);  // dirty pages would stay cached
    if (::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0 && ::fstat(fd, &status) == 0)
      dropped += static_cast<std::uint64_t>(status.st_size);
    ::close(fd);
  };
  std::error_code error;
  const auto options =
      fs::directory_options::follow_directory_symlink | fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator it(path, options, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) drop(it->path());
    if (it.depth() > 64) it.disable_recursion_pending();  // circular links
  }
  return dropped;
}

DataBench bench_data(const DataBenchOptions& options, const data::Progress& progress) {
  validate(options);
  DataBench bench;
  data::SourceOptions limits;
  limits.stop = [&] { return progress && !progress(0, 0); };
  const std::shared_ptr<const data::RecordSource> train =
      open_source(options.path, data::Split::train, limits);
  std::shared_ptr<const data::RecordSource> val;
  if (has_split(options.path, data::Split::val)) val = open_source(options.path, data::Split::val, limits);
  bench.kind = train->kind();
  bench.train_images = train->count();
  bench.val_images = val ? val->count() : 0;
  bench.mean_bytes = mean_bytes_of(*train);

  const int most = *std::max_element(options.threads.begin(), options.threads.end());
  const std::int64_t passes =
      static_cast<std::int64_t>(options.threads.size()) * (val ? 2 : 1) + (options.cold ? (val ? 2 : 1) : 0);
  std::int64_t done = 0;
  const auto breathe = [&] {
    if (progress && !progress(done, passes)) throw data::Stopped{};
  };
  for (const bool training : {true, false}) {
    const std::shared_ptr<const data::RecordSource>& source = training ? train : val;
    if (!source) continue;
    if (options.cold) {  // before the others, which warm the cache
      drop_page_cache(options.path);
      Measurement one(options, source, training, most, breathe);
      bench.timings.push_back(one.run(true, bench.mean_bytes));
      ++done;
    }
    preload(options, *source, training, most, bench.mean_bytes, breathe);
    for (const int threads : options.threads) {
      Measurement one(options, source, training, threads, breathe);
      one.warm_up();
      bench.timings.push_back(one.run(false, bench.mean_bytes));
      ++done;
    }
  }
  bench.peak_memory = peak_memory();  // before the copies, whose buffers do not belong to loading
  for (const int threads : options.threads) bench.copies.push_back(time_copy(threads));
  return bench;
}

}  // namespace redline::bench
