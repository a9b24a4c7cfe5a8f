#include "host/ingress.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <initializer_list>
#include <span>

#include "host/addresses_of.h"
#include "host/ethernet.h"
#include "parse/checksum.h"
#include "parse/link.h"

namespace millrace {
namespace {

template <class A>
std::vector<A> own_sources(const HostTables<A>& tables) {
  std::vector<A> all = local_addresses(tables.addresses);
  const auto broadcasts = broadcasts_of(tables.addresses);
  all.insert(all.end(), broadcasts.begin(), broadcasts.end());
  return all;
}

/// Returns these addresses of all links, also those with customers in VLANs.
template <class A>
std::vector<A> own_sources_everywhere(const HostTables<A>& tables) {
  std::vector<A> all = own_sources(tables);
  HostAddresses<A> more;
  more.own = tables.addresses.of_customers.own;
  for (const auto& own : more.own) all.push_back(own.address);
  const auto broadcasts = broadcasts_of(more);
  all.insert(all.end(), broadcasts.begin(), broadcasts.end());
  return all;
}

/// Mask of the first six of eight bytes.
constexpr std::uint64_t kMacBytes =
    std::bit_cast<std::uint64_t>(std::array<std::uint8_t, 8>{255, 255, 255, 255, 255, 255});

/// Headers of a packet without tags, options or extension headers.
constexpr Headers plain_headers(std::uint8_t family, std::uint16_t header) {
  return {.l3 = kEthernetHeader,
          .l4 = static_cast<std::uint16_t>(kEthernetHeader + header),
          .family = family};
}
std::uint64_t word_of(const Headers& headers) {
  std::uint64_t word;  // GCC 12 does not vectorise std::bit_cast
  std::memcpy(&word, &headers, sizeof(word));
  return word;
}
constexpr auto kPlainMask = std::bit_cast<std::uint64_t>(
    Headers{.l3 = 0xffff, .l4 = 0xffff, .l4_end = 0, .family = 0xff, .protocol = 0});
template <class A>
constexpr auto kPlain =
    std::bit_cast<std::uint64_t>(plain_headers(A::kBytes == 4 ? 4 : 6, A::kBytes == 4 ? 20 : 40));
/// Offsets in a packet with plain headers.
template <class A>
constexpr unsigned kSourceAt = kEthernetHeader + detail::IpOf<Key<A>>::kSource;
constexpr unsigned kFragmentAt = kEthernetHeader + 6;
constexpr auto kFragmentBits =
    std::bit_cast<std::uint32_t>(std::array<std::uint8_t, 4>{0x3f, 0xff});

/// Returns why a port refuses a frame without the tag of its own VLAN, by what follows the MACs;
/// `tracked` if the port does not refuse the frame.
Verdict check_tags(std::span<const std::byte> frame, bool is_ip) {
  const unsigned at = ether_type_at(frame);
  if (frame.size() < at + 2) return Verdict::tracked;
  const unsigned type = detail::u16(frame.data() + at);
  if (type == detail::kVlan || type == detail::kServiceVlan || type == detail::kOldServiceVlan)
    return Verdict::foreign_vlan;
  const bool is_other = type == detail::kMpls || type == detail::kMplsUpstream ||
                        type == detail::kPppoeSession || type < detail::kMinEtherType;
  return is_ip && is_other ? Verdict::encapsulated : Verdict::tracked;
}

/// Returns a negative number if the frame does not hold a whole IP packet, or an IPv4 header states
/// the length 0.
template <class A>
int spare_bytes(const std::byte* frame, unsigned length) {
  const std::byte* const ip = frame + kEthernetHeader;
  if constexpr (A::kBytes == 4) {
    const int total = detail::u16(ip + 2);
    return (static_cast<int>(length - kEthernetHeader) - total) | (total - 1);
  } else {
    return static_cast<int>(length - kEthernetHeader - detail::IpOf<Key<A>>::kHeader) -
           detail::u16(ip + 4);
  }
}

/// True if the checksum of an IPv4 header without options is right (RFC 1071): the header's words
/// then add up to a multiple of 2^16 - 1, and so does the sum of 64-bit words with end-around
/// carry.
bool is_summed(const std::byte* ip) {
  std::uint64_t sum = detail::load<std::uint64_t>(ip);
  for (const std::uint64_t words :
       {detail::load<std::uint64_t>(ip + 8), std::uint64_t{detail::load<std::uint32_t>(ip + 16)}}) {
    const bool carry = __builtin_add_overflow(sum, words, &sum);
    sum += carry;
  }
  return sum % 0xffff == 0;
}

/// Returns why a parsed IP packet is not taken in although its headers can be read; `tracked` if it
/// is taken in. The parser accepts lengths that do not fit, as captures are cut short and segments
/// that a device has yet to split have length 0; packets on a wire must be whole.
Verdict check_header(detail::Packet frame, const Headers& headers) {
  const std::byte* const ip = frame.data + headers.l3;
  const unsigned length = frame.length - headers.l3;
  if (headers.family == 6)
    return detail::u16(ip + 4) + 40U > length ? Verdict::truncated : Verdict::tracked;
  const unsigned total = detail::u16(ip + 2);
  const unsigned header = (detail::u8(ip) & 15U) * 4;
  if (total == 0 || internet_checksum({ip, header}) != 0) return Verdict::malformed;
  return total > length ? Verdict::truncated : Verdict::tracked;
}

}  // namespace

// --- one family

template <class A>
IngressFor<A>::IngressFor(const HostTables<A>& tables)
    : tables_(&tables),
      sources_(own_sources(tables)),
      some_sources_(own_sources_everywhere(tables)),
      virtual_(tables.addresses.virtual_addresses) {}

/// True if a packet may have this source (RFC 1122, 3.2.1.3; RFC 1812, 5.3.7; RFC 4291, 2.5.2,
/// 2.5.3 and 2.7). A station without an address sends to groups and broadcast addresses only. As in
/// Linux, sources in the other ranges of RFC 6890 are taken in.
template <class A>
bool IngressFor<A>::may_send(const A& source, bool to_group, unsigned link) const {
  if (source == A{}) return to_group;
  if (!is_one_host(source) || sources_.contains(source)) return false;
  if (!some_sources_.contains(source)) return true;
  const Route<A>* const back = tables_->find(source, link);
  return back == nullptr || back->link < HostTables<A>::kGroup;
}

template <class A>
auto IngressFor<A>::judge(const A& source, const A& destination, const Headers& headers,
                          Verdict was, bool to_all, bool advertises, ReversePath reverse_path,
                          unsigned link) const -> Ruling {
  const Route<A>* const to = tables_->find(destination, link);
  const bool is_own = to != nullptr && to->link == HostTables<A>::kLocal;
  const bool to_group =
      is_group(destination) || (to != nullptr && to->link == HostTables<A>::kGroup);
  if (to_all && !to_group) return {Verdict::link_broadcast, true};
  // A station that has one of the host's addresses, too, sends its advertisements from that address
  // (RFC 4862, 5.4.4).
  if (advertises && is_group_of_link(destination) && sources_.contains(source)) return {was, true};
  // If packets to virtual addresses may pass, another machine may reply from such an address.
  const bool may_pass =
      tables_->addresses.passes && !is_own && !to_group && virtual_.contains(source);
  if (!may_pass && !may_send(source, to_group, link)) return {Verdict::martian_source, true};
  const Verdict unfiled = was == Verdict::tracked ? Verdict::no_service : was;
  if (reverse_path != ReversePath::off && source != A{} && !is_on_every_link(source)) {
    const auto& routes = may_pass ? tables_->beyond : tables_->routes;
    const Route<A>* const back = routes.find(source);
    if (back == nullptr || back->link >= HostTables<A>::kGroup ||
        (reverse_path == ReversePath::strict && back->link != link))
      return {Verdict::reverse_path, true};
  }
  if (to_group) return {unfiled, true};
  if (!is_own && (!is_one_host(destination) || is_on_every_link(destination)))
    return {Verdict::unroutable, true};
  if (!is_on_every_link(source)) return {was, false};
  // A packet from a link-local source is not forwarded (RFC 4291, 2.5.6): only a packet to one of
  // the host's own or virtual addresses is taken in.
  if (!is_own) return {Verdict::martian_source, true};
  if (!virtual_.contains(destination)) return {was, false};
  const bool may_be_answered = headers.protocol == kProtocolIcmpV6 && was != Verdict::icmp_error;
  return {may_be_answered || was == Verdict::fragment ? unfiled : Verdict::martian_source, true};
}

template class IngressFor<AddressV4>;
template class IngressFor<AddressV6>;

// --- both families

Ingress::Link::Link(const HostLink& link) : is(link) {
  std::array<std::uint8_t, 8> bytes{};
  std::ranges::copy(link.mac.bytes, bytes.begin());
  mac = std::bit_cast<std::uint64_t>(bytes);
  if (link.has_neighbours) mac_bytes = kMacBytes;
}

Ingress::Ingress(std::span<const HostLink> links, const HostTables<AddressV4>& v4,
                 const HostTables<AddressV6>& v6)
    : links_(links.begin(), links.end()),
      looks_at_destinations_(!v4.addresses.served.empty() || !v6.addresses.served.empty()),
      v4_(v4),
      v6_(v6) {}

/// True if all packets of `arrival` are of the family `A`, without tags, options, extension headers
/// and fragments, and need no further check, as in most bursts. Each column is read in one pass, so
/// that a packet costs few instructions.
template <class A>
bool Ingress::are_plain(const Burst& burst, const Arrival& arrival, const Link& link,
                        const IngressFor<A>& family) const {
  std::uint64_t headers = 0;
  for (unsigned i = arrival.begin; i < arrival.end; ++i)
    headers |= (word_of(burst.headers[i]) & kPlainMask) ^ kPlain<A>;
  if (headers != 0) return false;
  std::uint64_t some = 0;                 // bits set in at least one destination MAC
  std::uint64_t all = ~std::uint64_t{0};  // bits set in all destination MACs
  std::uint32_t fragments = 0;
  std::uint8_t odd = 0;
  int spare = 0;  // negative if `spare_bytes` of any packet is
  bool summed = true;
  for (unsigned i = arrival.begin; i < arrival.end; ++i) {
    const std::byte* const frame = burst.data[i];
    const auto mac = detail::load<std::uint64_t>(frame);
    some |= mac;
    all &= mac;
    if constexpr (A::kBytes == 4) fragments |= detail::load<std::uint32_t>(frame + kFragmentAt);
    spare |= spare_bytes<A>(frame, burst.length[i]);
    if constexpr (A::kBytes == 4) summed &= is_summed(frame + kEthernetHeader);
    const auto source = address_at<A>(frame + kSourceAt<A>);
    odd |= IngressFor<A>::odd_class(source);
    odd |= family.odd_source(source);
  }
  if (looks_at_destinations_) {
    for (unsigned i = arrival.begin; i < arrival.end; ++i)
      odd |= IngressFor<A>::odd_class(address_at<A>(burst.data[i] + kSourceAt<A> + A::kBytes));
  }
  return (((some ^ link.mac) | (all ^ link.mac)) & link.mac_bytes) == 0 &&
         (fragments & kFragmentBits) == 0 && odd == 0 &&
         ((spare >= 0 && summed) || !link.is.has_neighbours);
}

/// Does what `are_plain` does, for one packet.
inline bool Ingress::is_plain(const Burst& burst, unsigned i, const Link& link) const {
  const Arrival one{i, i + 1, 0};
  return burst.headers[i].family == 4 ? are_plain(burst, one, link, v4_)
                                      : are_plain(burst, one, link, v6_);
}

std::uint64_t Ingress::inspect(Burst& burst, const Arrival& arrival) const {
  if (arrival.is_foreign) [[unlikely]] {
    std::fill(burst.verdict.begin() + arrival.begin, burst.verdict.begin() + arrival.end,
              Verdict::foreign_vlan);
    return bits_below(arrival.end) & ~bits_below(arrival.begin);
  }
  const Link& link = links_[arrival.link];
  const bool is_any_plain = link.is.reverse_path == ReversePath::off;
  if (is_any_plain) [[likely]] {
    const bool v4 = burst.headers[arrival.begin].family == 4;
    if (v4 ? are_plain(burst, arrival, link, v4_) : are_plain(burst, arrival, link, v6_)) return 0;
  }
  std::uint64_t odd = 0;
  for (unsigned i = arrival.begin; i < arrival.end; ++i)
    odd |= std::uint64_t{!is_any_plain || !is_plain(burst, i, link)} << i;
  std::uint64_t unfiled = 0;
  for (; odd != 0; odd &= odd - 1)
    judge(burst, static_cast<unsigned>(std::countr_zero(odd)), link, arrival.link, unfiled);
  return unfiled;
}

void Ingress::judge(Burst& burst, unsigned i, const Link& link, unsigned number,
                    std::uint64_t& unfiled) const {
  const std::uint64_t bit = std::uint64_t{1} << i;
  const Headers& headers = burst.headers[i];
  const std::byte* const frame = burst.data[i];
  const auto unfile = [&](Verdict verdict) {
    burst.verdict[i] = verdict;
    unfiled |= bit;
  };
  bool to_all = false;
  if (link.is.has_neighbours && burst.length[i] >= kEthernetHeader) {
    to_all = (detail::u8(frame) & 1) != 0;
    if (!to_all && std::memcmp(frame, link.is.mac.bytes.data(), link.is.mac.bytes.size()) != 0)
      return unfile(Verdict::other_station);
    const Verdict tags = check_tags({frame, burst.length[i]}, headers.family != 0);
    if (tags != Verdict::tracked) return unfile(tags);
    const Verdict header =
        headers.family == 0 ? Verdict::tracked : check_header({frame, burst.length[i]}, headers);
    if (header != Verdict::tracked) {
      burst.headers[i] = {};  // as the parser does for this verdict
      return unfile(header);
    }
  }
  constexpr unsigned kAdvertisement = 136;  // neighbour advertisement (RFC 4861, 4.4)
  const bool advertises = headers.family == 6 && headers.protocol == kProtocolIcmpV6 &&
                          headers.l4 < headers.l4_end &&
                          detail::u8(frame + headers.l4) == kAdvertisement;
  const auto by_addresses = [&]<class A>(const IngressFor<A>& family) {
    const auto ruling = family.judge(
        source_of<A>(frame, headers), destination_of<A>(frame, headers), headers, burst.verdict[i],
        to_all, advertises,
        (burst.from_customer & bit) != 0 ? ReversePath::off : link.is.reverse_path, number);
    if (ruling.unfile) unfile(ruling.verdict);
  };
  if (headers.family == 4) by_addresses(v4_);
  if (headers.family == 6) by_addresses(v6_);
}

}  // namespace millrace
