// What stations on a link say about their addresses: ARP (RFC 826) for IPv4 and neighbour discovery
// (RFC 4861, 4.3 and 4.4) for IPv6, in one form. Plain functions over the caller's bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/burst.h"
#include "core/mac.h"
#include "millrace/key.h"

namespace millrace {

/// The unspecified address, `A{}`, is that of who has none yet.
template <class A>
struct Notice {
  bool is_question = false;  ///< who has `target`? Else: `target` is at `mac`
  A target;
  A sender;                ///< of a question
  std::optional<Mac> mac;  ///< of the sender of a question; an answer has one
  bool is_solicited = false;
  bool overrides = true;
};

/// Returns what an Ethernet frame says, untagged or with tags of VLAN 0; nothing where it is no ARP
/// for IPv4, or malformed.
std::optional<Notice<AddressV4>> read_arp(std::span<const std::byte> frame);
/// What a packet with these headers, of IPv6, says; nothing where it is no neighbour discovery, or
/// not valid (RFC 4861, 7.1.1 and 7.1.2): checksum, hop limit, options.
std::optional<Notice<AddressV6>> read_discovery(std::span<const std::byte> frame,
                                                const Headers& headers);

/// Returns the headers of a frame, untagged or with tags of VLAN 0, whose ICMPv6 message follows
/// the IPv6 header at once, as all of neighbour discovery does in practice; nothing for others.
std::optional<Headers> headers_of_discovery(std::span<const std::byte> frame);

/// Bytes that a frame written below may take: there must be room for so many.
inline constexpr unsigned kNoticeBytes = 86;

/// A question from `mac`, which has the address `sender`: to all who may have the target, or to
/// `one`. Returns the frame's bytes.
template <class A>
std::uint16_t write_question(std::byte* frame, const Mac& mac, const A& sender, const A& target,
                             const Mac* one);

/// An answer: `target` is at `mac`. To the `asker`, who is at `to`; where it is the unspecified
/// address, to all on the link, unasked.
template <class A>
std::uint16_t write_answer(std::byte* frame, const Mac& mac, const A& target, const A& asker,
                           const Mac& to);

/// Who listens for questions about an address, as IPv6 address and as MAC (RFC 4291, 2.7.1; RFC
/// 2464, 7).
AddressV6 solicited_node(const AddressV6& target);
Mac multicast_mac(const AddressV6& group);
/// fe80::/64 and the interface's identifier (RFC 4291, appendix A).
AddressV6 link_local(const Mac& mac);

}  // namespace millrace
