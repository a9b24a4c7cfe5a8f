// How the kernel gives packets to the sockets of an interface. DPDK's driver `af_packet` asks for
// two things that a router cannot have, and no argument of the driver says otherwise:
//   - that IPv4 fragments are joined first (PACKET_FANOUT_FLAG_DEFRAG). What is joined exceeds the
//     MTU, and could not be passed on;
//   - that a packet whose socket is nearly full goes to another one (PACKET_FANOUT_FLAG_ROLLOVER).
//     It overtakes those of its connection that wait.
//
// So fanout.cc defines `setsockopt`, which every library of the process then calls in place of
// libc's: it does the same, but that it leaves these flags out. For that to hold the program must
// show the symbol to libraries that are loaded later, as CMake tells the linker.
#pragma once

#include <string>
#include <string_view>

namespace millrace {

/// Asks the kernel whether it joins fragments for a packet socket of this process on that
/// interface: if so, the driver has called another `setsockopt`. False where there is no such
/// interface. Any thread.
bool joins_fragments(const std::string& interface);
/// The warning about such an interface, to be put behind its name.
inline constexpr std::string_view kJoinsFragments =
    ": the kernel joins IPv4 fragments that come there, and what exceeds the MTU is lost: use "
    "af_xdp, or see docs/run.md, Fragments";

}  // namespace millrace
