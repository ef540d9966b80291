#include "train/cores.h"

#include <sched.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "base/topology.h"

namespace redline::train {
namespace {

std::vector<int> allowed_processors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::vector<int> processors;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return processors;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &allowed)) processors.push_back(i);
  return processors;
}

void keep_to(const std::vector<int>& processors, int thread) {  // 0: the calling one
  cpu_set_t own;
  CPU_ZERO(&own);
  for (const int processor : processors) CPU_SET(processor, &own);
  sched_setaffinity(thread, sizeof own, &own);  // a refusal costs speed, not results
}

// A PCI address as an exact number, and back; -1 for none.
double number_of(const std::string& pci_address) {
  unsigned domain = 0, bus = 0, device = 0, function = 0;
  if (std::sscanf(pci_address.c_str(), "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4) return -1;
  return ((domain * 256.0 + bus) * 32 + device) * 8 + function;
}

std::string address_of(double number) {
  if (number < 0) return {};
  const auto bits = static_cast<std::uint64_t>(number);
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", bits >> 16, bits >> 8 & 0xff, bits >> 3 & 0x1f, bits & 7);
}

}  // namespace

CoreShare::CoreShare(comm::Communicator& communicator) : communicator_(communicator) {
  const comm::Neighbours place = comm::neighbours(communicator);
  processors_ = allowed_processors();
  double mask = 0;  // an exact number for as many processors as there are ranks to compare
  for (const int processor : processors_) mask = std::fmod(mask * 31 + processor + 1, 0x1p40);
  const std::vector<double> masks = communicator.gather(mask);
  const comm::Member& self = communicator.member(communicator.rank());
  bool same = true;
  for (int rank = 0; rank < communicator.size(); ++rank)
    same = same && (!comm::on_one_machine(communicator.member(rank), self) ||
                    masks[static_cast<std::size_t>(rank)] == mask);
  if (place.count < 2 || !same) processors_.clear();
  if (!processors_.empty()) keep_to(share_of(physical_cores(processors_), place.index, place.count), 0);
}

void CoreShare::move_near(const std::string& pci_address) {
  const std::vector<double> addresses = communicator_.gather(number_of(pci_address));
  if (processors_.empty() || pci_address.empty()) return;
  const comm::Member& self = communicator_.member(communicator_.rank());
  std::vector<std::vector<int>> near;
  for (int rank = 0; rank < communicator_.size(); ++rank)
    if (comm::on_one_machine(communicator_.member(rank), self))
      near.push_back(processors_near(address_of(addresses[static_cast<std::size_t>(rank)])));
  const std::vector<int> own =
      share_near(physical_cores(processors_), near, comm::neighbours(communicator_).index);
  std::error_code error;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", error))
    keep_to(own, std::stoi(thread.path().filename().string()));
}

}  // namespace redline::train
