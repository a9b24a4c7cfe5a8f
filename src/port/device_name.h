// How the configuration names a network device: "af_packet:eth0", "tap:mr0", "0000:3b:00.0".
// Plain functions; any thread may call them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "millrace/types.h"

namespace millrace {

enum class DeviceKind : std::uint8_t { pci, af_packet, af_xdp, tap, memif, pcap, null, ring };

struct DeviceName {
  DeviceKind kind = DeviceKind::null;
  std::string target;     ///< interface, socket, file or PCI address; empty where there is none
  std::string arguments;  ///< for the driver, in the form of DPDK's manual: "rx-queues=2,secret=x"

  friend bool operator==(const DeviceName&, const DeviceName&) = default;
};

/// Parses a device's name. Errors: usage (the message lists the known kinds).
Result<DeviceName> parse_device(std::string_view text);
std::string to_string(const DeviceName& name);

/// True if the device is an existing interface of the kernel; `target` is its name.
constexpr bool is_kernel_interface(DeviceKind kind) {
  return kind == DeviceKind::af_packet || kind == DeviceKind::af_xdp;
}
/// True if the kernel delivers the device's packets, so that an idle worker may sleep.
constexpr bool is_of_kernel(DeviceKind kind) {
  return is_kernel_interface(kind) || kind == DeviceKind::tap;
}
/// True if the device's link may have neighbours, which answer ARP or neighbour discovery.
constexpr bool has_neighbours(DeviceKind kind) {
  return kind != DeviceKind::pcap && kind != DeviceKind::null && kind != DeviceKind::ring;
}

}  // namespace millrace
