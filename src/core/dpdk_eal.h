// DPDK's environment (EAL), which its libraries need. A process has one, for good.
#pragma once

#include <string>
#include <vector>

#include "millrace/types.h"

namespace millrace {

/// What devices need of it; tables need nothing.
struct EalOptions {
  std::vector<std::string> pci_devices;  ///< it takes these, and huge pages for them
  std::vector<std::string> more;         ///< as the user gave them: they may undo ours
  bool telemetry = false;                ///< DPDK's socket for counters
};

/// Starts it, unless it runs: by an earlier call, or because the program that embeds us uses DPDK
/// itself, which then has to come first. Any thread; takes 0.1 to 0.2 s the first time. It needs
/// neither privileges nor huge pages, unless for PCI devices: tables bring their own memory (see
/// `rte_hash_adaptor.h`). It leaves the caller's CPU affinity alone, leaves no file behind when the
/// process ends, probes no device and adds one thread, which sleeps; two where there is telemetry.
/// It prints nothing; what other threads print meanwhile is lost. Error: what it lacks, the same at
/// each call. Options of a later call are ignored.
Result<void> start_dpdk_eal(const EalOptions& options = {});

}  // namespace millrace
