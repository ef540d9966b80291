#include "cli/jpeg_probe.h"

#include "backend/backend.h"
#include "base/error.h"

namespace redline::cli {

JpegProbe probe_jpeg_decoder() {
  try {
    backend::DeviceOptions options;
    options.device = "cuda";
    return {backend::make_backend(options)->make_image_decoder()->description(), ""};
  } catch (const UnavailableError& why) {
    return {"", why.what()};
  }
}

}  // namespace redline::cli
