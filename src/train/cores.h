// Which cores a rank uses.
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"

namespace redline::train {

// Ranks of one machine that may all use the same cores divide them: otherwise two ranks would pin their
// threads to the same cores. Ranks that the launcher gave separate cores keep them. Every rank makes the
// calls at the same time; they throw PeerError.
class CoreShare {
 public:
  // Takes this rank's share, by NUMA node and in the order of the ranks; threads that are started later stay
  // on it.
  explicit CoreShare(comm::Communicator& communicator);
  // Takes the share near this rank's GPU instead, for all threads of the process. `pci_address` as in
  // Backend::pci_address: empty for a rank without a GPU.
  void move_near(const std::string& pci_address);

 private:
  comm::Communicator& communicator_;
  std::vector<int> processors_;  // that all of these ranks may use; empty: there is nothing to divide
};

}  // namespace redline::train
