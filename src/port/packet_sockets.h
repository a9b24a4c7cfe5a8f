// How the kernel distributes an interface's packets over packet sockets.
//
// DPDK's driver `af_packet` asks for two features that a router cannot use, and has no argument to
// turn them off:
//   - joining IPv4 fragments first (PACKET_FANOUT_FLAG_DEFRAG): a joined packet exceeds the MTU and
//     could not be forwarded;
//   - passing a packet to another socket when the one that its hash chooses is nearly full
//     (PACKET_FANOUT_FLAG_ROLLOVER): the packet overtakes waiting packets of its connection.
// Under overload its sockets lose the packets by which routers notice that a neighbour lives, so
// these get a socket of their own, which is read first.
//
// So packet_sockets.cc defines `setsockopt`, which every library of the process then calls in place
// of libc's. The function does what libc's does, but clears these two flags, and gives the sockets
// that a thread opens in `OpeningPacketSockets` a filter. This works only if the program exports
// the symbol to libraries that are loaded later; CMake tells the linker so.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace millrace {

/// Packets of network control, in the syntax of libpcap (pcap-filter(7)): ARP, neighbour discovery,
/// OSPF, VRRP, BGP and BFD (RFC 5881, 5883). Where a protocol's packets are of this link alone, and
/// are sent with the highest TTL, only those with such a TTL are meant: nobody can send them from
/// elsewhere (RFC 5082). An echo of BFD comes back with one less. The lengths come first, also with
/// room for a VLAN tag: a filter that reads beyond a frame's end refuses the frame, and no socket
/// would get it.
inline constexpr std::string_view kNetworkControl =
    "len >= 42 and (arp or "
    "(ip and ip[0] & 15 = 5 and (ip proto 89 or tcp port 179 or udp dst port 4784 or "
    "(ip[8] >= 254 and udp dst port 3785) or "
    "(ip[8] = 255 and (ip proto 112 or udp dst port 3784)))) or "
    "(len >= 62 and ip6 and (ip6[6] = 89 or tcp port 179 or udp dst port 4784 or "
    "(ip6[7] >= 254 and udp dst port 3785) or "
    "(ip6[7] = 255 and (ip6[6] = 112 or udp dst port 3784 or "
    "(ip6[6] = 58 and ip6[40] >= 133 and ip6[40] <= 137))))))";

/// Packets that packet sockets get.
enum class PacketsOf : std::uint8_t {
  control,  ///< network control alone; the socket is in no group of sockets
  rest,     ///< all but network control
};

/// While the object lives, sockets for which the thread sets PACKET_VERSION, as the driver does for
/// those that it opens, get these packets alone. One object at a time for each thread.
class OpeningPacketSockets {
 public:
  explicit OpeningPacketSockets(PacketsOf packets);
  ~OpeningPacketSockets();
  OpeningPacketSockets(const OpeningPacketSockets&) = delete;
  OpeningPacketSockets& operator=(const OpeningPacketSockets&) = delete;
};

/// True if the kernel joins fragments for a packet socket that this process has on that interface:
/// the driver has then called another `setsockopt`. False also if there is no such interface. Any
/// thread.
bool joins_fragments(const std::string& interface);
/// Warning about an interface on which the kernel joins fragments; the interface's name goes in
/// front.
inline constexpr std::string_view kJoinsFragments =
    ": the kernel joins IPv4 fragments that arrive there, and joined packets above the MTU are "
    "lost: use "
    "af_xdp, or see docs/run.md, Fragments";

}  // namespace millrace
