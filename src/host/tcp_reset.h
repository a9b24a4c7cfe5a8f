// RSTs that a host makes for those whose connections it ends, or does not serve. Plain functions
// over the caller's bytes.
#pragma once

#include <cstddef>
#include <optional>

#include "core/burst.h"
#include "core/reset.h"
#include "millrace/key.h"

namespace millrace {

/// Bytes of such a packet, its IP header included.
template <class A>
inline constexpr unsigned kResetBytes = (A::kBytes == 4 ? 20 : 40) + 20;

/// Writes the packet, from its IP header on; `to` has room for `kResetBytes`.
template <class K>
void write_reset(std::byte* to, const Reset<K>& reset);

/// What answers a TCP packet to where nobody listens (RFC 9293, 3.10.7.1); none for a RST, and for
/// what was cut short.
template <class K>
std::optional<Reset<K>> answering_reset(const std::byte* packet, const Headers& headers);

}  // namespace millrace
