// What DPDK is told of a device. Plain functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/mac.h"
#include "port/device_name.h"

namespace millrace {

struct DriverArguments {
  std::string bus;  ///< "vdev", "pci"
  std::string name;
  std::string arguments;
  unsigned queues = 0;  ///< that it receives by; 0: as many as there are workers, if it can
};

struct DeviceNeeds {
  unsigned number = 0;  ///< of the device, from 0
  unsigned mtu = 1500;
  unsigned workers = 1;
  unsigned queues = 1;     ///< receive queues that the kernel's interface has
  std::optional<Mac> mac;  ///< of a tap that is there already
};

/// A device of ours is one of DPDK's; but AF_XDP's sockets are bound to one queue each.
std::vector<DriverArguments> arguments_for(const DeviceName& name, const DeviceNeeds& needs);

}  // namespace millrace
