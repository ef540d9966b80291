// redline data: make, inspect and prepare data sets.
#include <cstdio>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/machine.h"
#include "base/signals.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/progress_line.h"
#include "data/info.h"
#include "data/synth.h"

namespace redline::cli {
namespace {

// "64" or "500x375".
void parse_size(const std::string& text, int& width, int& height) {
  int w = 0, h = 0, used = 0;
  if (std::sscanf(text.c_str(), "%dx%d%n", &w, &h, &used) == 2 && used == static_cast<int>(text.size())) {
    width = w;
    height = h;
  } else if (std::sscanf(text.c_str(), "%d%n", &w, &used) == 1 && used == static_cast<int>(text.size())) {
    width = height = w;
  } else {
    throw UsageError("--size {} is neither a side (64) nor width x height (500x375)", text);
  }
}

// Runs work that takes a Progress, showing a line about it; code 128+signal when a signal stopped it.
template <typename Work>
int run_with_progress(const char* what, const char* unit, Work&& work) {
  const StopSignals signals;
  ProgressLine line(what, unit);
  try {
    work([&](std::int64_t done, std::int64_t total) {
      line.update(done, total);
      return !signals.requested();
    });
  } catch (const data::Stopped&) {
    line.clear();
    fmt::print(stderr, "redline: stopped; nothing was left behind\n");
    return 128 + signals.signal();
  }
  line.clear();
  return 0;
}

struct SynthFlags {
  data::SynthOptions options;
  std::string path;
  std::string size = "64";
};

int run_synth(SynthFlags& flags) {
  flags.options.path = flags.path;
  parse_size(flags.size, flags.options.width, flags.options.height);
  if (flags.options.threads < 0) throw UsageError("--threads {} is negative", flags.options.threads);
  if (flags.options.threads == 0) flags.options.threads = inspect_machine().cores_allowed;
  const Stopwatch watch;
  const int code = run_with_progress("drawing", "images", [&](const data::Progress& progress) {
    data::write_synth(flags.options, progress);
  });
  if (code == 0)
    fmt::print("{}: {} training and {} validation images of {} classes, {} x {} pixels, in {}\n", flags.path,
               flags.options.train, flags.options.val, flags.options.classes, flags.options.width,
               flags.options.height, format_duration(watch.seconds()));
  return code;
}

void add_synth(CLI::App& group, Context& context) {
  CLI::App& command =
      add_command(group, "synth", "Draw a labelled image set that a network can learn",
                  {"redline data synth shapes", "redline data synth big --classes 100 --size 500x375"});
  const auto flags = std::make_shared<SynthFlags>();
  flags->options.threads = 0;
  data::SynthOptions& o = flags->options;
  command.add_option("folder", flags->path, "Folder to make; must be new or empty")->required();
  command.add_option("--classes", o.classes, "Number of classes")->capture_default_str();
  command.add_option("--train", o.train, "Training images, over all classes")->capture_default_str();
  command.add_option("--val", o.val, "Validation images, over all classes")->capture_default_str();
  command.add_option("--size", flags->size, "Pixels: a side, or width x height")->capture_default_str();
  command.add_option("--quality", o.quality, "JPEG quality, 1 to 100")->capture_default_str();
  command.add_option("--seed", o.seed, "The same seed gives the same bytes")->capture_default_str();
  command.add_option("--threads", o.threads, "Threads to draw with; 0 is one a core")->capture_default_str();
  on_run(command, context, [flags] { return run_synth(*flags); });
}

nlohmann::ordered_json to_json(const data::DataInfo& info, const std::string& path) {
  nlohmann::ordered_json json{{"schema", 1}, {"path", path}, {"classes", info.classes}};
  for (const data::SplitInfo& s : info.splits)
    json["splits"][data::split_name(s.split)] = {
        {"kind", s.kind},
        {"images", s.images},
        {"images_per_class", {{"fewest", s.fewest}, {"most", s.most}}},
        {"classes_without_images", s.without},
        {"looked_at", s.looked_at},
        {"formats", s.formats},
        {"mean_bytes", s.mean_bytes},
        {"width", {{"min", s.min_width}, {"mean", s.mean_width}, {"max", s.max_width}}},
        {"height", {{"min", s.min_height}, {"mean", s.mean_height}, {"max", s.max_height}}},
        {"unreadable", s.unreadable}};
  return json;
}

void print_info(const data::DataInfo& info) {
  fmt::print("classes   {}", info.classes.size());
  for (std::size_t i = 0; i < info.classes.size() && i < 6; ++i)
    fmt::print("{} {}", i ? "," : " ", info.classes[i]);
  fmt::print("{}\n", info.classes.size() > 6 ? ", …" : "");
  for (const data::SplitInfo& s : info.splits) {
    fmt::print("{:<9} {} images, {}; {} to {} a class", data::split_name(s.split), s.images, s.kind, s.fewest,
               s.most);
    if (s.without) fmt::print("; {} classes have none", s.without);
    fmt::print("\n          {} looked at:", s.looked_at);
    for (const auto& [format, count] : s.formats) fmt::print(" {} {},", count, format);
    fmt::print(" {} on average,\n          width {} to {}, height {} to {}, {:.0f} x {:.0f} on average\n",
               format_bytes(static_cast<std::uint64_t>(s.mean_bytes)), s.min_width, s.max_width, s.min_height,
               s.max_height, s.mean_width, s.mean_height);
    if (s.unreadable)
      fmt::print("          {} unreadable, the first: {}\n", s.unreadable, s.first_unreadable);
  }
}

struct InfoFlags {
  std::string path;
  std::int64_t sample = 1000;
  bool json = false;
};

void add_info(CLI::App& group, Context& context) {
  CLI::App& command = add_command(group, "info", "Tell what a data set holds",
                                  {"redline data info shapes", "redline data info shapes --json"});
  const auto flags = std::make_shared<InfoFlags>();
  command.add_option("path", flags->path, "The data set")->required();
  command.add_option("--sample", flags->sample, "Images of each split whose headers are read")
      ->capture_default_str();
  command.add_flag("--json", flags->json, "Print JSON");
  on_run(command, context, [flags] {
    if (flags->sample < 0) throw UsageError("--sample {} is negative", flags->sample);
    const data::DataInfo info = data::inspect(flags->path, flags->sample);
    if (flags->json)
      fmt::print("{}\n",
                 to_json(info, flags->path).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    else
      print_info(info);
    return 0;
  });
}

}  // namespace

void add_data(CLI::App& app, Context& context) {
  CLI::App& group = add_group(app, "data", "Make and inspect data sets",
                              {"redline data synth shapes", "redline data info shapes"});
  add_synth(group, context);
  add_info(group, context);
}

}  // namespace redline::cli
