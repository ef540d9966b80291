// A folder that appears whole or not at all: filled beside its final name, then renamed.
#pragma once

#include <filesystem>

namespace redline::data {

// One thread makes and ends it; any may write files under path().
class StagingFolder {
 public:
  // Creates a hidden folder beside `target`, and target's parents where missing. Throws UsageError when
  // target is there and not an empty folder, IoError when the file system refuses.
  explicit StagingFolder(const std::filesystem::path& target);
  // Without commit(), removes the folder and all in it.
  ~StagingFolder();
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  // Gives the folder its name. IoError on failure.
  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path path_;
  bool committed_ = false;
};

}  // namespace redline::data
