// Finds packets that are wrong by themselves: no sender that obeys its protocol makes them.
#pragma once

#include "core/burst.h"

namespace millrace {

/// Removes from the lanes of a parsed burst the packets with a wrong transport header, and gives
/// them the verdict `malformed`:
///
/// - all protocols with ports: the IP payload is shorter than the header without options;
/// - TCP: a data offset below 5 words or beyond the IP payload (RFC 9293, 3.1); flags that exclude
///   each other, or none of SYN, ACK and RST. Which flags may stand together is what Linux says
///   (tcp_valid_flags in nf_conntrack_proto_tcp.c), not counting PSH, ECE and CWR;
/// - UDP: a length below 8 or beyond the IP payload (RFC 768);
/// - UDP-Lite: a checksum coverage of 1 to 7, or beyond the IP payload (RFC 3828, 3.1).
///
/// The IP payload ends where the IP header says. If the header gives no length, or a field was not
/// captured, the packet counts as right; so do lengths in the first fragment of a datagram.
void check_headers(Burst& burst);

}  // namespace millrace
