#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"
#include "train/trained_model.h"

namespace redline::cli {
namespace {

namespace fs = std::filesystem;

struct ExportOptions {
  std::string model, to, dtype = "fp32";
  std::optional<std::int64_t> image_size;
  bool averages = false, fold = false, force = false;
};

weights::ElementType element_type(const std::string& name) {
  if (name == "fp16") return weights::ElementType::f16;
  if (name == "bf16") return weights::ElementType::bf16;
  return weights::ElementType::f32;
}

int run_export(const ExportOptions& options) {
  const fs::path to = options.to;
  const bool onnx = to.extension() == ".onnx";
  if (!onnx && to.extension() != ".safetensors") {
    throw UsageError("--to {}: the name must end in .safetensors or .onnx, which selects the format",
                     to.string());
  }
  if (onnx && options.dtype != "fp32")
    throw UsageError("--dtype {} is for safetensors; an ONNX model is written in fp32", options.dtype);
  if (!onnx && options.fold)
    throw UsageError("--fold-bn is for ONNX: a safetensors file has torchvision's tensors, norms included");
  if (fs::exists(to) && !options.force)
    throw UsageError("{} exists already: choose another name, or --force to replace it", to.string());

  train::TrainedModel model = train::load_trained(options.model, options.averages);
  if (options.image_size) model.image_size = options.image_size;
  if (onnx) {
    weights::OnnxOptions onnx_options;
    onnx_options.image_size = model.image_size.value_or(onnx_options.image_size);
    onnx_options.fold_norms = options.fold;
    onnx_options.metadata = train::export_metadata(model);
    weights::write_onnx(to, model.weights, onnx_options);
  } else {
    weights::write_model(to, model.weights, element_type(options.dtype), model.step,
                         train::export_metadata(model));
  }
  fmt::print("{}: {} with {} classes, {}\n", to.string(), model.weights.model, model.weights.classes,
             format_bytes(fs::file_size(to)));
  return 0;
}

}  // namespace

void add_export(CLI::App& app, Context& context) {
  CLI::App& command =
      add_command(app, "export", "Write a trained network as safetensors or ONNX, for other programs",
                  {"redline export runs/first --to flowers.safetensors",
                   "redline export runs/first/checkpoints/best --ema --to flowers.onnx --fold-bn"});
  const auto options = std::make_shared<ExportOptions>();
  command
      .add_option("model", options->model,
                  "Run folder (its latest checkpoint), checkpoint, .safetensors or .pth file")
      ->type_name("PATH")
      ->required();
  command.add_option("--to", options->to, "File to write: name.safetensors or name.onnx")
      ->required()
      ->type_name("FILE");
  command
      .add_option("--image-size", options->image_size,
                  "Image height and width in pixels (default: as in training, else 224)")
      ->check(CLI::Range(1, 1 << 16))
      ->type_name("N");
  command.add_flag("--ema", options->averages, "Use the moving average of the weights (--model-ema)");
  command.add_option("--dtype", options->dtype, "Precision of the weights in safetensors (default: fp32)")
      ->check(CLI::IsMember({"fp32", "fp16", "bf16"}))
      ->type_name("fp32|fp16|bf16");
  command.add_flag("--fold-bn", options->fold, "Fold batch norms into the convolutions (ONNX)");
  command.add_flag("--force", options->force, "Overwrite an existing file");
  on_run(command, context, [options] { return run_export(*options); });
}

}  // namespace redline::cli
