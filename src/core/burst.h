// A burst in flight: up to 64 packets as columns. Each stage of the line reads columns that earlier
// stages wrote and writes its own. One worker owns a burst; the port owns the memory behind `data`.
//
// A packet with a key that the parser could read is also in the lane of its address family, unless
// the host has removed it from there (`unfile`). A lane's keys are dense, so tables see plain
// spans, and one template serves both families. ICMP errors have two lanes of their own, empty in
// most bursts.
//
// A set of packets is a word with a bit for each. Its bits count places in the burst or places in a
// lane; each function says which.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/of_family.h"
#include "core/signal.h"
#include "core/verdict.h"
#include "millrace/hash.h"
#include "millrace/key.h"
#include "millrace/stragglers.h"
#include "millrace/types.h"

namespace millrace {

/// The port's own name for a packet: an index into a capture, an rte_mbuf, ...
using Handle = std::uint64_t;

/// Offsets of a packet's headers, in bytes from `data`.
struct Headers {
  std::uint16_t l3 = 0;      ///< the IP header
  std::uint16_t l4 = 0;      ///< the header behind the IP header and its extension headers
  std::uint16_t l4_end = 0;  ///< end of the captured IP payload, without padding
  std::uint8_t family = 0;   ///< 4 or 6; 0 where no IP header was found
  /// Protocol of the header at `l4`. In a later fragment there is no such header: then
  /// `kProtocolFragment`, and nothing at `l4` may be read or written.
  std::uint8_t protocol = 0;
};
static_assert(sizeof(Headers) == 8);

inline constexpr unsigned kBurstMax = Stragglers::kMax;

/// The number of no link: in a replay it is not known where packets arrived.
inline constexpr std::uint8_t kNoLink = 0xff;
/// Stands for a link where the host's kernel itself sends, or receives.
inline constexpr std::uint8_t kHostLink = kNoLink - 1;
namespace detail {
inline constexpr auto kNoLinks = [] {
  std::array<std::uint8_t, kBurstMax> none{};
  none.fill(kNoLink);
  return none;
}();
}  // namespace detail

/// Least number of bytes that a port offers at `data`; of a shorter packet, it offers all bytes.
/// Headers are read only within these bytes.
inline constexpr unsigned kOfferedBytes = 512;

/// Returns a word with the `count` lowest bits set, 64 at most.
constexpr std::uint64_t bits_below(unsigned count) {
  return count == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
}

/// Calls `each(i)` for each bit that is set, the lowest first.
template <class Each>
void for_each_bit(std::uint64_t bits, Each&& each) {
  for (; bits != 0; bits &= bits - 1) each(static_cast<unsigned>(std::countr_zero(bits)));
}

/// The packets of a burst that have a key of one address family.
template <class K>
struct Lane {
  unsigned size = 0;
  /// Packets of the reply direction, bits by place in the lane: the lookup sets the bits of packets
  /// that have the reply's entry of a connection, and `FunctionFor::screen` those of packets
  /// without an entry that may be replies.
  std::uint64_t replies = 0;
  std::array<std::uint8_t, kBurstMax> packet;  ///< the packet's place in the burst
  std::array<K, kBurstMax> key;                ///< key of the packet as it arrived
  /// Bits of `Changed`: the parts of a key that functions have replaced. `begin_serving` clears
  /// them. The new values are in `target`; other parts of `target` are not valid.
  std::array<std::uint8_t, kBurstMax> changed;
  std::array<K, kBurstMax> target;
  std::array<Hash, kBurstMax> hash;
  std::array<ConnId, kBurstMax> connection;
  /// If packets are checked, or some are idle: the tick of the entry's latest packet when it was
  /// looked up.
  std::array<Tick, kBurstMax> seen;
  /// Packets, bits by place in the lane, that have changed the state of their connection.
  std::uint64_t advanced = 0;
  /// Packets, bits by place in the lane, that a function does not count as activity: their entry's
  /// idle time goes on. `begin_serving` clears them; only a function with `has_idle_packets` may
  /// set them.
  std::uint64_t idle = 0;
  Stragglers stragglers;

  enum Changed : std::uint8_t {
    kSource = 1,  ///< address and port
    kDestination = 2,
    kIdentifier = 4,  ///< identifier of an ICMP query, which has no ports
    kZone = 8,        ///< the packet leaves to another customer, or to none
  };
  void set_source(unsigned i, const typename K::Address& address, std::uint16_t port) {
    target[i].source = address;
    target[i].source_port = port;
    changed[i] |= kSource;
  }
  void set_destination(unsigned i, const typename K::Address& address, std::uint16_t port) {
    target[i].destination = address;
    target[i].destination_port = port;
    changed[i] |= kDestination;
  }
  void set_identifier(unsigned i, std::uint16_t identifier) {
    target[i].source_port = target[i].destination_port = identifier;
    changed[i] |= kIdentifier;
  }
  void set_zone(unsigned i, const std::array<std::uint8_t, 3>& zone) {
    target[i].zone = zone;
    changed[i] |= kZone;
  }
  /// Returns the key of the lane's packet `i` as it leaves.
  K leaving(unsigned i) const { return leaving(key[i], target[i], changed[i]); }
  /// Returns a key of which those parts are replaced by those of `target` (bits of `Changed`).
  static K leaving(K is, const K& target, std::uint8_t changed) {
    if ((changed & kSource) != 0) is.source = target.source;
    if ((changed & kDestination) != 0) is.destination = target.destination;
    if ((changed & (kSource | kIdentifier)) != 0) is.source_port = target.source_port;
    if ((changed & (kDestination | kIdentifier)) != 0)
      is.destination_port = target.destination_port;
    if ((changed & kZone) != 0) is.zone = target.zone;
    return is;
  }

  std::uint64_t all() const { return bits_below(size); }
  std::uint64_t originators() const { return all() & ~replies; }
  Side side(unsigned i) const { return (replies >> i & 1) != 0 ? Side::reply : Side::originator; }
  std::span<const K> keys() const { return {key.data(), size}; }
  std::span<const Hash> hashes() const { return {hash.data(), size}; }
  std::span<ConnId> connections() { return {connection.data(), size}; }
  std::span<Tick> seen_before() { return {seen.data(), size}; }
};

struct Burst {
  static constexpr unsigned kMax = kBurstMax;

  unsigned size = 0;
  Tick now;
  std::array<std::byte*, kMax> data;       ///< first byte; behind 128 writable bytes of headroom
  std::array<std::uint16_t, kMax> length;  ///< bytes present at `data`
  std::array<std::uint32_t, kMax> wire_length;  ///< bytes on the wire, `length` or more
  std::array<Handle, kMax> handle;
  /// Number of the link on which the packet arrived; a port that has no links writes none.
  std::array<std::uint8_t, kMax> link = detail::kNoLinks;
  /// Packets, bits by place in the burst, that the host's kernel sends on `link`. There are none
  /// unless a function guards the host.
  std::uint64_t of_host = 0;
  /// Packets, bits by place in the burst, that came from a customer behind a tunnel or in a VLAN
  /// (customers.h); their keys have the customer's number as zone. Packets that a function
  /// translates leave the set when they are rewritten.
  std::uint64_t from_customer = 0;
  /// Packets, bits by place in the burst, that a function sends to a customer.
  std::uint64_t to_customer = 0;
  /// Packets, bits by place in the burst, that leave for an address at which a function receives
  /// packets: they come in again, as if from outside.
  std::uint64_t again = 0;
  /// Packets, bits by place in the burst, that have come again; they do not do so twice.
  std::uint64_t came_again = 0;
  /// Packets, bits by place in the burst, that another server of the cluster has sent here.
  std::uint64_t hopped = 0;
  /// Packets, bits by place in the burst, of connections that the other copy at another server does
  /// not have yet: they leave once it has, or after some time. Written just before `Port::send`.
  std::uint64_t deferred = 0;
  /// Valid for packets in either set: the number of the packet's customer: where it goes to, or,
  /// before it is rewritten, where it came from.
  std::array<Zone, kMax> customer;
  /// Fragments that the parser has found and `Fragments` (src/fragments) has not seen, bits by
  /// place in the burst.
  std::uint64_t fragments = 0;
  std::array<std::uint16_t, kMax> shard;  ///< valid for packets in a lane, if shards move
  std::array<Headers, kMax> headers;
  std::array<Signal, kMax> signal;  ///< valid for packets in a lane
  std::array<Verdict, kMax> verdict;
  /// Packets, bits by place in the burst, that leave for the next hop that a function has chosen.
  /// The other packets are routed by their destination.
  std::uint64_t has_next_hop = 0;
  std::array<AddressV4, kMax> next_hop_v4;  ///< valid for IPv4 packets in `has_next_hop`
  std::array<AddressV6, kMax> next_hop_v6;  ///< valid for IPv6 packets in `has_next_hop`
  /// Packets, bits by place in the burst, with an MSS option to be lowered to `mss` bytes if it is
  /// larger (RFC 9293, 3.7.1).
  std::uint64_t has_mss = 0;
  std::array<std::uint16_t, kMax> mss;
  Lane<KeyV4> v4;
  Lane<KeyV6> v6;
  /// ICMP errors that quote a packet which can be read. The key of an error is that of the quoted
  /// packet, reversed: the key of packets that go the same way as the error.
  Lane<KeyV4> quoted_v4;
  Lane<KeyV6> quoted_v6;

  /// Makes the burst empty.
  void clear() {
    size = 0;
    of_host = has_next_hop = has_mss = from_customer = to_customer = 0;
    again = came_again = hopped = deferred = 0;
    clear_parsed();
  }
  /// Removes what the parser has written for the burst as a whole.
  void clear_parsed() {
    fragments = 0;
    v4.size = v6.size = quoted_v4.size = quoted_v6.size = 0;
  }

  template <class K>
  Lane<K>& lane() {
    return of_family<K>(v4, v6);
  }
  /// Sets the next hop of the packet at place `packet` in the burst, which is of `A`'s family.
  template <class A>
  void send_by(unsigned packet, const A& next_hop) {
    has_next_hop |= std::uint64_t{1} << packet;
    next_hops<A>()[packet] = next_hop;
  }
  /// Sends the packet at place `packet` in the burst to a customer; 0: to no customer.
  void send_to(unsigned packet, Zone to) {
    const std::uint64_t bit = std::uint64_t{1} << packet;
    from_customer &= ~bit;
    to_customer = to == 0 ? to_customer & ~bit : to_customer | bit;
    customer[packet] = to;
  }
  /// Returns the packet's customer, by `customer`; 0: none.
  Zone customer_of(unsigned packet) const {
    return ((from_customer | to_customer) >> packet & 1) != 0 ? customer[packet] : 0;
  }
  void limit_mss(unsigned packet, std::uint16_t bytes) {
    has_mss |= std::uint64_t{1} << packet;
    mss[packet] = bytes;
  }
  template <class A>
  std::array<A, kMax>& next_hops() {
    return of_family<A>(next_hop_v4, next_hop_v6);
  }
  template <class K>
  Lane<K>& quoted() {
    return of_family<K>(quoted_v4, quoted_v6);
  }
};

/// Returns all packets, bits by place in the burst.
inline std::uint64_t all_of(const Burst& burst) { return bits_below(burst.size); }

/// True if all packets have the verdict of the first one, as in most bursts.
inline bool has_one_verdict(const Burst& burst) {
  unsigned others = 0;
  for (unsigned i = 0; i < burst.size; ++i) others += burst.verdict[i] != burst.verdict[0];
  return others == 0;
}

/// Removes the packets in `out` (bits by place in the burst) from all lanes. The burst keeps them.
void unfile(Burst& burst, std::uint64_t out);

/// Removes the packets in `out` (bits by place in the burst) from a burst whose keys have not been
/// looked up. The remaining packets keep their order. Moves the columns that the port and the
/// parser write, and hashes; the other columns are not written yet.
void take_out(Burst& burst, std::uint64_t out);

/// Does so for a burst that has been served but not routed, and moves what functions and the line
/// have written, too.
void take_out_served(Burst& burst, std::uint64_t out);

/// Copies the packets in `again` (bits by place in the burst) of such a burst to `to`, which is
/// empty, as if they had come and been parsed: with the keys with which they leave, of nobody's
/// customer or host.
void bring_again(const Burst& burst, std::uint64_t again, Burst& to);

/// Moves the packets behind the first `count` of such a burst, which has no hashes yet, to `tail`,
/// which is empty. `tail` gets the burst's time, too.
void split_off(Burst& burst, unsigned count, Burst& tail);

}  // namespace millrace
