// TCP RSTs that a host makes: for the ends of a connection that millrace ends, and for senders
// whose service has no backend. Plain functions over the caller's bytes; any thread.
#pragma once

#include <cstddef>
#include <optional>

#include "core/burst.h"
#include "core/reset.h"
#include "millrace/key.h"

namespace millrace {

/// Length of a RST in bytes, including its IP header.
template <class A>
inline constexpr unsigned kResetBytes = (A::kBytes == 4 ? 20 : 40) + 20;

/// Writes the RST from its IP header on, with checksums, to `to`, which must have room for
/// `kResetBytes`.
template <class K>
void write_reset(std::byte* to, const Reset<K>& reset);

/// Returns the RST that answers a parsed TCP packet to a closed port (RFC 9293, 3.10.7.1); none if
/// the packet is a RST, or its TCP header was cut short.
template <class K>
std::optional<Reset<K>> answering_reset(const std::byte* packet, const Headers& headers);

}  // namespace millrace
