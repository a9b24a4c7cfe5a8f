// Fragments: which datagram a fragment belongs to, and which part of it the fragment is. Plain
// functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/burst.h"
#include "millrace/key.h"

namespace millrace {

/// The fields that all fragments of one datagram share (RFC 791, 3.2; RFC 8200, 4.5).
template <class A>
struct Datagram {
  A source;
  A destination;
  std::uint32_t id = 0;
  std::uint8_t protocol = 0;  ///< IPv4 only
  Zone customer = 0;  ///< the sender's tunnel (`Burst::customer`); packets' bytes do not tell

  friend bool operator==(const Datagram&, const Datagram&) = default;
};

/// A part of a datagram: the bytes from `begin` up to before `end` of the payload that was divided.
template <class A>
struct Fragment {
  Datagram<A> datagram;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;  ///< from the header's length; may exceed 65,535, or not exceed `begin`
  bool is_last = false;

  bool is_first() const { return begin == 0; }
};

/// Returns the fragment that a packet with parsed headers is; none for a whole packet. An atomic
/// fragment (RFC 6946) counts as a whole packet. `A` is the packet's family.
template <class A>
std::optional<Fragment<A>> read_fragment(const std::byte* packet, const Headers& headers);

}  // namespace millrace
