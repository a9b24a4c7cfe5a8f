// From bytes to keys: the parser of a burst. A plain function over the caller's burst; any thread.
//
// What is read, how far, and why it stops: docs/parse.md.
#pragma once

#include "core/burst.h"
#include "core/link_type.h"

namespace millrace {

/// Tags, labels and shims between the link header and the IP header that are followed.
inline constexpr unsigned kMaxLinkHeaders = 16;
/// Extension headers of one packet that are followed.
inline constexpr unsigned kMaxExtensions = 8;
/// Bytes from the packet's beginning within which its extension headers must end. What follows them
/// and is read or rewritten, ports and checksum, lies within the next `kTransportBytes`.
inline constexpr unsigned kMaxReach = 448;
inline constexpr unsigned kTransportBytes = 18;  // up to the end of TCP's checksum
static_assert(kMaxReach + kTransportBytes <= kOfferedBytes);

/// Reads `size`, `data` and `length`. Writes `headers` and
/// `verdict` of every packet, and files the key of every packet that gets `Verdict::tracked`, with
/// its place, in the lane of its family. An ICMP error is filed, too, among those of
/// errors, where `read_quote` (quote.h) finds what it is about: by the key that it quotes,
/// reversed. Sizes of all lanes are set anew.
///
/// Only the outermost IP header counts. Ports are those of TCP, UDP and SCTP; the identifier,
/// twice, of ICMP queries; 0 for other protocols. The zone is 0. `headers` is whole where the
/// verdict is `tracked`, `fragment`, `icmp_error` or `icmp_control` (then l3 < l4 <= l4_end <=
/// length), and zero elsewhere. No byte at or beyond `length` is read.
void parse(Burst& burst, LinkType link);

}  // namespace millrace
