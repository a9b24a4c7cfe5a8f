#include "host/tunnels.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "core/protocol.h"
#include "core/vlan_tag.h"
#include "host/addresses_of.h"
#include "host/ethernet.h"
#include "host/hop_limit.h"
#include "host/ingress.h"
#include "parse/bytes.h"
#include "parse/checksum.h"

namespace millrace {
namespace {

// Fields of GRE's first word (RFC 2784, 2; RFC 2890, 2). A packet with one of `kNotRead` set is of
// an older GRE, or of another version, and must be dropped; other reserved bits are ignored.
constexpr unsigned kHasChecksum = 0x8000;
constexpr unsigned kHasKey = 0x2000;
constexpr unsigned kHasSequence = 0x1000;
constexpr unsigned kNotRead = 0x4c07;

constexpr unsigned kEcn = 3;  // bits of a traffic class (RFC 3168, 5)
constexpr unsigned kNotCapable = 0;
constexpr unsigned kEct1 = 1;
constexpr unsigned kEct0 = 2;
constexpr unsigned kCongested = 3;

struct Gre {
  unsigned bytes = 0;  // of the header
  std::optional<std::uint32_t> key;
};

/// Reads the GRE header of a packet with IPv4 inside, `length` bytes with its payload; none if it
/// is not one that is unwrapped.
std::optional<Gre> read_gre(const std::byte* at, unsigned length) {
  if (length < 4) return std::nullopt;
  const unsigned flags = detail::u16(at);
  if ((flags & kNotRead) != 0 || detail::u16(at + 2) != kEtherTypeV4) return std::nullopt;
  Gre is{.bytes = 4U + ((flags & kHasChecksum) != 0 ? 4 : 0) + ((flags & kHasKey) != 0 ? 4 : 0) +
                  ((flags & kHasSequence) != 0 ? 4 : 0),
         .key = {}};
  if (length < is.bytes) return std::nullopt;
  if ((flags & kHasChecksum) != 0 && internet_checksum({at, length}) != 0) return std::nullopt;
  if ((flags & kHasKey) != 0) is.key = detail::u32(at + ((flags & kHasChecksum) != 0 ? 8 : 4));
  return is;
}

/// Sets the traffic class of an IPv4 header, and updates its checksum.
void set_traffic_class(std::byte* ip, unsigned value) {
  Difference difference;
  const auto was = detail::load<std::uint16_t>(ip);
  ip[1] = static_cast<std::byte>(value);
  difference.replace(was, detail::load<std::uint16_t>(ip));
  detail::store(ip + 10, difference.apply_to(detail::load<std::uint16_t>(ip + 10)));
}

/// Passes congestion that the outer header tells on to the inner packet. False: the packet must be
/// dropped instead, as its ends do not understand that (RFC 6040, 4.2).
bool pass_congestion_on(std::byte* inner, unsigned outer_class) {
  const unsigned outer = outer_class & kEcn;
  if (outer != kCongested && outer != kEct1) [[likely]]
    return true;
  const unsigned is = detail::u8(inner + 1);
  const unsigned ecn = is & kEcn;
  if (outer == kCongested && ecn == kNotCapable) return false;
  if (outer == kCongested || ecn == kEct0) set_traffic_class(inner, (is & ~kEcn) | outer);
  return true;
}

}  // namespace

Tunnels::Tunnels(std::shared_ptr<const Customers> customers, std::span<const End> ends)
    : customers_(std::move(customers)) {
  if (customers_ == nullptr || customers_->empty()) return;
  for (const End& end : ends) on(end.link) = {Kind::tunnels, end};
  for (const CustomerGroup& group : customers_->groups()) {
    if (!group.vlans.is_empty()) on(group.link).kind = Kind::vlans;
  }
}

auto Tunnels::on(unsigned link) -> OnLink& {
  if (by_link_.size() <= link) by_link_.resize(link + 1);
  return by_link_[link];
}

// --- unwrapping

bool Tunnels::unwrap(Burst& burst, unsigned i, const End& end) const {
  std::byte* const frame = burst.data[i];
  const unsigned length = burst.length[i];
  if (length < kEthernetHeader + kIp) return false;
  std::byte* const ip = frame + kEthernetHeader;
  const bool is_plain = detail::u16(frame + 12) == kEtherTypeV4 && detail::u8(ip) == 0x45 &&
                        detail::u8(ip + 9) == kProtocolGre && (detail::u16(ip + 6) & 0x3fff) == 0 &&
                        address_at<AddressV4>(ip + 16) == end.address;
  if (!is_plain) return false;
  if (end.has_neighbours && (std::memcmp(frame, end.mac.bytes.data(), end.mac.bytes.size()) != 0 ||
                             internet_checksum({ip, kIp}) != 0))
    return false;
  const unsigned total = detail::u16(ip + 2);
  if (total < kIp || total > length - kEthernetHeader) return false;
  const auto gre = read_gre(ip + kIp, total - kIp);
  if (!gre) return false;
  const Zone customer = customers_->find(end.link, address_at<AddressV4>(ip + 12), gre->key);
  std::byte* const inner = ip + kIp + gre->bytes;
  const unsigned bytes = total - kIp - gre->bytes;
  if (customer == 0 || bytes < kIp || !pass_congestion_on(inner, detail::u8(ip + 1))) return false;
  std::array<std::byte, kEthernetHeader> ethernet;
  std::memcpy(ethernet.data(), frame, kEthernetHeader);
  std::memcpy(inner - kEthernetHeader, ethernet.data(), kEthernetHeader);
  burst.data[i] = inner - kEthernetHeader;
  burst.length[i] = static_cast<std::uint16_t>(bytes + kEthernetHeader);
  burst.wire_length[i] = burst.length[i];
  burst.customer[i] = customer;
  burst.from_customer |= std::uint64_t{1} << i;
  return true;
}

/// Takes off the tag of a customer's VLAN.
void Tunnels::unwrap_vlan(Burst& burst, unsigned i, unsigned link) const {
  const Zone customer = customers_->find(link, vlan_of({burst.data[i], burst.length[i]}));
  if (customer == 0) return;
  take_tag(burst.data[i]);
  burst.data[i] += kVlanTagBytes;
  burst.length[i] = static_cast<std::uint16_t>(burst.length[i] - kVlanTagBytes);
  burst.wire_length[i] -= kVlanTagBytes;
  burst.customer[i] = customer;
  burst.from_customer |= std::uint64_t{1} << i;
}

void Tunnels::unwrap(Burst& burst, const Arrival& arrival) const {
  const Kind kind = arrival.is_foreign ? Kind::none : kind_on(arrival.link);
  if (kind == Kind::vlans) {
    for (unsigned i = arrival.begin; i < arrival.end; ++i) unwrap_vlan(burst, i, arrival.link);
  } else if (kind == Kind::tunnels) {
    const End& end = by_link_[arrival.link].end;
    for (unsigned i = arrival.begin; i < arrival.end; ++i) unwrap(burst, i, end);
  }
}

/// Returns why a frame on a link with customers in VLANs is dropped; `tracked` if it is not.
Verdict Tunnels::verdict_in_vlans(const Burst& burst, unsigned i) {
  if ((burst.from_customer >> i & 1) == 0) return Verdict::foreign_vlan;
  const bool is_v6 = burst.headers[i].family == 6 && !is_drop(burst.verdict[i]);
  return is_v6 ? Verdict::untranslated : Verdict::tracked;
}

/// Returns why a packet was not unwrapped; `tracked` if it is of no tunnel.
Verdict Tunnels::verdict_on(const Burst& burst, unsigned i, const End& end) const {
  const Headers& headers = burst.headers[i];
  if ((burst.from_customer >> i & 1) != 0 || is_drop(burst.verdict[i]) || headers.family != 4)
    return Verdict::tracked;
  const std::byte* const ip = burst.data[i] + headers.l3;
  if (detail::u8(ip + 9) != kProtocolGre || address_at<AddressV4>(ip + 16) != end.address)
    return Verdict::tracked;
  if ((detail::u16(ip + 6) & 0x3fff) != 0) return Verdict::tunnel_fragment;
  const auto gre = read_gre(burst.data[i] + headers.l4, headers.l4_end - headers.l4);
  const auto far = address_at<AddressV4>(ip + 12);
  const bool is_customer = gre && customers_->find(end.link, far, gre->key) != 0;
  return !gre || is_customer ? Verdict::bad_tunnel : Verdict::no_customer;
}

void Tunnels::file(Burst& burst, std::span<const Arrival> arrivals) const {
  const auto set_zones = [&burst](auto& lane) {
    for (unsigned i = 0; i < lane.size; ++i) {
      const unsigned packet = lane.packet[i];
      if ((burst.from_customer >> packet & 1) != 0) lane.key[i].set_zone(burst.customer[packet]);
    }
  };
  if (burst.from_customer != 0) {
    set_zones(burst.v4);
    set_zones(burst.quoted_v4);
  }
  std::uint64_t dropped = 0;
  for (const Arrival& arrival : arrivals) {
    const Kind kind = kind_on(arrival.link);
    if (kind == Kind::none) continue;
    for (unsigned i = arrival.begin; i < arrival.end; ++i) {
      const Verdict verdict = kind == Kind::vlans
                                  ? verdict_in_vlans(burst, i)
                                  : verdict_on(burst, i, by_link_[arrival.link].end);
      if (verdict == Verdict::tracked) continue;
      burst.verdict[i] = verdict;
      dropped |= std::uint64_t{1} << i;
    }
  }
  unfile(burst, dropped);
}

// --- wrapping

void Tunnels::wrap(Outgoing& frame, const Customers::Access& access) const {
  if (access.vlan != 0) {
    frame.data -= kVlanTagBytes;
    frame.length = static_cast<std::uint16_t>(frame.length + kVlanTagBytes);
    detail::store(frame.data + kEthernetHeader,
                  detail::big_endian<std::uint32_t>(access.vlan << 16 | kEtherTypeV4));
    return;
  }
  const unsigned more = overhead(access);
  const std::byte* const inner = frame.data + kEthernetHeader;
  std::byte* const ip = frame.data + kEthernetHeader - more;
  const auto total = static_cast<std::uint16_t>(frame.length - kEthernetHeader + more);
  std::array<std::byte, kIp> header{};
  header[0] = std::byte{0x45};
  header[1] = inner[1];
  detail::store(&header[2], detail::big_endian(total));
  header[6] = std::byte{0x40};  // DF: with it, RFC 6864 lets the identification be 0
  header[8] = std::byte{kFirstHopLimit};
  header[9] = std::byte{kProtocolGre};
  std::memcpy(&header[12], by_link_[access.link].end.address.bytes.data(), AddressV4::kBytes);
  std::memcpy(&header[16], access.end.bytes.data(), AddressV4::kBytes);
  detail::store(&header[10], internet_checksum(header));
  std::memcpy(ip, header.data(), kIp);
  const std::uint32_t flags = access.key ? kHasKey << 16 : 0;
  detail::store(ip + kIp, detail::big_endian<std::uint32_t>(flags | kEtherTypeV4));
  if (access.key) detail::store(ip + kIp + kGre, detail::big_endian<std::uint32_t>(*access.key));
  frame.data -= more;
  frame.length = static_cast<std::uint16_t>(frame.length + more);
}

}  // namespace millrace
