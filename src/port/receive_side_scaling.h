// Has a device spread what it receives over its queues, by its own hash of each packet's ends
// (receive-side scaling, RSS).
#pragma once

#include <rte_config.h>  // first of DPDK's

#include <rte_ethdev.h>

#include <array>
#include <cstdint>

namespace millrace {

/// A key for that hash, drawn from the system's entropy: whoever knows the key of a hash can aim
/// packets at one queue.
class ReceiveSideScaling {
 public:
  ReceiveSideScaling();

  /// Adds it to the configuration of a device with so many receive queues, if it has several and
  /// can do it: by addresses, and by ports where TCP and UDP have them. Fills in `conf`, which
  /// refers to this.
  void add_to(rte_eth_conf& conf, const rte_eth_dev_info& device, unsigned queues);

 private:
  std::array<std::uint8_t, 256> key_;  // no device takes more
};

}  // namespace millrace
