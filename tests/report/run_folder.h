// Run folders made up for tests.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/format.h>

namespace redline::report {

inline const std::string kFirstLine =
    R"({"schema":"redline.metrics","version":2,"kind":"run","name":"made","started":"2025-01-31T08:15:00Z",)"
    R"("program":{"version":"0.1.0","commit":"abc"},"model":"resnet18","data":"flowers","device":"cpu","dtype":"fp32",)"
    R"("optimizer":"sgd","classes":10,"image_size":64,"batch_size":8,"accumulate":2,"parameters":11,"train_samples":100,)"
    R"("val_samples":10,"steps_per_epoch":5,"total_steps":20,"seed":7})"
    "\n";

inline std::string step_line(int step, double seconds = 0.5, double loss = 1.0) {
  return fmt::format(
      R"({{"kind":"step","step":{},"epoch":0,"step_in_epoch":{},"loss":{},"top1":0.5,"top5":0.9,"lr":0.1,)"
      R"("gradient_norm":2.0,"loss_scale":1.0,"samples":16,"seconds":{},"gap_seconds":0.05,"data_seconds":0.05,"images_per_second":32,)"
      R"("elapsed":{}}})"
      "\n",
      step, step, loss, seconds, seconds * step);
}

inline void write_text(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

inline void append_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::app) << text;
}

inline const std::string kConfig =
    "[model]\nname = \"resnet18\"\n[run]\nseed = 7\n[record]\nhostname = \"box\"\n";

// A whole run: `count` steps of which the first is slow.
inline void write_run(const std::filesystem::path& folder, int count, double seconds = 0.5) {
  std::string text = kFirstLine;
  for (int i = 1; i <= count; ++i) text += step_line(i, i == 1 ? 5 : seconds * (1 + 0.01 * (i % 7)), 3.0 / i);
  text += R"({"kind":"evaluation","step":5,"epoch":1,"weights":"model","loss":1.5,"top1":0.6,"top5":0.9,)"
          R"("samples":1000,"seconds":1,"elapsed":9})"
          "\n"
          R"({"kind":"end","reason":"finished","steps":20,"samples":320,"skipped_steps":0,"seconds":12,)"
          R"("train_seconds":10,"step_seconds":9,"gap_seconds":3,"data_seconds":1,"evaluation_seconds":2})"
          "\n";
  write_text(folder / "metrics.jsonl", text);
  write_text(folder / "config.toml", kConfig);
}

}  // namespace redline::report
