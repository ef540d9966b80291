// The folder that a run leaves behind: runs/<name>/ with config.toml, metrics.jsonl and what comes later.
#pragma once

#include <filesystem>
#include <string>

#include "train/setup.h"

namespace redline::train {

// "resnet50-flowers-20250131-081500"
std::string default_run_name(const std::string& model, const std::string& data_path,
                             const std::string& timestamp);

// Creates the folder for one run; never takes one that is there. Without keep(), the destructor removes it
// again, so that a run that cannot start leaves nothing.
class RunFolder {
 public:
  // A name that the user chose and that is taken is a UsageError; a default one gets a number. IoError when
  // the folder cannot be made.
  RunFolder(const std::filesystem::path& output_dir, const std::string& name, bool chosen);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string name() const { return path_.filename().string(); }
  void keep() { keep_ = true; }

 private:
  std::filesystem::path path_;
  std::filesystem::path made_parent_;  // the topmost folder made on the way, removed again without keep()
  bool keep_ = false;
};

}  // namespace redline::train
