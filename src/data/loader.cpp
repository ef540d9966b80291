#include "data/loader.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <iterator>
#include <mutex>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "data/bad_samples.h"
#include "data/decode_split.h"
#include "data/gpu_batch.h"
#include "data/progress.h"
#include "data/sampler.h"

namespace redline::data {
namespace {

constexpr std::uint64_t kReplaceStream = 0x7265706c;
constexpr int kReplaceAttempts = 16;  // with the default limit, this many bad samples in a row do not happen
// A GPU that fails at more than one in four of this many is not asked again.
constexpr int kGpuTrial = 64;

bool mixes(const LoaderOptions& o) { return o.transform.train && o.mix.any(); }

void validate_loader(const LoaderOptions& o) {
  if (o.batch_size < 1) throw UsageError("--batch-size {} is less than 1", o.batch_size);
  if (o.threads < 1 || o.threads > 4096)
    throw UsageError("--workers {} is not between 1 and 4096", o.threads);
  check(o.slots >= 2, "a loader needs two slots, one to fill while the other is used");
  validate(o.transform);
  validate(o.mix);
  check(!o.decoder || !(mixes(o) || (o.transform.train && o.transform.distort.any())),
        "a GPU's decoder can only crop and mirror");
}

SamplerOptions sampler_options(const LoaderOptions& o, std::int64_t samples) {
  SamplerOptions s;
  s.samples = samples;
  s.batch_size = o.batch_size;
  s.rank = o.rank;
  s.ranks = o.ranks;
  s.seed = o.seed;
  s.train = o.transform.train;
  return s;
}

}  // namespace

// Rows are handed to workers in order, one at a time; the first row of a batch takes a free slot for it. A
// finished batch is passed on with a lease that owns its slot and returns it. In training, rows of the next
// epoch follow those of the last batch immediately, so that the pipeline does not drain at the end of an
// epoch, however short. With a GPU that decodes, a batch with all its rows goes to one more thread, which
// lets the GPU decode its part. One mutex guards all of the state below it; decoding happens outside it.
class Loader::Pool : public std::enable_shared_from_this<Loader::Pool> {
 public:
  Pool(std::shared_ptr<const RecordSource> source, const LoaderOptions& options);
  ~Pool();

  void set_image_size(int size);
  void start_epoch(std::int64_t epoch, std::int64_t first_batch);
  bool next(Batch& batch);
  bool wait(const std::function<bool()>& stop);
  double cpu_share() const;
  StageSeconds stage_seconds() const;

  const std::shared_ptr<const RecordSource> source_;
  LoaderOptions options_;  // the image size changes, only while there are no threads
  const Sampler sampler_;  // of no epoch: each has a copy with its order
  BadSamples bad_;
  double waited_ = 0;

 private:
  struct Slot {
    BatchMemory memory;
    std::unique_ptr<GpuBatch> gpu;  // only with a decoder
    DecodeCost cost;
    std::int64_t epoch = 0, batch = 0;     // what it is filled with
    std::shared_ptr<const Sampler> order;  // of that epoch
    int pending = 0;  // rows not written yet; the GPU's part, or the mixing, counts as one more
  };
  // What a thread keeps from row to row.
  struct Worker {
    Transform transform;
    std::vector<std::uint8_t> scratch;  // a small file; a row that is mixed
    StageSeconds seconds;               // of the row in hand
  };
  enum class Place { host, gpu };

  void make_slots();
  void start_threads();
  void stop_threads();
  void run_thread(void (Pool::*body)(std::unique_lock<std::mutex>&, bool&));
  void work(std::unique_lock<std::mutex>& lock, bool& busy);
  void work_gpu(std::unique_lock<std::mutex>& lock, bool& busy);
  void begin_epoch(std::int64_t epoch, std::int64_t first_batch, std::shared_ptr<const Sampler> order);
  std::shared_ptr<const Sampler> order_of(std::int64_t epoch) const;
  void go_on(std::unique_lock<std::mutex>& lock);
  int decode_on_gpu(Worker& worker, Slot& slot);  // rows that failed
  void note_gpu(int rows, int failed);
  Place load_row(Worker& worker, Slot& slot, int row, Place preferred);
  void mix_slot(Worker& worker, Slot& slot);
  void reset(Slot& slot) const;  // for the next batch
  // Ends a lease. A slot of an earlier image size is freed.
  void give_back(std::unique_ptr<Slot> slot, int generation);
  bool is_ready() const { return !in_flight_.empty() && in_flight_.front()->pending == 0; }
  int work_of_batch() const { return options_.batch_size + (options_.decoder || mixes(options_) ? 1 : 0); }
  bool row_available() const {
    return !failure_ && !draining_ && next_batch_ < end_batch_ && (next_row_ > 0 || !free_.empty());
  }

  mutable std::mutex mutex_;
  std::condition_variable work_ready_;
  std::condition_variable gpu_ready_;
  std::condition_variable batch_ready_;  // also: no thread is busy any more, while draining
  std::atomic<bool> stop_{false};
  std::vector<std::unique_ptr<Slot>> free_;
  std::deque<std::unique_ptr<Slot>> in_flight_;  // in order; rows are handed out of the last
  int generation_ = 0;                           // of slots: one for each change of the image size
  // What next() gives next.
  std::int64_t given_epoch_ = 0, given_batch_ = 0;
  // The row to hand out next, and its epoch: the same, or one that follows.
  std::int64_t epoch_ = 0, next_batch_ = 0;
  int next_row_ = 0;
  std::shared_ptr<const Sampler> order_;
  std::int64_t end_batch_ = 0;     // of every epoch; 0 before the first
  bool draining_ = false;          // no rows are handed out until no thread is busy
  int busy_ = 0;                   // threads with a row or a batch in hand
  std::deque<Slot*> gpu_batches_;  // whose rows are all there, for the GPU
  DecodeSplit split_;
  std::int64_t gpu_rows_ = 0, gpu_failed_ = 0;
  bool gpu_given_up_ = false;
  Stopwatch since_gpu_;  // decoded the last batch
  StageSeconds seconds_;
  std::exception_ptr failure_;

  std::vector<std::thread> threads_;
};

Loader::Pool::Pool(std::shared_ptr<const RecordSource> source, const LoaderOptions& options)
    : source_(std::move(source)),
      options_(options),
      sampler_(sampler_options(options, source_->count())),
      bad_(source_, options.max_bad),
      split_(options.threads, options.fixed_split) {
  options_.limits.give_up = [this] { return stop_.load(); };
  make_slots();
  start_threads();
}

void Loader::Pool::make_slots() {
  const TransformOptions& transform = options_.transform;
  for (int i = 0; i < options_.slots; ++i) {
    Slot& slot = *free_.emplace_back(std::make_unique<Slot>());
    slot.memory = BatchMemory(options_.batch_size, transform.size, options_.allocator);
    if (options_.decoder)
      slot.gpu =
          std::make_unique<GpuBatch>(options_.decoder, options_.batch_size, transform.size, transform.filter);
  }
}

void Loader::Pool::set_image_size(int size) {
  if (size == options_.transform.size) return;
  stop_threads();
  {
    const std::lock_guard lock(mutex_);  // leases may end meanwhile
    ++generation_;
    free_.clear();
    in_flight_.clear();
    given_batch_ = next_batch_ = end_batch_ = 0;
    next_row_ = 0;
    gpu_batches_.clear();
  }
  options_.transform.size = size;
  make_slots();
  start_threads();
}

void Loader::Pool::start_threads() {
  try {
    for (int i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { run_thread(&Pool::work); });
    if (options_.decoder) threads_.emplace_back([this] { run_thread(&Pool::work_gpu); });
  } catch (const std::system_error& error) {
    stop_threads();
    throw UnavailableError("cannot start {} loader threads ({}); use fewer --workers", options_.threads,
                           error.what());
  }
}

void Loader::Pool::stop_threads() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_ready_.notify_all();
  gpu_ready_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  stop_ = false;
}

Loader::Pool::~Pool() { stop_threads(); }

void Loader::Pool::start_epoch(std::int64_t epoch, std::int64_t first_batch) {
  check(first_batch >= 0 && first_batch <= sampler_.batches_per_epoch(), "batch {} of {}", first_batch,
        sampler_.batches_per_epoch());
  std::unique_lock lock(mutex_);
  // All of the epoch before was taken, and the threads went on to this one.
  if (end_batch_ > 0 && given_batch_ == end_batch_ && epoch_ > given_epoch_ && epoch == given_epoch_ + 1 &&
      first_batch == 0) {
    given_epoch_ = epoch;
    given_batch_ = 0;
    return;
  }
  draining_ = true;
  batch_ready_.wait(lock, [this] { return busy_ == 0; });
  draining_ = false;
  gpu_batches_.clear();
  std::ranges::move(in_flight_, std::back_inserter(free_));
  in_flight_.clear();
  begin_epoch(epoch, first_batch, order_of(epoch));
  given_epoch_ = epoch;
  given_batch_ = first_batch;
  lock.unlock();
  work_ready_.notify_all();
}

std::shared_ptr<const Sampler> Loader::Pool::order_of(std::int64_t epoch) const {
  auto order = std::make_shared<Sampler>(sampler_);
  order->start_epoch(epoch);
  return order;
}

void Loader::Pool::begin_epoch(std::int64_t epoch, std::int64_t first_batch,
                               std::shared_ptr<const Sampler> order) {
  order_ = std::move(order);
  epoch_ = epoch;
  next_batch_ = first_batch;
  next_row_ = 0;
  end_batch_ = sampler_.batches_per_epoch();
}

// Called by the busy thread that has the last row of an epoch: those of the next follow it. Shuffling a large
// set takes a while, in which the others may hold the lock.
void Loader::Pool::go_on(std::unique_lock<std::mutex>& lock) {
  if (!options_.transform.train) return;  // an evaluation begins when it is asked for
  const std::int64_t epoch = epoch_ + 1;
  lock.unlock();
  std::shared_ptr<const Sampler> order = order_of(epoch);
  lock.lock();
  if (draining_) return;
  begin_epoch(epoch, 0, std::move(order));
  work_ready_.notify_all();
}

bool Loader::Pool::next(Batch& batch) {
  batch = {};
  std::unique_lock lock(mutex_);
  if (given_batch_ >= end_batch_) return false;
  const Stopwatch watch;
  batch_ready_.wait(lock, [&] { return failure_ || is_ready(); });
  waited_ += watch.seconds();
  // A failure counts when its batch is requested: one in an epoch that never begins does not end the run.
  if (!is_ready()) std::rethrow_exception(failure_);
  std::unique_ptr<Slot> owned = std::move(in_flight_.front());
  in_flight_.pop_front();
  check(owned->epoch == given_epoch_ && owned->batch == given_batch_, "batches out of order");
  batch.epoch = owned->epoch;
  batch.step_in_epoch = owned->batch;
  ++given_batch_;
  const int generation = generation_;
  lock.unlock();
  const Slot& slot = *owned;
  batch.images = slot.gpu ? nullptr : slot.memory.images();
  batch.device_images = slot.gpu ? &slot.gpu->images() : nullptr;
  batch.labels = slot.memory.labels();
  batch.other_labels = mixes(options_) ? slot.memory.other_labels() : nullptr;
  batch.label_weights = mixes(options_) ? slot.memory.label_weights() : nullptr;
  batch.count = static_cast<int>(std::count_if(batch.labels, batch.labels + options_.batch_size,
                                               [](std::int32_t label) { return label >= 0; }));
  batch.lease = std::shared_ptr<Slot>(owned.release(), [pool = weak_from_this(), generation](Slot* returned) {
    std::unique_ptr<Slot> own(returned);
    if (const auto alive = pool.lock()) alive->give_back(std::move(own), generation);
  });
  return true;
}

bool Loader::Pool::wait(const std::function<bool()>& stop) {
  constexpr auto kAskEvery = std::chrono::milliseconds(50);
  std::unique_lock lock(mutex_);
  const Stopwatch watch;
  const auto decided = [this] { return failure_ || given_batch_ >= end_batch_ || is_ready(); };
  bool stopped = false;
  while (!stopped && !batch_ready_.wait_for(lock, kAskEvery, decided)) {
    lock.unlock();
    stopped = stop();
    lock.lock();
  }
  waited_ += watch.seconds();
  return !stopped;
}

void Loader::Pool::give_back(std::unique_ptr<Slot> slot, int generation) {
  const std::lock_guard lock(mutex_);
  if (generation != generation_) return;
  free_.push_back(std::move(slot));
  work_ready_.notify_all();
}

void Loader::Pool::reset(Slot& slot) const {
  slot.epoch = epoch_;
  slot.batch = next_batch_;
  slot.order = order_;
  slot.pending = work_of_batch();
  slot.cost = {};
  if (slot.gpu) slot.gpu->clear();
}

// A thread's body holds the lock except while it is busy. An exception from it ends the run.
void Loader::Pool::run_thread(void (Pool::*body)(std::unique_lock<std::mutex>&, bool&)) {
  std::unique_lock lock(mutex_, std::defer_lock);
  bool busy = false;
  try {
    (this->*body)(lock, busy);
  } catch (const Stopped&) {  // stop_threads() waits for this one
    if (!lock.owns_lock()) lock.lock();
    if (busy) --busy_;
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    if (!failure_) failure_ = std::current_exception();
    if (busy) --busy_;
    batch_ready_.notify_all();
  }
}

void Loader::Pool::work(std::unique_lock<std::mutex>& lock, bool& busy) {
  Worker worker{Transform(options_.transform, options_.limits), {}, {}};
  lock.lock();
  for (;;) {
    work_ready_.wait(lock, [this] { return stop_ || row_available(); });
    if (stop_) return;
    const int row = next_row_;
    if (row == 0) {
      reset(*free_.back());
      in_flight_.push_back(std::move(free_.back()));
      free_.pop_back();
    }
    Slot& slot = *in_flight_.back();
    if (++next_row_ == options_.batch_size) {
      next_row_ = 0;
      ++next_batch_;
    }
    const bool on_gpu = slot.gpu && !gpu_given_up_ && !split_.cpu_row(row);
    busy = true;
    ++busy_;
    if (next_batch_ == end_batch_) go_on(lock);
    lock.unlock();
    const Stopwatch watch;
    const Place place = load_row(worker, slot, row, on_gpu ? Place::gpu : Place::host);
    const double seconds = watch.seconds();
    lock.lock();
    seconds_.add(worker.seconds);
    worker.seconds = {};
    if (--slot.pending == 1 && mixes(options_)) {  // every row is there
      lock.unlock();
      mix_slot(worker, slot);
      lock.lock();
      --slot.pending;
    }
    busy = false;
    --busy_;
    ++(place == Place::gpu ? slot.cost.gpu_rows : slot.cost.cpu_rows);
    (place == Place::gpu ? slot.cost.screen_seconds : slot.cost.cpu_seconds) += seconds;
    if (slot.pending == 1 && slot.gpu) {
      gpu_batches_.push_back(&slot);
      gpu_ready_.notify_one();
    }
    if (slot.pending == 0 || (draining_ && busy_ == 0)) batch_ready_.notify_all();
  }
}

void Loader::Pool::work_gpu(std::unique_lock<std::mutex>& lock, bool& busy) {
  Worker worker{Transform(options_.transform, options_.limits), {}, {}};
  lock.lock();
  for (;;) {
    gpu_ready_.wait(lock, [this] { return stop_ || (!failure_ && !gpu_batches_.empty()); });
    if (stop_) return;
    Slot& slot = *gpu_batches_.front();
    gpu_batches_.pop_front();
    busy = true;
    ++busy_;
    lock.unlock();
    const Stopwatch watch;
    const int failed = decode_on_gpu(worker, slot);
    lock.lock();
    note_gpu(slot.cost.gpu_rows, failed);
    busy = false;
    --busy_;
    --slot.pending;
    slot.cost.gpu_seconds = watch.seconds();
    split_.observe(slot.cost, since_gpu_.lap());
    batch_ready_.notify_all();
  }
}

int Loader::Pool::decode_on_gpu(Worker& worker, Slot& slot) {
  const std::vector<int> failed = slot.gpu->decode(slot.memory);
  if (failed.empty()) return 0;
  // The CPU's decoder tolerates more; samples that it also refuses are named and replaced.
  for (const int row : failed) load_row(worker, slot, row, Place::host);
  slot.gpu->upload(failed, slot.memory);
  return static_cast<int>(failed.size());
}

void Loader::Pool::note_gpu(int rows, int failed) {
  gpu_rows_ += rows;
  gpu_failed_ += failed;
  if (gpu_given_up_ || gpu_rows_ < kGpuTrial || gpu_failed_ * 4 < gpu_rows_) return;
  gpu_given_up_ = true;
  log_warning("{} could not decode {} of {} images; the CPU decodes from here on",
              options_.decoder->description(), gpu_failed_, gpu_rows_);
}

Loader::Pool::Place Loader::Pool::load_row(Worker& worker, Slot& slot, int row, Place preferred) {
  const std::int64_t epoch = slot.epoch;
  std::int64_t sample = slot.order->sample(slot.batch, row);
  Random replacement(options_.seed, mix(mix(kReplaceStream, static_cast<std::uint64_t>(epoch)),
                                        static_cast<std::uint64_t>(sample)));
  std::int32_t& label = slot.memory.labels()[row];
  for (int attempt = 0; sample >= 0 && attempt < kReplaceAttempts; ++attempt) {
    try {
      const Stopwatch watch;
      FileBytes memory(worker.scratch, options_.limits.give_up);
      const std::span<const std::uint8_t> bytes = source_->read(sample, memory);
      worker.seconds.read += watch.seconds();
      const Random random = sample_random(options_.seed, epoch, sample);
      Place place = preferred;
      if (place == Place::gpu) {
        const auto screened = worker.transform.screen(bytes, random);
        if (!screened || !slot.gpu->add(row, bytes, *screened)) place = Place::host;
      }
      if (place == Place::host) worker.transform.run(bytes, random, slot.memory.image(row), &worker.seconds);
      label = source_->label(sample);
      return place;
    } catch (const Error& error) {
      if (error.code() != ExitCode::bad_data && error.code() != ExitCode::io) throw;
      bad_.note(sample, error);
    }
    if (!options_.transform.train) break;
    sample = static_cast<std::int64_t>(replacement.below(static_cast<std::uint64_t>(source_->count())));
  }
  const auto size = static_cast<std::size_t>(options_.transform.size);
  std::memset(slot.memory.image(row), 0, size * size * 3);
  label = -1;
  return Place::host;
}

void Loader::Pool::mix_slot(Worker& worker, Slot& slot) {
  Random random = batch_random(options_.seed, slot.epoch, slot.batch, options_.rank);
  mix_batch(draw_mix(options_.mix, options_.transform.size, random), options_.batch_size,
            options_.transform.size, slot.memory, worker.scratch);
}

double Loader::Pool::cpu_share() const {
  const std::lock_guard lock(mutex_);
  return split_.cpu_share();
}

StageSeconds Loader::Pool::stage_seconds() const {
  const std::lock_guard lock(mutex_);
  return seconds_;
}

Loader::Loader(std::shared_ptr<const RecordSource> source, const LoaderOptions& options) {
  validate_loader(options);
  pool_ = std::make_shared<Pool>(std::move(source), options);
}

Loader::~Loader() = default;

int Loader::batch_size() const { return pool_->options_.batch_size; }
int Loader::image_size() const { return pool_->options_.transform.size; }
std::int64_t Loader::batches_per_epoch() const { return pool_->sampler_.batches_per_epoch(); }
std::int64_t Loader::samples() const { return pool_->source_->count(); }
int Loader::classes() const { return static_cast<int>(pool_->source_->classes().size()); }
void Loader::set_image_size(int size) { pool_->set_image_size(size); }
void Loader::start_epoch(std::int64_t epoch, std::int64_t first_batch) {
  pool_->start_epoch(epoch, first_batch);
}
bool Loader::next(Batch& batch) { return pool_->next(batch); }
bool Loader::wait(const std::function<bool()>& stop) { return pool_->wait(stop); }
double Loader::waited_seconds() const { return pool_->waited_; }
double Loader::cpu_share() const { return pool_->cpu_share(); }
StageSeconds Loader::stage_seconds() const { return pool_->stage_seconds(); }

std::optional<double> Loader::reading_share() const {
  const StageSeconds spent = stage_seconds();
  const double all = spent.read + spent.decode + spent.resize;
  return all > 0 ? std::optional(spent.read / all) : std::nullopt;
}
std::vector<BadSample> Loader::bad_samples() const { return pool_->bad_.list(); }

}  // namespace redline::data
