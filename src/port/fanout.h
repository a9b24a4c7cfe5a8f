// How the kernel distributes an interface's packets over packet sockets. DPDK's driver `af_packet`
// asks for two features that a router cannot use, and has no argument to turn them off:
//   - joining IPv4 fragments first (PACKET_FANOUT_FLAG_DEFRAG): a joined packet exceeds the MTU and
//     could not be forwarded;
//   - passing a packet to another socket when the one that its hash chooses is nearly full
//     (PACKET_FANOUT_FLAG_ROLLOVER): the packet overtakes waiting packets of its connection.
//
// So fanout.cc defines `setsockopt`, which every library of the process then calls in place of
// libc's. The function does what libc's does, but clears these two flags. This works only if the
// program exports the symbol to libraries that are loaded later; CMake tells the linker so.
#pragma once

#include <string>
#include <string_view>

namespace millrace {

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
