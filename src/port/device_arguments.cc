#include "port/device_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "port/link_map.h"
#include "port/memif_socket.h"

namespace millrace {
namespace {

/// Returns the arguments for an AF_PACKET device with rings of `frames` frames of 2048 bytes, of
/// larger ones fewer, but 512 if there are so many.
std::string af_packet(const DeviceName& name, unsigned queues, unsigned mtu, unsigned frames) {
  constexpr unsigned kHeaders = 128;  // the kernel's header before the frame, and a VLAN tag
  const unsigned frame = std::max(2048U, std::bit_ceil(mtu + kHeaders));
  return fmt::format("iface={},qpairs={},qdisc_bypass=1,framesz={},blocksz={},framecnt={}",
                     name.target, queues, frame, std::max(frame, 65536U),
                     std::max(frames * 2048 / frame, std::min(frames, 512U)));
}

/// Returns the arguments for a tap. An existing tap keeps its MAC, by which its neighbours know it,
/// unless its name gives another one (`mac=`).
std::string tap(const DeviceName& name, const DeviceNeeds& needs) {
  std::string arguments = "iface=" + name.target;
  if (needs.mac && !name.arguments.contains("mac="))
    arguments += fmt::format(",mac={:02x}", fmt::join(needs.mac->bytes, ":"));
  return arguments;
}

}  // namespace

std::vector<DriverArguments> arguments_for(const DeviceName& name, const DeviceNeeds& needs) {
  std::vector<DriverArguments> all;
  const auto add = [&](std::string_view driver, unsigned number, std::string arguments,
                       unsigned queues) {
    if (!name.arguments.empty()) arguments += (arguments.empty() ? "" : ",") + name.arguments;
    all.push_back({.bus = "vdev",
                   .name = fmt::format("net_{}{}", driver, number),
                   .driver = std::string(driver),
                   .arguments = std::move(arguments),
                   .queues = queues});
  };
  switch (name.kind) {
    case DeviceKind::pci:
      all.push_back(
          {.bus = "pci", .name = name.target, .driver = {}, .arguments = {}, .queues = 0});
      break;
    case DeviceKind::af_packet:
      // A worker that sleeps for a short while loses no packets with so large a ring.
      add("af_packet", needs.number, af_packet(name, needs.workers, needs.mtu, 4096),
          needs.workers);
      if (!needs.has_control) break;
      all.back().packets = PacketsOf::rest;
      all.push_back({.bus = "vdev",
                     .name = fmt::format("net_af_packet{}", LinkMap::kMost + needs.number),
                     .driver = "af_packet",
                     .arguments = af_packet(name, 1, needs.mtu, 256),
                     .queues = 1,
                     .packets = PacketsOf::control});
      break;
    case DeviceKind::af_xdp:
      // Packets of a queue without a socket would be lost. Busy polling would add milliseconds of
      // jitter.
      for (unsigned q = 0; q < needs.queues; ++q)
        add("af_xdp", needs.number * 64 + q,
            fmt::format("iface={},start_queue={},queue_count=1,busy_budget=0", name.target, q), 1);
      break;
    case DeviceKind::tap:  // DPDK requires as many receive queues as send queues
      add("tap", needs.number, tap(name, needs), 0);
      break;
    case DeviceKind::memif:
      add("memif", needs.number,
          fmt::format("socket={},socket-abstract=no,id=0{}", memif_socket_before(name),
                      name.arguments.contains("role=") ? "" : ",role=server"),
          1);
      break;
    case DeviceKind::pcap:
      add("pcap", needs.number, "rx_pcap=" + name.target, 1);
      break;
    case DeviceKind::null:  // without no-rx the driver would invent packets
      add("null", needs.number, "no-rx=1", 0);
      break;
    case DeviceKind::ring:
      add("ring", needs.number, "", 0);
      break;
  }
  return all;
}

}  // namespace millrace
