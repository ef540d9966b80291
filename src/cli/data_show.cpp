// redline data show: a page of images as the network sees them.
#include <algorithm>
#include <iterator>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "base/error.h"
#include "base/printable.h"
#include "base/quantity.h"
#include "cli/data.h"
#include "cli/train_options.h"
#include "data/prepare/show.h"
#include "data/sources/record_source.h"
#include "train/setup.h"

namespace redline::cli {
namespace {

struct ShowFlags {
  TrainOptions train;
  std::string page = "samples.html";
  std::string split = "train";
  std::int64_t images = 64;
  std::int64_t epoch = 0;
};

data::Split split_of(const std::string& name) {
  if (name == "train") return data::Split::train;
  if (name == "val") return data::Split::val;
  throw UsageError("--split {} is neither train nor val", name);
}

int run_show(const ShowFlags& flags) {
  const train::Config config = flags.train.config();
  train::validate(config);
  if (config.data.path.empty() || config.data.synthetic()) throw UsageError("give the data set to show");
  if (flags.images < 1 || flags.images > 4096)
    throw UsageError("--images {} is not between 1 and 4096", flags.images);
  if (flags.epoch < 0) throw UsageError("--epoch {} is negative", flags.epoch);
  const data::Split split = split_of(flags.split);
  data::OpenSplits splits = train::open_splits(config);
  std::shared_ptr<const data::RecordSource> source =
      split == data::Split::train ? std::move(splits.train) : std::move(splits.val);
  if (!source)
    throw UsageError("{} has no val split ({})", config.data.path,
                     train::remedy_without_val(config.data.path));
  data::ShowOptions options;
  options.page = flags.page;
  options.title = fmt::format("{} ({}, {})", config.data.path, data::split_name(split), source->kind());
  options.epoch = flags.epoch;
  options.loader = train::loader_options(config, split == data::Split::train);
  options.loader.batch_size = static_cast<int>(flags.images);
  options.loader.threads = std::max(1, options.loader.threads);
  const data::ShownBatch shown = data::write_sample_page(source, options);
  fmt::print("{}: {} of {}, as the network sees them{}\n", printable(flags.page),
             counted(shown.images, "image"),
             shown.classes == 1 ? "1 class" : fmt::format("{} classes", shown.classes),
             shown.bad.empty() ? "" : fmt::format("; {} found", counted(std::ssize(shown.bad), "bad image")));
  return 0;
}

}  // namespace

void add_data_show(CLI::App& group, Context& context) {
  CLI::App& command = add_command(
      group, "show",
      "Write a page of images as the network sees them: a batch after augmentation, with labels",
      {"redline data show shapes", "redline data show shapes --auto-augment ra --images 32 --page batch.html",
       "redline data show shapes --split val"});
  const auto flags = std::make_shared<ShowFlags>();
  flags->train.add(command);
  command.add_option("--page", flags->page, "The page to write")->capture_default_str();
  command.add_option("--split", flags->split, "train, or val: as evaluation sees them")
      ->capture_default_str();
  command.add_option("--images", flags->images, "Images to show")->capture_default_str();
  command.add_option("--epoch", flags->epoch, "Epoch whose first batch is shown")->capture_default_str();
  on_run(command, context, [flags] { return run_show(*flags); });
}

}  // namespace redline::cli
