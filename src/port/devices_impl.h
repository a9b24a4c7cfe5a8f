// The state of `Devices`, for its sources alone.
#pragma once

#include <rte_config.h>  // first of DPDK's

#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <deque>
#include <limits>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "port/device_arguments.h"
#include "port/devices.h"
#include "port/memif_socket.h"
#include "port/receive_queue.h"
#include "port/receive_side_scaling.h"
#include "port/send_queue.h"

namespace millrace {

using SteadyClock = std::chrono::steady_clock;

inline rte_mbuf* mbuf(Handle handle) { return std::bit_cast<rte_mbuf*>(handle); }

inline std::unexpected<Error> refused(const std::string& device, const std::string& what,
                                      int error) {
  return std::unexpected(Error{device + ": " + what + ": " + rte_strerror(error)});
}

/// One of DPDK's devices: one queue, or all queues, of a millrace device.
struct Ethernet {
  std::uint16_t id = 0;
  std::uint16_t receive_queues = 1;
  std::uint16_t send_queues = 1;
  bool is_for_control = false;  ///< it receives network control alone, and sends nothing
};

struct Devices::Impl {
  struct Device {
    Device(const DeviceName& given, unsigned place) : name(given), number(place) {}

    DeviceName name;
    unsigned number;
    std::optional<KernelInterface> kernel;
    Mac mac;
    unsigned mtu = 0;  ///< the largest of its links
    std::vector<Ethernet> ethernet;
    std::vector<SendQueue> send;  ///< one for each worker
    /// Frames accepted for sending, by worker and link; empty if the device has no VLANs.
    std::vector<std::vector<Counter>> out;
    std::deque<std::mutex> locks;
    std::deque<Passage> passages;  ///< a memif's: one for each receive queue and each of `send`
    /// Time to try `refuse_large` again; `kNever`: done, or a worker is trying.
    std::atomic<SteadyClock::rep> refuses_next = 0;

    void refuse_large();
  };
  /// Packets of network control that a burst has at most: a flood of these leaves room for others.
  static constexpr unsigned kControl = Burst::kMax / 4;
  struct Source {
    ReceiveQueue queue;
    std::optional<ReceiveQueue> control;  ///< read first, for at most `kControl` packets
    Device* may_get_large = nullptr;  ///< the device if its packets may exceed the MTU; else null
    unsigned device = 0;
    std::uint8_t link = 0;    ///< the device's first link
    std::vector<Counter> in;  ///< packets by link; empty if the device has no VLANs

    unsigned receive(std::span<rte_mbuf*> packets) const {
      unsigned got = 0;
      if (control)
        got = control->receive(packets.first(std::min<std::size_t>(packets.size(), kControl)));
      return got + queue.receive(packets.subspan(got));
    }
  };

  /// Packets for each queue: in rings, in bursts, and handed over.
  static constexpr unsigned kPacketsAQueue = 8192;
  static constexpr SteadyClock::rep kNever = std::numeric_limits<SteadyClock::rep>::max();

  unsigned workers = 1;
  LinkMap map;
  std::vector<LinkSettings> links;  ///< with the MTUs that the links have
  std::deque<Device> devices;
  MemifSockets memif_sockets;
  std::vector<Source> queues;
  /// First links of devices, by the number of DPDK's device.
  std::array<std::uint8_t, RTE_MAX_ETHPORTS> link_of{};
  std::vector<std::string> warnings;
  ReceiveSideScaling scaling;
  Memory memory;
  rte_mempool* pool = nullptr;

  Result<DeviceNeeds> take(Device& device);
  Result<void> probe(Device& device, const DeviceNeeds& needs);
  Result<void> probe_one(Device& device, const DriverArguments& arguments);
  Result<void> make_pool(bool has_pci);
  Result<void> configure(Device& device);
  Result<void> configure_one(Device& device, Ethernet& ethernet);
  void give_queues(Device& device);

  Device& device_of(unsigned link) { return devices[map.device_of(link)]; }
  const Device& device_of(unsigned link) const { return devices[map.device_of(link)]; }
  void find_links(Source& source, Burst& burst, unsigned end) const;
  template <bool kHasVlans>
  unsigned send(Device& device, unsigned worker, std::span<const Outgoing> frames) const;
};

}  // namespace millrace
