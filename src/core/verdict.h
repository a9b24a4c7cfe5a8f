// What became of a packet, and why. Closed: every packet ends with exactly one verdict, and each
// has a counter of its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace millrace {

enum class Verdict : std::uint8_t {
  // Served, or the host's.
  tracked,
  stateless,  ///< served without an entry, by consistent hashing
  related,    ///< an ICMP error about what was served, sent on to where that came from
  consumed,   ///< for the host itself: heard, or answered
  held,       ///< until its next hop is known

  // Not tracked: the parser's reasons. Such packets pass untouched, or are dropped, as configured.
  not_ip,         ///< no IP header behind the link layer (ARP, STP, an unknown EtherType, ...)
  truncated,      ///< cut short, by the capture or on the wire, before the headers end
  malformed,      ///< header fields contradict each other or the packet's length
  fragment,       ///< a fragment other than the first: it carries no ports
  icmp_error,     ///< an ICMP or ICMPv6 error about nothing that is served
  icmp_control,   ///< other ICMP without an identifier: neighbour discovery, redirects, ...
  source_routed,  ///< its header names further hops, so its addresses are not its endpoints
  header_chain,   ///< more extension headers, tags or labels than are followed

  // Not tracked: the function's reason.
  no_service,  ///< addressed to no configured service, and no reply from a backend
  passed,      ///< its service has no backend to give, and lets packets pass: they are routed

  // Dropped.
  no_connection,    ///< belongs to no connection and begins none, as a RST; the balancer serves it
  over_budget,      ///< one half-open connection too many; the balancer serves it
  no_backend,       ///< its service has no backend to give
  refused,          ///< as that, and its sender is told so
  stray_reply,      ///< from where a backend serves, and of no connection
  not_ready,        ///< it goes by consistent hashing, and its service's table is being made
  table_full,       ///< a new connection, and the table has no place for it
  reply_collision,  ///< every backend's reply tuple belongs to another connection
  source_limit,     ///< its source has as many connections as one may have
  service_limit,    ///< its service has
  hop_limit,        ///< it has been forwarded often enough
  no_route,         ///< nobody knows where its destination is
  too_big,          ///< for the next link
  unresolved,       ///< its next hop does not answer
  not_ours,         ///< to the host itself, or to a group, and nothing here takes it
  kernel_full,      ///< for the kernel, whose interface has no room for it

  // Dropped: what a router does not take in. Nobody is told of it.
  other_station,   ///< its frame is for another station on the link
  foreign_vlan,    ///< its frame belongs to a VLAN, and no port does
  encapsulated,    ///< in PPPoE, MPLS or LLC, which no port speaks
  link_broadcast,  ///< to one host, in a frame to several
  martian_source,  ///< nobody may send by it: loopback, a group, an address of millrace's own, ...
  reverse_path,    ///< its source is elsewhere: a port's `rpf`
  unroutable,      ///< its destination is one to which no router forwards: loopback, ...
  service_fragment,  ///< a fragment to or from a service, which whole packets reach only
};
inline constexpr std::size_t kVerdicts = 39;

inline constexpr std::array<std::string_view, kVerdicts> kVerdictNames{
    "tracked",        "stateless",     "related",         "consumed",        "held",
    "not_ip",         "truncated",     "malformed",       "fragment",        "icmp_error",
    "icmp_control",   "source_routed", "header_chain",    "no_service",      "passed",
    "no_connection",  "over_budget",   "no_backend",      "refused",         "stray_reply",
    "not_ready",      "table_full",    "reply_collision", "source_limit",    "service_limit",
    "hop_limit",      "no_route",      "too_big",         "unresolved",      "not_ours",
    "kernel_full",    "other_station", "foreign_vlan",    "encapsulated",    "link_broadcast",
    "martian_source", "reverse_path",  "unroutable",      "service_fragment"};
static_assert(static_cast<std::size_t>(Verdict::service_fragment) + 1 == kVerdicts);

/// As it appears in statistics.
constexpr std::string_view to_string(Verdict v) {
  return kVerdictNames[static_cast<std::size_t>(v)];
}

/// True for what the function has rewritten.
constexpr bool is_served(Verdict v) { return v <= Verdict::related; }

/// True for the reasons that configuration decides about (`unmatched = "pass" | "drop"`).
constexpr bool is_unmatched(Verdict v) { return v >= Verdict::not_ip && v <= Verdict::no_service; }

/// Of those, the ones that say where a packet is to go, so that a router can pass it on.
constexpr bool is_routable(Verdict v) {
  return v == Verdict::fragment || v == Verdict::icmp_error || v == Verdict::icmp_control ||
         v == Verdict::no_service;
}

/// True for the reasons that always drop.
constexpr bool is_drop(Verdict v) { return v >= Verdict::no_connection; }

/// Of those, the ones by which a configured limit says no.
constexpr bool is_limit(Verdict v) {
  return v == Verdict::source_limit || v == Verdict::service_limit;
}

}  // namespace millrace
