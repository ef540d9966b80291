// Memory on loan. Its owner hands a Lease out with it, and uses the memory again once every copy of the lease
// is gone.
#pragma once

#include <memory>

namespace redline {

// Empty for memory that nobody waits for. Letting go of the last copy gives the memory back, from any thread.
using Lease = std::shared_ptr<const void>;

}  // namespace redline
