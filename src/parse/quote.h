// The packets that ICMP errors quote: the beginning of the packet that the error is about (RFC 792;
// RFC 4443, 2.4).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/burst.h"
#include "parse/rewrite.h"

namespace millrace {

/// The packet that an error quotes, as far as it is quoted.
template <class K>
struct Quote {
  K key;            ///< key of the quoted packet, which went towards the error's origin
  Headers headers;  ///< offsets from the beginning of the error's bytes
};

/// Reads the packet that an ICMP error quotes. `headers` are the error's, as the parser wrote them
/// with the verdict `icmp_error`; the family is `K`'s. Returns none if the quote ends before the
/// ports, or is a packet that would not be tracked (another error, a later fragment). Also none if
/// the quoted packet's source is not the error's destination: otherwise a forger of errors could
/// choose their receivers (RFC 5508, 4.2; RFC 5927). No byte at or beyond `headers.l4_end` is read.
template <class K>
std::optional<Quote<K>> read_quote(const std::byte* packet, const Headers& headers);

/// True if the checksum of an ICMP error is wrong (RFC 792; RFC 4443, 2.3). False also if that
/// cannot be known, as the error was cut short or is a fragment. Reads the whole error.
template <class K>
bool has_wrong_checksum(const std::byte* packet, const Headers& headers);

/// Rewrites the quoted packet to the key `is`, as `rewrite` does, and updates the error's checksum,
/// which covers the quote, incrementally. The error's own addresses stay.
template <class K>
void rewrite_quote(std::byte* packet, const Headers& headers, const Quote<K>& quote, const K& is);

/// Rewrites an ICMP error for a direction whose packets arrive with the key `was` and leave with
/// the key `is`. The error's source becomes `is`'s if the two keys' sources differ, even if a
/// router sent the error; likewise the destination. The quoted packet gets the key `reversed(is)`:
/// the packet that the error's receiver sent. Returns false if no packet can be read from the error
/// (`read_quote`); the error then stays unchanged.
template <class K>
bool rewrite_error(std::byte* packet, const Headers& headers, const K& was, const K& is);

}  // namespace millrace
