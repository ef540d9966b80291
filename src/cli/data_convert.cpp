// redline data convert and prepare: from one form of a data set to another.
#include <cstddef>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/quantity.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/data.h"
#include "cli/long_work.h"
#include "data/prepare/convert.h"
#include "data/prepare/tiny_imagenet.h"
#include "data/prepare/unpack.h"
#include "data/sources/ilsvrc.h"

namespace redline::cli {
namespace {

struct ConvertFlags {
  std::string source, target, boxes;
  std::string format = "auto";   // folders from records, records from anything else
  data::ConvertOptions options;  // also used for unpacking to folders
};

data::UnpackOptions unpack_options(const ConvertFlags& flags) {
  data::UnpackOptions options;
  options.source = flags.source;
  options.target = flags.target;
  options.threads = thread_count(flags.options.threads);
  options.max_bad = flags.options.max_bad;
  options.limits_of_source = flags.options.limits_of_source;
  options.limits = flags.options.limits;
  return options;
}

void print_left_out(const std::vector<data::Complaint>& bad, const std::vector<std::string>& damage) {
  for (const data::Complaint& one : bad)
    fmt::print("skipped {}: {}\n", printable(one.name), printable(one.reason));
  for (const std::string& part : damage) fmt::print("damaged: {}\n", printable(part));
}

template <typename Work>
int run_unpack(const ConvertFlags& flags, Work&& work) {
  check_limits(flags.options.limits_of_source, flags.options.limits);
  const Stopwatch watch;
  data::UnpackResult result;
  const int code = run_with_progress({"unpacking", "images", "the same command continues from here", true},
                                     [&](const data::Progress& progress) {
                                       data::UnpackOptions options = unpack_options(flags);
                                       options.limits_of_source.stop = [&] { return !progress(0, 0); };
                                       result = work(options, progress);
                                     });
  if (code != 0) return code;
  print_left_out(result.bad, result.damage);
  fmt::print("{}: {} images, {} of them already complete, {} skipped as bad, in {}\n",
             printable(flags.target), format_grouped(result.written + result.found),
             format_grouped(result.found), result.bad.size(), format_duration(watch.seconds()));
  if (!result.renamed.empty())
    fmt::print("{} had the name of another in the class and got a number, the first: {} is {}\n",
               counted(std::ssize(result.renamed), "image"), printable(result.renamed.front().from),
               printable(result.renamed.front().to.string()));
  print_unused("not converted:", result.unused);
  return 0;
}

int run_convert(ConvertFlags& flags) {
  if (flags.format == "auto") flags.format = data::is_tfrecord(flags.source) ? "folders" : "tfrecord";
  if (flags.format != "tfrecord" && flags.format != "folders")
    throw UsageError("--format {}: choose auto, folders or tfrecord", flags.format);
  if (flags.format == "folders") {
    if (!flags.boxes.empty()) throw UsageError("--boxes is for records: add --format tfrecord");
    return run_unpack(flags, [](const data::UnpackOptions& options, const data::Progress& progress) {
      return data::unpack_to_folders(options, progress);
    });
  }
  check_limits(flags.options.limits_of_source, flags.options.limits);
  flags.options.boxes = flags.boxes;
  flags.options.source = flags.source;
  flags.options.target = flags.target;
  flags.options.threads = thread_count(flags.options.threads);
  const Stopwatch watch;
  data::ConvertResult result;
  const int code = run_with_progress({"converting", "images", "the same command continues from here", true},
                                     [&](const data::Progress& progress) {
                                       flags.options.limits_of_source.stop = [&] { return !progress(0, 0); };
                                       result = data::convert_to_tfrecord(flags.options, progress);
                                     });
  if (code != 0) return code;
  print_left_out(result.bad, result.damage);
  fmt::print(
      "{}: {} images, {} encoded anew, {} with boxes, {} skipped as bad, {} shards already complete, in {}\n",
      printable(flags.target), format_grouped(result.written), format_grouped(result.reencoded),
      format_grouped(result.boxed), result.bad.size(), result.shards_found, format_duration(watch.seconds()));
  print_unused("not converted:", data::unused_in(flags.source));
  return 0;
}

void add_work_options(CLI::App& command, data::ConvertOptions& o) {
  command
      .add_option(
          "--max-bad", o.max_bad,
          "Fraction of images that may be damaged and skipped; above 0, at least 10 images or 1 in 20 may")
      ->capture_default_str();
  add_limits(command, o.limits_of_source, o.limits);
  command.add_option("--threads", o.threads, "Threads (0: all cores)")->capture_default_str();
}

void add_convert_options(CLI::App& command, ConvertFlags& flags) {
  data::ConvertOptions& o = flags.options;
  o.threads = 0;
  command
      .add_option("--format", flags.format,
                  "What to write: tfrecord, folders, or auto: folders from TFRecord, else tfrecord")
      ->capture_default_str();
  command.add_option(
      "--train-shards", o.train_shards,
      "Files for the training images, with tfrecord (default: one per 100 images, at most 1024)");
  command.add_option(
      "--val-shards", o.val_shards,
      "Files for the validation images, with tfrecord (default: one per 100 images, at most 128)");
  command.add_option("--seed", o.seed, "Seed of the order of the images, with tfrecord")
      ->capture_default_str();
  command.add_option("--boxes", flags.boxes,
                     "Folder or archive of annotation XML whose boxes go into the records, with tfrecord");
  add_work_options(command, o);
}

}  // namespace

void add_data_convert(CLI::App& group, Context& context) {
  CLI::App& command = add_command(group, "convert",
                                  "Convert a data set to TFRecord shards or class folders; repeat the "
                                  "command to continue after an interruption",
                                  {"redline data convert imagenet imagenet-tfrecord",
                                   "redline data convert shapes records --train-shards 8 --val-shards 2",
                                   "redline data convert records images"});
  const auto flags = std::make_shared<ConvertFlags>();
  command.add_option("source", flags->source, "The data set")->type_name("PATH")->required();
  command
      .add_option("target", flags->target,
                  "Folder to write to: a new one, or that of the same command if it was interrupted")
      ->required();
  add_convert_options(command, *flags);
  on_run(command, context, [flags] { return run_convert(*flags); });
}

void add_data_prepare(CLI::App& group, Context& context) {
  CLI::App& prepare = add_group(group, "prepare", "Turn a downloaded data set into one to train with",
                                {"redline data prepare imagenet --from downloads --to imagenet"});
  const auto add = [&](const char* name, const char* what, std::vector<std::string> examples) {
    auto flags = std::make_shared<ConvertFlags>();
    CLI::App& command = add_command(prepare, name, what, std::move(examples));
    command.add_option("--from", flags->source, "Where the downloaded files are")->required();
    command
        .add_option("--to", flags->target,
                    "Folder to write to: a new one, or that of the same command if it was interrupted")
        ->required();
    return std::pair<CLI::App&, std::shared_ptr<ConvertFlags>>(command, flags);
  };
  {
    auto [command, flags] =
        add("imagenet", "ImageNet, from its two tars and its development kit",
            {"redline data prepare imagenet --from downloads --to imagenet",
             "redline data prepare imagenet --from downloads --to imagenet-tfrecord --format tfrecord"});
    flags->format = "folders";
    add_convert_options(command, *flags);
    on_run(command, context, [flags = flags] {
      if (!data::is_ilsvrc(flags->source))
        throw UsageError(
            "{} has neither {} nor {}; another form of ImageNet is read as it is, or converted by 'redline "
            "data convert'",
            flags->source, data::kIlsvrcTrain, data::kIlsvrcVal);
      return run_convert(*flags);
    });
  }
  auto [command, flags] =
      add("tiny-imagenet", "Tiny ImageNet, from its zip or folder",
          {"redline data prepare tiny-imagenet --from tiny-imagenet-200.zip --to tiny-imagenet"});
  flags->options.threads = 0;
  add_work_options(command, flags->options);
  on_run(command, context, [flags = flags] { return run_unpack(*flags, data::prepare_tiny_imagenet); });
}

}  // namespace redline::cli
