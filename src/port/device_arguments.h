// The arguments with which DPDK opens a device. Plain functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/mac.h"
#include "port/device_name.h"
#include "port/packet_sockets.h"

namespace millrace {

struct DriverArguments {
  std::string bus;  ///< "vdev", "pci"
  std::string name;
  std::string driver;  ///< a vdev's, like "af_packet"
  std::string arguments;
  unsigned queues = 0;  ///< receive queues; 0: one for each worker, if the device can
  /// Packets that it gets; none: all of the interface. It has no part in sending if these are
  /// `control`.
  std::optional<PacketsOf> packets;
};

struct DeviceNeeds {
  unsigned number = 0;  ///< the device's number, from 0
  unsigned mtu = 1500;
  unsigned workers = 1;
  unsigned queues = 1;      ///< receive queues that the kernel's interface has
  bool has_control = true;  ///< AF_PACKET: network control comes by a device of its own
  std::optional<Mac> mac;   ///< MAC of a tap that exists already; none: no such tap
};

/// Returns the DPDK devices that make up one device of millrace: one, except that AF_XDP needs one
/// for each receive queue, as each of its sockets is bound to one queue, and AF_PACKET one more for
/// network control.
std::vector<DriverArguments> arguments_for(const DeviceName& name, const DeviceNeeds& needs);

}  // namespace millrace
