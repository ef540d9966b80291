#include "train/checkpointer.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include <unistd.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/log.h"
#include "base/staging.h"
#include "base/text.h"

namespace redline::train {
namespace fs = std::filesystem;
namespace {

// Hidden first, so that a half-removed one is never mistaken for a checkpoint.
void remove_checkpoint(const fs::path& folder, const std::string& name) {
  const fs::path hidden = folder / fmt::format(".{}.partial-{}", name, ::getpid());
  std::error_code error;
  fs::rename(folder / name, hidden, error);
  if (!error) fs::remove_all(hidden, error);
  if (error) log_warning("cannot remove the old checkpoint {}: {}", name, error.message());
}

void remove_old(const fs::path& folder, std::int64_t keep) {
  std::error_code ignored;
  const fs::path best = fs::read_symlink(folder / "best", ignored);
  std::int64_t kept = 0;
  for (const std::int64_t step : list_checkpoints(folder)) {
    const std::string name = checkpoint_name(step);
    if (kept++ < keep || best == name) continue;
    remove_checkpoint(folder, name);
  }
}

// The oldest that may be removed while the next one is being written: neither the newest nor the best; empty
// if there is none.
std::string oldest_spare(const fs::path& folder) {
  std::error_code ignored;
  const fs::path best = fs::read_symlink(folder / "best", ignored);
  const std::vector<std::int64_t> steps = list_checkpoints(folder);
  for (std::size_t i = steps.size(); i-- > 1;)
    if (checkpoint_name(steps[i]) != best) return checkpoint_name(steps[i]);
  return {};
}

std::uint64_t bytes_of(const Snapshot& snapshot) {
  std::uint64_t bytes = 0;
  for (const graph::Tensor& tensor : snapshot.tensors())
    bytes += static_cast<std::uint64_t>(tensor.shape.elements()) * sizeof(float);
  return bytes;
}

std::optional<std::uint64_t> free_bytes(fs::path folder) {
  std::error_code error;
  while (!fs::exists(folder, error) && folder.has_parent_path()) folder = folder.parent_path();
  const fs::space_info space = fs::space(folder, error);
  if (error) return {};
  return space.available;
}

void warn_of_little_room(const fs::path& folder, std::uint64_t each, std::int64_t keep) {
  const auto room = free_bytes(folder);
  const std::size_t most = static_cast<std::size_t>(keep) + 2;  // the best, and one being written
  const std::size_t there = std::min(most, list_checkpoints(folder).size());
  const std::uint64_t wanted = each * (most - there);
  if (!room || *room >= wanted) return;
  log_warning(
      "{} may need another {} for checkpoints of {} each, but only {} is free there: the oldest are removed "
      "when space runs out (a smaller --keep needs less)",
      folder.string(), format_bytes(wanted), format_bytes(each), format_bytes(*room));
}

// Writes a checkpoint; on a full disk, removes older ones for it.
std::uint64_t write_making_room(const fs::path& folder, Snapshot& snapshot, const CheckpointState& state) {
  for (;;) {
    try {
      return write_checkpoint(folder, snapshot, state);
    } catch (const IoError&) {
      const auto room = free_bytes(folder);
      const std::string spare = oldest_spare(folder);
      if (!room || *room >= bytes_of(snapshot) || spare.empty()) throw;
      remove_checkpoint(folder, spare);
    }
  }
}

// What was recorded up to the checkpoint must be on the disk before it is.
void sync_records(const fs::path& run_folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(run_folder))
    if (entry.is_regular_file()) sync_file(entry.path());
}

}  // namespace

// The thread and what it shares with the trainer's. `snapshot` and `state` belong to the thread while busy.
struct Checkpointer::Writer {
  fs::path folder;
  std::int64_t keep = 3;
  Snapshot snapshot;
  CheckpointState state;
  metrics::Checkpoint record;
  bool on_disk = false;  // the tensors of this step are there already

  std::mutex mutex;
  std::condition_variable changed;
  bool busy = false, stop = false;
  std::vector<metrics::Checkpoint> done;
  std::optional<std::int64_t> newest;  // the step that `latest` names
  bool newest_evaluated = false;

  std::thread thread;

  explicit Writer(backend::State& copied) : snapshot(copied) {}

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return busy || stop; });
      if (!busy) return;
      lock.unlock();
      write();
      lock.lock();
      if (record.error.empty()) {
        newest = record.step;
        newest_evaluated = state.progress.evaluated;
      }
      done.push_back(record);
      busy = false;
      changed.notify_all();
    }
  }

  void write() {
    const Stopwatch watch;
    try {
      sync_records(folder.parent_path());
      if (on_disk)
        update_checkpoint(folder / record.name, state);
      else
        record.bytes = write_making_room(folder, snapshot, state);
      point(folder / "latest", record.name);
      if (record.best) point(folder / "best", record.name);
      remove_old(folder, keep);
    } catch (const std::exception& failure) {
      record.error = failure.what();
    }
    record.write_seconds = watch.seconds();
  }
};

Checkpointer::Checkpointer(CheckpointerOptions options, backend::State& state)
    : options_(std::move(options)), writer_(std::make_shared<Writer>(state)) {
  writer_->folder = options_.folder;
  writer_->keep = options_.keep;
  writer_->state.subject = options_.subject;
  if (options_.resumed) {
    writer_->newest = options_.resumed->step;
    writer_->newest_evaluated = options_.resumed->evaluated;
  }
  warn_of_little_room(options_.folder, bytes_of(writer_->snapshot), options_.keep);
  writer_->thread = std::thread([writer = writer_] { writer->run(); });
}

Checkpointer::~Checkpointer() {
  {
    const std::lock_guard lock(writer_->mutex);
    writer_->stop = true;
  }
  writer_->changed.notify_all();
  if (writer_->thread.joinable()) writer_->thread.join();
}

void Checkpointer::abandon() { writer_->thread.detach(); }

bool Checkpointer::due(const Progress& progress, bool epoch_done) {
  const std::int64_t count = options_.every.count;
  bool now = late_;
  switch (options_.every.unit) {
    case Interval::Unit::never:
      return false;
    case Interval::Unit::steps:
      now = now || progress.step % count == 0;
      break;
    case Interval::Unit::epochs:
      now = now || (epoch_done && (progress.epoch + 1) % count == 0);
      break;
    case Interval::Unit::seconds:
      now = now || since_saved_.seconds() >= static_cast<double>(count);
      break;
  }
  if (!now) return false;
  late_ = !wait(0);
  if (late_ && !warned_slow_) {
    warned_slow_ = true;
    log_warning(
        "a checkpoint is due while the previous one is still being written to {}: the file system is too "
        "slow for --checkpoint-every; each checkpoint waits for the previous one",
        options_.folder.string());
  }
  return !late_;
}

void Checkpointer::save(const Progress& progress, const Stopwatch& stall) {
  Writer& writer = *writer_;
  std::unique_lock lock(writer.mutex);
  writer.changed.wait(lock, [&] { return !writer.busy; });
  metrics::Checkpoint record;
  record.step = progress.step;
  record.name = checkpoint_name(progress.step);
  record.best = progress.best && progress.best->step == progress.step;
  record.elapsed = progress.elapsed();
  writer.on_disk = writer.newest == progress.step;
  if (writer.on_disk && writer.newest_evaluated == progress.evaluated) return;
  record.interval_seconds = since_saved_.lap();
  if (!writer.on_disk) writer.snapshot.take();
  writer.state.progress = progress;
  record.stall_seconds = stall.seconds();
  writer.record = std::move(record);
  writer.busy = true;
  lock.unlock();
  writer.changed.notify_all();
  late_ = false;
}

std::vector<metrics::Checkpoint> Checkpointer::finished() {
  const std::lock_guard lock(writer_->mutex);
  return std::exchange(writer_->done, {});
}

bool Checkpointer::wait(double seconds) {
  std::unique_lock lock(writer_->mutex);
  return writer_->changed.wait_for(lock, std::chrono::duration<double>(seconds),
                                   [this] { return !writer_->busy; });
}

std::optional<std::int64_t> Checkpointer::newest() const {
  const std::lock_guard lock(writer_->mutex);
  return writer_->newest;
}

}  // namespace redline::train
