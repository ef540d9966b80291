#include "cli/forward_options.h"

namespace redline::cli {

void add_forward_options(CLI::App& command, train::ForwardOptions& forward) {
  command.add_option("--batch-size,-b", forward.batch_size, "Batch size (default: 32)")->type_name("N");
  command
      .add_option("--image-size", forward.image_size,
                  "Image height and width in pixels (default: as in training, else 224)")
      ->type_name("N");
  command
      .add_option(
          "--crop-pct", forward.crop_pct,
          "Fraction of the image's shorter side that the crop keeps (default: as in training, else 0.875)")
      ->type_name("X");
  command.add_option("--device", forward.device.name, "cuda, cuda:N or cpu (default: a GPU if there is one)")
      ->type_name("TEXT");
  command
      .add_option("--dtype", forward.device.dtype,
                  "Precision of activations: fp32, tf32, bf16 or fp16 (default: as in training, if the "
                  "device has it)")
      ->type_name("TEXT");
  command.add_option("--threads", forward.device.threads, "Compute threads on a CPU (0: all cores)")
      ->type_name("N");
  command
      .add_option("--workers", forward.workers,
                  "Threads that decode images (0: chosen from the number of cores)")
      ->type_name("N");
}

}  // namespace redline::cli
