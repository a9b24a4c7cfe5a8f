// DPDK's environment (EAL), which DPDK's libraries need. A process starts it at most once, and it
// stays until the process ends.
#pragma once

#include <string>
#include <vector>

#include "millrace/types.h"

namespace millrace {

/// Options that devices need; tables need none.
struct EalOptions {
  std::vector<std::string> pci_devices;  ///< devices that EAL may use; for them it takes huge pages
  std::vector<std::string> more;         ///< the user's own options, which may override millrace's
  bool telemetry = false;                ///< true: opens DPDK's socket for counters
};

/// Starts EAL, unless an earlier call or the program that embeds millrace has started it. Any
/// thread may call it; the first call takes 0.1 to 0.2 s. Options of a later call are ignored.
///
/// EAL needs privileges and huge pages only for PCI devices: tables bring their own memory (see
/// `rte_hash_adaptor.h`). The caller's CPU affinity stays as it is. No file is left behind when the
/// process ends. Without `pci_devices` no PCI device is probed. EAL adds one thread, which sleeps;
/// two with telemetry. EAL prints nothing; what other threads print meanwhile is lost.
///
/// Errors (failed): what EAL lacks, the same at each call.
Result<void> start_dpdk_eal(const EalOptions& options = {});

}  // namespace millrace
