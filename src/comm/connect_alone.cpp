// Replaces gloo.cpp if the build found no Gloo: a single process does not need it.
#include "base/error.h"
#include "comm/connect.h"

namespace redline::comm {

std::unique_ptr<Communicator> connect(const ConnectOptions& options) {
  if (options.world.size == 1) return make_single();
  throw UnavailableError(
      "this build has no Gloo, which {} ranks need to find each other: install Gloo's development files and "
      "build again, or use a wheel, bundle or container of a release (docs/install.md)",
      options.world.size);
}

}  // namespace redline::comm
