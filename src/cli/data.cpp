// redline data: make, inspect and prepare data sets.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <system_error>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/machine.h"
#include "base/printable.h"
#include "base/quantity.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/data.h"
#include "cli/long_work.h"
#include "data/prepare/info.h"
#include "data/prepare/synth.h"
#include "data/prepare/verify.h"

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

struct SynthFlags {
  data::SynthOptions options;
  std::string path;
  std::string size = "64";
  std::string format = "folders";
};

data::SynthFormat synth_format(const std::string& name) {
  if (name == "folders") return data::SynthFormat::folders;
  if (name == "tfrecord") return data::SynthFormat::tfrecord;
  if (name == "tars") return data::SynthFormat::tars;
  throw UsageError("--format {}: choose folders, tfrecord or tars", name);
}

int run_synth(SynthFlags& flags) {
  flags.options.path = flags.path;
  flags.options.format = synth_format(flags.format);
  flags.options.imagenet_sizes = flags.size == "imagenet";
  if (!flags.options.imagenet_sizes) parse_size(flags.size, flags.options.width, flags.options.height);
  flags.options.threads = thread_count(flags.options.threads);
  const Stopwatch watch;
  const int code =
      run_with_progress({"drawing", "images", "nothing was left behind"},
                        [&](const data::Progress& progress) { data::write_synth(flags.options, progress); });
  if (code == 0)
    fmt::print("{}: {} training and {} validation images of {} classes, {}, in {}\n", printable(flags.path),
               format_grouped(flags.options.train), format_grouped(flags.options.val), flags.options.classes,
               flags.options.imagenet_sizes
                   ? std::string("with ImageNet's sizes")
                   : fmt::format("{} x {} pixels", flags.options.width, flags.options.height),
               format_duration(watch.seconds()));
  return code;
}

void add_synth(CLI::App& group, Context& context) {
  CLI::App& command =
      add_command(group, "synth", "Draw a labelled image set that a network can learn",
                  {"redline data synth shapes", "redline data synth big --classes 100 --size 500x375"});
  const auto flags = std::make_shared<SynthFlags>();
  flags->options.threads = 0;
  data::SynthOptions& o = flags->options;
  command.add_option("folder", flags->path, "Folder to create; must be new or empty")->required();
  command.add_option("--classes", o.classes, "Number of classes")->capture_default_str();
  command.add_option("--train", o.train, "Training images, over all classes")->capture_default_str();
  command.add_option("--val", o.val, "Validation images, over all classes")->capture_default_str();
  command
      .add_option("--size", flags->size,
                  "Size in pixels: 64, 500x375, or 'imagenet' for a mix around 500x375")
      ->capture_default_str();
  command.add_option("--format", flags->format, "folders, tfrecord, or tars: ImageNet's tars and its devkit")
      ->capture_default_str();
  command.add_option("--train-shards", o.train_shards, "Files for the training images, with tfrecord")
      ->capture_default_str();
  command.add_option("--val-shards", o.val_shards, "Files for the validation images, with tfrecord")
      ->capture_default_str();
  const CLI::Option* quality =
      command.add_option("--quality", o.quality, "JPEG quality, 1 to 100 (96 with --size imagenet)")
          ->capture_default_str();
  command.add_option("--seed", o.seed, "Seed; the same seed gives the same bytes")->capture_default_str();
  command.add_option("--threads", o.threads, "Threads (0: all cores)")->capture_default_str();
  on_run(command, context, [flags, quality] {
    // Gives 90 to 110 KiB per image, like ImageNet's.
    if (flags->size == "imagenet" && quality->count() == 0) flags->options.quality = 96;
    return run_synth(*flags);
  });
}

nlohmann::ordered_json to_json(const std::vector<data::LeftOut>& list) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const data::LeftOut& one : list)
    array.push_back({{"what", one.what}, {"count", one.count}, {"first", one.first}, {"image", one.image}});
  return array;
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
        {"unreadable", s.unreadable},
        {"left_out", to_json(s.left_out)},
        {"damage", s.damage}};
  json["unused"] = to_json(info.unused);
  return json;
}

// "5,000", or "732 to 1,300".
std::string range_text(std::int64_t least, std::int64_t most) {
  return least == most ? format_grouped(least) : format_grouped(least) + " to " + format_grouped(most);
}

std::string size_text(const data::SplitInfo& s) {
  if (s.min_width == s.max_width && s.min_height == s.max_height)
    return fmt::format("all of {} x {} pixels", s.min_width, s.min_height);
  return fmt::format("width {}, height {}, {:.0f} x {:.0f} on average", range_text(s.min_width, s.max_width),
                     range_text(s.min_height, s.max_height), s.mean_width, s.mean_height);
}

void print_info(const data::DataInfo& info) {
  fmt::print("classes   {}", info.classes.size());
  for (std::size_t i = 0; i < info.classes.size() && i < 6; ++i)
    fmt::print("{} {}", i ? "," : " ", printable(info.classes[i]));
  fmt::print("{}\n", info.classes.size() > 6 ? ", …" : "");
  for (const data::SplitInfo& s : info.splits) {
    fmt::print("{:<9} {}, {}; {} a class", data::split_name(s.split), counted(s.images, "image"), s.kind,
               range_text(s.fewest, s.most));
    if (s.without)
      fmt::print("; {} none", s.without == 1 ? "1 class has" : fmt::format("{} classes have", s.without));
    fmt::print("\n");
    if (s.looked_at > 0) fmt::print("          {} looked at", format_grouped(s.looked_at));
    if (s.looked_at > s.unreadable) {
      fmt::print(":");
      for (const auto& [format, count] : s.formats) fmt::print(" {} {},", format_grouped(count), format);
      fmt::print(" {} on average,\n          {}", format_bytes(static_cast<std::uint64_t>(s.mean_bytes)),
                 size_text(s));
    }
    if (s.looked_at > 0) fmt::print("\n");
    if (s.unreadable)
      fmt::print("          {} unreadable, the first: {}\n", s.unreadable, printable(s.first_unreadable));
    for (const data::LeftOut& one : s.left_out)
      fmt::print("          skipped: {}, the first {}\n", printable(describe(one)), printable(one.first));
    for (const std::string& damage : s.damage) fmt::print("          damaged: {}\n", printable(damage));
  }
  print_unused("not used ", info.unused);
}

struct InfoFlags {
  std::string path;
  std::int64_t sample = 1000;
  bool json = false;
};

void add_info(CLI::App& group, Context& context) {
  CLI::App& command = add_command(group, "info", "Show what a data set contains",
                                  {"redline data info shapes", "redline data info shapes --json"});
  const auto flags = std::make_shared<InfoFlags>();
  command.add_option("path", flags->path, "The data set")->type_name("PATH")->required();
  command.add_option("--sample", flags->sample, "Images per split whose headers are read")
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

struct VerifyFlags {
  std::string path;
  std::string list;
  bool json = false;
  data::VerifyOptions options;
};

nlohmann::ordered_json to_json(const data::Verification& result, const std::string& path) {
  const auto complaints = [](const std::vector<data::Complaint>& list) {
    nlohmann::ordered_json array = nlohmann::ordered_json::array();
    for (const data::Complaint& one : list) array.push_back({{"name", one.name}, {"reason", one.reason}});
    return array;
  };
  nlohmann::ordered_json json{
      {"schema", 1}, {"path", path}, {"images", result.images()}, {"bad", result.bad()}};
  for (const data::VerifiedSplit& s : result.splits) {
    nlohmann::ordered_json counts;
    for (std::size_t i = 0; i < s.per_class.size(); ++i) counts[result.classes[i]] = s.per_class[i];
    json["splits"][data::split_name(s.split)] = {{"kind", s.kind},
                                                 {"images", s.images},
                                                 {"bytes", s.bytes},
                                                 {"pixels", s.pixels},
                                                 {"width", {{"min", s.min_width}, {"max", s.max_width}}},
                                                 {"height", {{"min", s.min_height}, {"max", s.max_height}}},
                                                 {"good_per_class", counts},
                                                 {"bad", complaints(s.bad)},
                                                 {"odd", complaints(s.odd)}};
  }
  return json;
}

void print_complaints(const char* what, const std::vector<data::Complaint>& list, const char* all) {
  constexpr std::size_t kShown = 20;
  for (std::size_t i = 0; i < std::min(kShown, list.size()); ++i)
    fmt::print("       {}: {}: {}\n", what, printable(list[i].name), printable(list[i].reason));
  if (list.size() > kShown) fmt::print("       … and {} more; {} gives all\n", list.size() - kShown, all);
}

void print_verification(const data::Verification& result) {
  for (const data::VerifiedSplit& s : result.splits) {
    fmt::print("{:<6} {}, {}; width {}, height {}; {} bad, {} with warnings\n", data::split_name(s.split),
               counted(s.images, "image"), format_bytes(static_cast<std::uint64_t>(s.bytes)),
               range_text(s.min_width, s.max_width), range_text(s.min_height, s.max_height), s.bad.size(),
               s.odd.size());
    print_complaints("bad", s.bad, "--list or --json");
    print_complaints("warning", s.odd, "--json");
  }
}

// Before hours of work whose result could not be written.
void require_writable(const std::string& file) {
  if (std::filesystem::is_directory(file)) throw UsageError("--list {} is a folder; give a file", file);
  const std::filesystem::path folder = std::filesystem::absolute(file).parent_path();
  if (::access(folder.c_str(), W_OK) != 0)
    throw IoError("--list {}: cannot write to the folder {}: {}", file, folder.string(),
                  std::generic_category().message(errno));
}

int run_verify(VerifyFlags& flags) {
  check_limits(flags.options.source, flags.options.limits);
  if (!flags.list.empty()) require_writable(flags.list);
  flags.options.threads = thread_count(flags.options.threads);
  data::Verification result;
  const int code = run_with_progress({"checking", "images", "nothing was changed", true},
                                     [&](const data::Progress& progress) {
                                       flags.options.source.stop = [&] { return !progress(0, 0); };
                                       result = data::verify(flags.path, flags.options, progress);
                                     });
  if (code != 0) return code;
  if (!flags.list.empty()) {
    std::string text;
    for (const data::VerifiedSplit& s : result.splits)
      for (const data::Complaint& one : s.bad)
        text += fmt::format("{}\t{}\n", printable(one.name), printable(one.reason));
    write_file_atomically(flags.list, text);
  }
  if (flags.json)
    fmt::print("{}\n",
               to_json(result, flags.path).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  else
    print_verification(result);
  if (result.bad() > 0)
    throw DataError("{} of {} in {} {} bad", result.bad(), counted(result.images(), "image"), flags.path,
                    result.bad() == 1 ? "is" : "are");
  return 0;
}

void add_verify(CLI::App& group, Context& context) {
  CLI::App& command =
      add_command(group, "verify", "Read and decode every image; exit code 65 if any is bad",
                  {"redline data verify shapes", "redline data verify shapes --list bad.tsv"});
  const auto flags = std::make_shared<VerifyFlags>();
  flags->options.threads = 0;
  command.add_option("path", flags->path, "The data set")->type_name("PATH")->required();
  command.add_option("--list", flags->list, "Write the bad images to this file: name, tab, reason")
      ->type_name("FILE");
  add_limits(command, flags->options.source, flags->options.limits);
  command.add_option("--threads", flags->options.threads, "Threads (0: all cores)")->capture_default_str();
  command.add_flag("--json", flags->json, "Print JSON, with every bad image");
  on_run(command, context, [flags] { return run_verify(*flags); });
}

}  // namespace

int thread_count(int asked) {
  if (asked < 0) throw UsageError("--threads {} is negative", asked);
  return asked == 0 ? inspect_machine().cores_allowed : asked;
}

void add_limits(CLI::App& command, data::SourceOptions& source, data::DecodeLimits& decode) {
  command.add_option("--max-image-pixels", decode.max_pixels, "Treat larger images as damaged")
      ->capture_default_str();
  command.add_option("--max-image-bytes", source.max_bytes, "Treat larger image files as damaged")
      ->capture_default_str();
}

void check_limits(const data::SourceOptions& source, const data::DecodeLimits& decode) {
  for (const auto& [flag, value] :
       {std::pair("--max-image-pixels", decode.max_pixels), {"--max-image-bytes", source.max_bytes}})
    if (value < 1) throw UsageError("{} {} must be at least 1", flag, value);
}

void print_unused(const char* prefix, const std::vector<data::LeftOut>& unused) {
  if (unused.empty()) return;
  fmt::print("{}", prefix);
  constexpr std::size_t kShown = 8;
  for (std::size_t i = 0; i < std::min(kShown, unused.size()); ++i) {
    fmt::print("{} {}", i ? "," : "", printable(describe(unused[i])));
    if (!unused[i].first.empty())
      fmt::print(" ({}{})", printable(unused[i].first), unused[i].count > 1 ? ", …" : "");
  }
  if (unused.size() > kShown) fmt::print(" and {} more", unused.size() - kShown);
  fmt::print("\n");
}

void add_data(CLI::App& app, Context& context) {
  CLI::App& group = add_group(app, "data", "Make, inspect, check and convert data sets",
                              {"redline data synth shapes", "redline data info shapes"});
  add_synth(group, context);
  add_info(group, context);
  add_data_show(group, context);
  add_verify(group, context);
  add_data_convert(group, context);
  add_data_prepare(group, context);
}

}  // namespace redline::cli
