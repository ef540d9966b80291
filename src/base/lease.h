// Memory on loan. The owner passes a Lease along with the memory, and reuses the memory once every copy of
// the lease is gone.
#pragma once

#include <memory>

namespace redline {

// Empty for memory that is not reused. Destroying the last copy returns the memory, from any thread.
using Lease = std::shared_ptr<const void>;

}  // namespace redline
