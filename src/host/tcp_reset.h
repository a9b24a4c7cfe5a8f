// RSTs that a host makes: for the ends of a connection that millrace ends, and for senders that
// nobody serves. Plain functions over the caller's bytes; any thread.
#pragma once

#include <cstddef>
#include <optional>

#include "core/burst.h"
#include "core/reset.h"
#include "millrace/key.h"

namespace millrace {

/// Bytes of a RST, its IP header included.
template <class A>
inline constexpr unsigned kResetBytes = (A::kBytes == 4 ? 20 : 40) + 20;

/// Writes the packet, from its IP header on, with checksums; `to` has room for `kResetBytes`.
template <class K>
void write_reset(std::byte* to, const Reset<K>& reset);

/// Returns the RST that answers a parsed TCP packet where nobody listens (RFC 9293, 3.10.7.1); none
/// for a RST, and where the TCP header was cut short.
template <class K>
std::optional<Reset<K>> answering_reset(const std::byte* packet, const Headers& headers);

}  // namespace millrace
