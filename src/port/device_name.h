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
  std::string arguments;  ///< for its driver, as DPDK's manual has them: "rx-queues=2,secret=x"
};

/// Errors (usage) say what is known.
Result<DeviceName> parse_device(std::string_view text);
std::string to_string(const DeviceName& name);

/// It is an interface of the kernel's, whose name is the target.
constexpr bool is_kernel_interface(DeviceKind kind) {
  return kind == DeviceKind::af_packet || kind == DeviceKind::af_xdp;
}
/// Packets come to it through the kernel, so a worker that waits may sleep.
constexpr bool is_of_kernel(DeviceKind kind) {
  return is_kernel_interface(kind) || kind == DeviceKind::tap;
}
/// Somebody may answer there.
constexpr bool has_neighbours(DeviceKind kind) {
  return kind != DeviceKind::pcap && kind != DeviceKind::null && kind != DeviceKind::ring;
}

}  // namespace millrace
