// A receive queue of one of DPDK's devices. One worker polls it.
#pragma once

#include <rte_config.h>  // first of DPDK's

#include <rte_ethdev.h>

#include <cstdint>
#include <span>

#include "port/control_gate.h"

namespace millrace {

class ReceiveQueue {
 public:
  /// `passage` keeps DPDK's interrupt thread from changing a memif while `receive` polls it
  /// (control_gate.h). It must be used by this queue alone and outlive it; null: the device is not
  /// a memif.
  ReceiveQueue(std::uint16_t device, std::uint16_t queue, Passage* passage)
      : device_(device), queue_(queue), passage_(passage) {}

  /// Fills `packets` with received packets, and returns their number; 0 while DPDK's interrupt
  /// thread changes the memif.
  unsigned receive(std::span<rte_mbuf*> packets) const {
    if (passage_ != nullptr && !passage_->enter()) return 0;
    const unsigned got = rte_eth_rx_burst(device_, queue_, packets.data(),
                                          static_cast<std::uint16_t>(packets.size()));
    if (passage_ != nullptr) passage_->leave();
    return got;
  }

 private:
  std::uint16_t device_;
  std::uint16_t queue_;
  Passage* passage_;
};

}  // namespace millrace
