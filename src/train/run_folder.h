// The folder of a run: runs/<name>/ with config.toml, metrics.jsonl, checkpoints and profiles.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/staging.h"

namespace redline::train {

// "resnet50-flowers-20250131-081500"
std::string default_run_name(const std::string& model, const std::string& data_path,
                             const std::string& timestamp);

// The newest run folder of this model and data in output_dir, by its default name; empty if none.
std::filesystem::path newest_run(const std::filesystem::path& output_dir, const std::string& model,
                                 const std::string& data_path);

// The folder of one run, locked by this process: a second process gets TryAgainError. Without keep(), the
// destructor removes a new folder again, so that a run that cannot start leaves nothing.
class RunFolder {
 public:
  // If the name exists already, a chosen one is a UsageError, a default one gets a number. IoError if the
  // folder cannot be created.
  RunFolder(const std::filesystem::path& output_dir, const std::string& name, bool chosen);
  // Resumes in the folder of an earlier run, and removes its unfinished files.
  explicit RunFolder(const std::filesystem::path& existing);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string name() const { return path_.filename().string(); }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  std::filesystem::path profile() const { return path_ / "profile"; }
  // Removes what a run that starts over would record twice: metrics and event files.
  void remove_records() const;
  void keep() { keep_ = true; }

 private:
  std::filesystem::path path_;
  std::filesystem::path made_parent_;  // the topmost folder made on the way, removed again without keep()
  std::unique_ptr<FolderLock> lock_;   // none where the file system has no locks
  bool keep_ = false;
};

}  // namespace redline::train
