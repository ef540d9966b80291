#include "cli/forward_options.h"

namespace redline::cli {

void add_forward_options(CLI::App& command, train::ForwardOptions& forward) {
  command.add_option("--batch-size,-b", forward.batch_size, "Images in a forward pass (default: 32)")
      ->type_name("N");
  command
      .add_option("--image-size", forward.image_size, "Image side in pixels (default: as trained, else 224)")
      ->type_name("N");
  command
      .add_option("--crop-pct", forward.crop_pct, "Fraction of the image's shorter side that the crop keeps")
      ->type_name("X");
  command.add_option("--device", forward.device.name, "Device to run on (default: the GPU if there is one)")
      ->type_name("TEXT");
  command
      .add_option("--dtype", forward.device.dtype,
                  "Type of activations (default: as in training, if the device has it)")
      ->type_name("TEXT");
  command.add_option("--threads", forward.device.threads, "Threads that compute (0: all cores)")
      ->type_name("N");
  command.add_option("--workers", forward.workers, "Threads that decode images (0: chosen from the cores)")
      ->type_name("N");
}

}  // namespace redline::cli
