// Divides an IPv4 packet that is too large for the next link, as a router must if the packet allows
// it (RFC 791, 3.2; RFC 1812, 5.2.6). Plain functions over the caller's packet; any thread.
#pragma once

#include <array>
#include <cstddef>

#include "core/burst.h"

namespace millrace {

/// True if a packet with parsed headers, of more bytes than that MTU, may and can be divided: it is
/// of IPv4 and allows it.
bool may_be_divided(const std::byte* packet, const Headers& headers, unsigned mtu);

/// The fragments of one packet. Their payloads are as large as the MTU allows, but for the last
/// one's. A fragment can be divided like a whole packet.
class Division {
 public:
  /// The least MTU of a link with IPv4 (RFC 791, 3.2).
  static constexpr unsigned kLeastMtu = 68;
  /// Most fragments of one packet: enough for 65,535 bytes and an MTU of 1,280.
  static constexpr unsigned kMostFragments = 64;

  /// `ip`: the packet, whole, from its IP header on; must stay valid. `bytes`: its length, above
  /// `mtu`. `mtu`: `kLeastMtu` or more.
  Division(std::byte* ip, unsigned bytes, unsigned mtu);

  /// Returns the number of fragments, 2 or more.
  unsigned count() const { return count_; }
  /// Returns the length of the n-th fragment in bytes, with its IP header.
  unsigned bytes(unsigned n) const;
  /// Writes the n-th fragment to `to`. Fragments other than the first have only those options that
  /// are to be copied.
  void write(unsigned n, std::byte* to) const;
  /// Makes the packet itself the first fragment: its header changes, and its length is `bytes(0)`.
  /// To be called after all other fragments have been written.
  void make_first() const;

 private:
  unsigned header(unsigned n) const { return n == 0 ? header_ : later_header_; }
  unsigned begin(unsigned n) const { return n == 0 ? 0 : first_ + (n - 1) * each_; }
  unsigned payload(unsigned n) const;
  void finish_header(std::byte* ip, unsigned n) const;

  std::byte* ip_;
  unsigned header_;                      // bytes of the packet's header
  unsigned payload_;                     // bytes behind it
  std::array<std::byte, 40> options_{};  // of fragments other than the first
  unsigned later_header_ = 20;           // bytes of their headers
  unsigned first_;                       // bytes of the first fragment's payload
  unsigned each_;                        // bytes of the others' payloads
  unsigned count_;
  unsigned field_;  // flags and offset of the packet
};

}  // namespace millrace
