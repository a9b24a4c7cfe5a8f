// Receive-side scaling (RSS): a device distributes packets over its receive queues by its own hash
// of their addresses and ports.
#pragma once

#include <rte_config.h>  // first of DPDK's

#include <rte_ethdev.h>

#include <array>
#include <cstdint>

namespace millrace {

/// The key of a device's hash, drawn from the system's entropy: a sender that knew the key could
/// aim its packets at one queue.
class ReceiveSideScaling {
 public:
  ReceiveSideScaling();

  /// Turns RSS on in the configuration of a device that has several receive queues and supports
  /// RSS: by addresses, and by ports for TCP and UDP if the device can. `conf` then refers to this
  /// object.
  void add_to(rte_eth_conf& conf, const rte_eth_dev_info& device, unsigned queues);

 private:
  std::array<std::uint8_t, 256> key_;  // DPDK's `hash_key_size` has 8 bits
};

}  // namespace millrace
