// Reads and writes what stations on a link say about their addresses, in one form for ARP (RFC 826)
// of IPv4 and for neighbour discovery (RFC 4861, 4.3 and 4.4) of IPv6. Plain functions over the
// caller's bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/burst.h"
#include "core/mac.h"
#include "millrace/key.h"

namespace millrace {

/// An ARP request or neighbour solicitation (`is_question`), or a statement: an ARP reply or
/// announcement, or a neighbour advertisement. The unspecified address, `A{}`, stands for a station
/// without an address.
template <class A>
struct Notice {
  bool is_question = false;  ///< asks for the MAC of `target`; else states that MAC
  A target;
  A sender;                ///< the asking station's address; questions only
  std::optional<Mac> mac;  ///< MAC of the asking station, or of the target; set in each answer
  bool is_solicited = false;
  bool overrides = true;
};

/// Reads an ARP frame, untagged or with tags of VLAN 0; none if the frame is not ARP for IPv4, or
/// malformed.
std::optional<Notice<AddressV4>> read_arp(std::span<const std::byte> frame);
/// Reads an IPv6 packet with these headers; none if it is not neighbour discovery, or not valid
/// (RFC 4861, 7.1.1 and 7.1.2): checksum, hop limit, options.
std::optional<Notice<AddressV6>> read_discovery(std::span<const std::byte> frame,
                                                const Headers& headers);

/// Returns the headers of a frame, untagged or with tags of VLAN 0, if an ICMPv6 message follows
/// the IPv6 header immediately, as in neighbour discovery in practice; none otherwise.
std::optional<Headers> headers_of_discovery(std::span<const std::byte> frame);

/// Room that the functions below need for a frame, in bytes.
inline constexpr unsigned kNoticeBytes = 86;

/// Writes a question by the station `sender` at `mac`: to `one`, or to all stations that may have
/// the target if `one` is null. Returns the frame's length in bytes.
template <class A>
std::uint16_t write_question(std::byte* frame, const Mac& mac, const A& sender, const A& target,
                             const Mac* one);

/// Writes the answer that `target` is at `mac`, to the station `asker` at `to`. If `asker` is the
/// unspecified address: to all stations on the link, as an announcement. Returns the frame's length
/// in bytes.
template <class A>
std::uint16_t write_answer(std::byte* frame, const Mac& mac, const A& target, const A& asker,
                           const Mac& to);

/// Returns the solicited-node group of an address (RFC 4291, 2.7.1).
AddressV6 solicited_node(const AddressV6& target);
/// Returns the MAC of a group (RFC 2464, 7).
Mac multicast_mac(const AddressV6& group);
/// Returns the link-local address of an interface with this MAC: fe80::/64 and the interface
/// identifier (RFC 4291, appendix A).
AddressV6 link_local(const Mac& mac);

}  // namespace millrace
