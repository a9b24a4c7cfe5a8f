// Verdicts: what becomes of a packet, and why. Every packet ends with exactly one verdict of this
// closed list, and each verdict has a counter of its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace millrace {

enum class Verdict : std::uint8_t {
  // Served, or handled by the host itself.
  tracked,    ///< served, and its connection has an entry
  stateless,  ///< served without an entry: by consistent hashing, or merely forwarded
  related,    ///< an ICMP error about a served packet, sent on to the sender of that packet
  consumed,   ///< for the host itself: processed, answered or given to the kernel
  held,       ///< kept by the host until the MAC of its next hop is known
  hopped,     ///< sent to the server of the cluster that serves its connection

  // Not tracked: the parser's reasons. Such packets pass untouched, or are dropped, as configured.
  not_ip,     ///< no IP header behind the link layer (ARP, STP, an unknown EtherType, ...)
  truncated,  ///< cut short before the headers end; in a live run: before the packet ends
  /// Header fields contradict each other or the packet's length; in a live run also: the IPv4
  /// header checksum is wrong.
  malformed,
  /// A later fragment of a datagram whose first one has no key (an ICMP message that is no query)
  /// or
  /// is not looked up (to a group).
  fragment,
  icmp_error,     ///< an ICMP or ICMPv6 error about a packet that is not served
  icmp_control,   ///< ICMP, no error, without an identifier: neighbour discovery, redirects, ...
  source_routed,  ///< its header names further hops, so its addresses are not its endpoints
  header_chain,   ///< more extension headers, tags or labels than the parser reads

  // Not tracked: the function's reasons.
  /// Handled by no function: addressed to no service, and no reply from a backend; or for the host
  /// itself or a group.
  no_service,
  /// No backend of its service takes connections, and the service lets packets pass; or its
  /// connection could not be tracked, as the reply key belongs to another connection.
  passed,

  // Dropped, unless a function serves the packet nevertheless and so turns `no_connection`,
  // `over_budget` or `table_full` into `stateless`.
  no_connection,    ///< belongs to no connection and cannot begin one
  invalid,          ///< its numbers or tag cannot be those of its connection (docs/states.md)
  bad_checksum,     ///< an ICMP error with a wrong checksum, about a served packet
  over_budget,      ///< would begin one half-open connection too many
  no_backend,       ///< no backend of its service takes connections
  refused,          ///< like `no_backend`, but a live run sends the sender a RST or an ICMP error
  denied,           ///< a rule forbids its connection
  rejected,         ///< like `denied`, but a live run sends the sender a RST or an ICMP error
  stray_reply,      ///< from a backend's address and port, but of no connection
  not_ready,        ///< its service uses consistent hashing, and the hash table is being made
  table_full,       ///< would begin a connection, but the table has no place
  reply_collision,  ///< each reply key that it could have belongs to another connection
  source_limit,     ///< its source has as many connections as a source may have
  rate_limit,       ///< its rule lets no more connections begin at present
  service_limit,    ///< its service has as many connections as it may have
  customer_limit,   ///< its customer has as many sessions as he may have; he gets an ICMP error
  no_mapping,       ///< to a public address of NAT, but to no mapping that takes it
  no_port,          ///< like `customer_limit`, but no public port is free for it
  no_record,        ///< like `no_port`, but a block of ports is, which cannot be logged at present
  hop_limit,        ///< its TTL or hop limit is used up
  /// The host has no route to its destination, or the next hop that a function chose is on no link.
  no_route,
  too_big,     ///< larger than the next link's MTU
  no_buffer,   ///< larger than the next link's MTU, and there is no memory for its fragments
  unresolved,  ///< its next hop's MAC is unknown, and the host cannot hold the packet
  /// Addressed to the host itself or a group, and neither host nor kernel takes it; or neighbour
  /// discovery to another link.
  not_ours,
  kernel_full,  ///< for the kernel, but its interface has no room
  no_server,    ///< no server of the cluster serves its connection at present

  // Dropped: packets that a router does not take in. Their senders get no ICMP error.
  other_station,   ///< its frame is for another station on the link
  foreign_vlan,    ///< its frame is of a VLAN that is not its port's: it has another tag, or none
  encapsulated,    ///< in PPPoE, MPLS or LLC, which no port speaks
  link_broadcast,  ///< for one host, in a broadcast or multicast frame
  martian_source,  ///< no sender may have its source: loopback, a group, millrace's own, ...
  reverse_path,  ///< its source has no route, or none by the port where it arrived (a port's `rpf`)
  unroutable,    ///< its destination is one to which no router forwards: loopback, ...

  // Dropped: packets of tunnels (src/host/tunnels.h).
  no_customer,      ///< in a tunnel that is no customer's
  bad_tunnel,       ///< in a customer's tunnel, but its outer headers are not ones that are read
  tunnel_fragment,  ///< a fragment of a tunnel's packet
  untranslated,     ///< from a customer, and no function gives it a public source

  // Dropped fragments (src/fragments).
  fragment_tiny,  ///< a first fragment without the whole transport header, or one that makes up for
                  ///< it
  fragment_invalid,  ///< its length or its place in its datagram is impossible
  fragment_overlap,  ///< overlaps or contradicts another fragment of its datagram, or follows one
                     ///< that does
  fragment_timeout,  ///< its datagram's first fragment did not come in time
  fragment_limit,    ///< too many fragments of its source, of its datagram or in all
};

/// The outcome of a verdict: what happens to the packet.
enum class Outcome : std::uint8_t {
  served,     ///< the packet leaves as the function has said
  host,       ///< the host processes the packet, or keeps it for a while
  unmatched,  ///< the configuration decides whether the packet passes (`unmatched`)
  routable,   ///< like `unmatched`, but a router can forward the packet: its destination is known
  passed,     ///< the packet leaves unchanged
  dropped,
  limited,  ///< dropped, since a configured limit forbids it
};

/// A verdict with its name and outcome.
struct VerdictKind {
  Verdict verdict;
  std::string_view name;  ///< name in statistics
  Outcome outcome;
};

inline constexpr std::array kVerdictKinds{
    VerdictKind{Verdict::tracked, "tracked", Outcome::served},
    VerdictKind{Verdict::stateless, "stateless", Outcome::served},
    VerdictKind{Verdict::related, "related", Outcome::served},
    VerdictKind{Verdict::consumed, "consumed", Outcome::host},
    VerdictKind{Verdict::held, "held", Outcome::host},
    VerdictKind{Verdict::hopped, "hopped", Outcome::host},
    VerdictKind{Verdict::not_ip, "not_ip", Outcome::unmatched},
    VerdictKind{Verdict::truncated, "truncated", Outcome::unmatched},
    VerdictKind{Verdict::malformed, "malformed", Outcome::unmatched},
    VerdictKind{Verdict::fragment, "fragment", Outcome::routable},
    VerdictKind{Verdict::icmp_error, "icmp_error", Outcome::routable},
    VerdictKind{Verdict::icmp_control, "icmp_control", Outcome::routable},
    VerdictKind{Verdict::source_routed, "source_routed", Outcome::unmatched},
    VerdictKind{Verdict::header_chain, "header_chain", Outcome::unmatched},
    VerdictKind{Verdict::no_service, "no_service", Outcome::routable},
    VerdictKind{Verdict::passed, "passed", Outcome::passed},
    VerdictKind{Verdict::no_connection, "no_connection", Outcome::dropped},
    VerdictKind{Verdict::invalid, "invalid", Outcome::dropped},
    VerdictKind{Verdict::bad_checksum, "bad_checksum", Outcome::dropped},
    VerdictKind{Verdict::over_budget, "over_budget", Outcome::dropped},
    VerdictKind{Verdict::no_backend, "no_backend", Outcome::dropped},
    VerdictKind{Verdict::refused, "refused", Outcome::dropped},
    VerdictKind{Verdict::denied, "denied", Outcome::dropped},
    VerdictKind{Verdict::rejected, "rejected", Outcome::dropped},
    VerdictKind{Verdict::stray_reply, "stray_reply", Outcome::dropped},
    VerdictKind{Verdict::not_ready, "not_ready", Outcome::dropped},
    VerdictKind{Verdict::table_full, "table_full", Outcome::dropped},
    VerdictKind{Verdict::reply_collision, "reply_collision", Outcome::dropped},
    VerdictKind{Verdict::source_limit, "source_limit", Outcome::limited},
    VerdictKind{Verdict::rate_limit, "rate_limit", Outcome::limited},
    VerdictKind{Verdict::service_limit, "service_limit", Outcome::limited},
    VerdictKind{Verdict::customer_limit, "customer_limit", Outcome::limited},
    VerdictKind{Verdict::no_mapping, "no_mapping", Outcome::dropped},
    VerdictKind{Verdict::no_port, "no_port", Outcome::dropped},
    VerdictKind{Verdict::no_record, "no_record", Outcome::dropped},
    VerdictKind{Verdict::hop_limit, "hop_limit", Outcome::dropped},
    VerdictKind{Verdict::no_route, "no_route", Outcome::dropped},
    VerdictKind{Verdict::too_big, "too_big", Outcome::dropped},
    VerdictKind{Verdict::no_buffer, "no_buffer", Outcome::dropped},
    VerdictKind{Verdict::unresolved, "unresolved", Outcome::dropped},
    VerdictKind{Verdict::not_ours, "not_ours", Outcome::dropped},
    VerdictKind{Verdict::kernel_full, "kernel_full", Outcome::dropped},
    VerdictKind{Verdict::no_server, "no_server", Outcome::dropped},
    VerdictKind{Verdict::other_station, "other_station", Outcome::dropped},
    VerdictKind{Verdict::foreign_vlan, "foreign_vlan", Outcome::dropped},
    VerdictKind{Verdict::encapsulated, "encapsulated", Outcome::dropped},
    VerdictKind{Verdict::link_broadcast, "link_broadcast", Outcome::dropped},
    VerdictKind{Verdict::martian_source, "martian_source", Outcome::dropped},
    VerdictKind{Verdict::reverse_path, "reverse_path", Outcome::dropped},
    VerdictKind{Verdict::unroutable, "unroutable", Outcome::dropped},
    VerdictKind{Verdict::no_customer, "no_customer", Outcome::dropped},
    VerdictKind{Verdict::bad_tunnel, "bad_tunnel", Outcome::dropped},
    VerdictKind{Verdict::tunnel_fragment, "tunnel_fragment", Outcome::dropped},
    VerdictKind{Verdict::untranslated, "untranslated", Outcome::dropped},
    VerdictKind{Verdict::fragment_tiny, "fragment_tiny", Outcome::dropped},
    VerdictKind{Verdict::fragment_invalid, "fragment_invalid", Outcome::dropped},
    VerdictKind{Verdict::fragment_overlap, "fragment_overlap", Outcome::dropped},
    VerdictKind{Verdict::fragment_timeout, "fragment_timeout", Outcome::dropped},
    VerdictKind{Verdict::fragment_limit, "fragment_limit", Outcome::dropped},
};
inline constexpr std::size_t kVerdicts = kVerdictKinds.size();

namespace detail {

/// The verdicts that have one of these outcomes, a bit each.
template <Outcome... outcome>
inline constexpr std::uint64_t kVerdictsWith = [] {
  std::uint64_t all = 0;
  for (std::size_t v = 0; v < kVerdicts; ++v)
    all |= std::uint64_t{((kVerdictKinds[v].outcome == outcome) || ...)} << v;
  return all;
}();

template <class... V>
constexpr std::uint64_t bits_of(V... verdict) {
  return ((std::uint64_t{1} << static_cast<unsigned>(verdict)) | ...);
}

constexpr bool is_among(std::uint64_t verdicts, Verdict v) {
  return (verdicts >> static_cast<unsigned>(v) & 1) != 0;
}

consteval bool all_stand_in_order() {
  for (std::size_t v = 0; v < kVerdicts; ++v) {
    if (static_cast<std::size_t>(kVerdictKinds[v].verdict) != v) return false;
  }
  return true;
}
static_assert(all_stand_in_order() && kVerdicts <= 64 &&
              static_cast<std::size_t>(Verdict::fragment_limit) + 1 == kVerdicts);

}  // namespace detail

/// Returns the verdict's name in statistics.
constexpr std::string_view to_string(Verdict v) {
  return kVerdictKinds[static_cast<std::size_t>(v)].name;
}

/// True if the packet leaves as the function has said.
constexpr bool is_served(Verdict v) {
  return detail::is_among(detail::kVerdictsWith<Outcome::served>, v);
}

/// True if the configuration decides whether the packet passes (`unmatched = "pass" | "drop"`).
constexpr bool is_unmatched(Verdict v) {
  return detail::is_among(detail::kVerdictsWith<Outcome::unmatched, Outcome::routable>, v);
}

/// True for the unmatched verdicts of packets that a router can pass on: their destination is
/// known.
constexpr bool is_routable(Verdict v) {
  return detail::is_among(detail::kVerdictsWith<Outcome::routable>, v);
}

/// True if the packet is dropped whatever the configuration says of unmatched packets.
constexpr bool is_drop(Verdict v) {
  return detail::is_among(detail::kVerdictsWith<Outcome::dropped, Outcome::limited>, v);
}

/// True if the packet is dropped, and a live run tells its sender so: by an ICMP error, or by a RST
/// if `is_reset` and the packet is of TCP.
constexpr bool is_answered(Verdict v) {
  using enum Verdict;
  constexpr auto kAll = detail::bits_of(refused, rejected, customer_limit, no_port, no_record);
  return detail::is_among(kAll, v);
}
constexpr bool is_reset(Verdict v) { return v == Verdict::refused || v == Verdict::rejected; }

/// True if the packet is dropped because a configured limit forbids it.
constexpr bool is_limit(Verdict v) {
  return detail::is_among(detail::kVerdictsWith<Outcome::limited>, v);
}

}  // namespace millrace
