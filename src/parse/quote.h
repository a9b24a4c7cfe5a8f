// What ICMP errors quote: the beginning of the packet that they are about (RFC 792; RFC 4443, 2.4).
//
// Plain functions over one packet; called by the worker that owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/burst.h"
#include "parse/rewrite.h"

namespace millrace {

/// The packet that an error quotes, as far as it does.
template <class K>
struct Quote {
  K key;            ///< of a packet in the direction from which the error comes
  Headers headers;  ///< in bytes from the error's own beginning
};

/// Of the ICMP error whose headers these are, as the parser wrote them with the verdict
/// `icmp_error`; of `K`'s family. None where the quote ends before the ports, or has none that a
/// packet would be tracked by, as that of an error or of a later fragment; and where it was not
/// sent by whom the error is sent to: who makes errors up must not choose who gets them
/// (RFC 5508, 4.2; RFC 5927). No byte at or beyond `headers.l4_end` is read.
template <class K>
std::optional<Quote<K>> read_quote(const std::byte* packet, const Headers& headers);

/// Makes the quoted packet one with the key `is`, as `rewrite` does, and mends the error's
/// checksum, which covers the quote, in the same way. The error's own addresses stay.
template <class K>
void rewrite_quote(std::byte* packet, const Headers& headers, const Quote<K>& quote, const K& is);

/// Rewrites an error which goes where packets with the key `was` go, that leave with the key `is`:
/// its own ends as theirs, so that whoever on the way met the error appears as their sender does,
/// and what it quotes to the packet that its receiver has sent. False: it quotes none
/// (`read_quote`), and stays as it is.
template <class K>
bool rewrite_error(std::byte* packet, const Headers& headers, const K& was, const K& is);

}  // namespace millrace
