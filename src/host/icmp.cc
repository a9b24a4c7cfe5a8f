#include "host/icmp.h"

#include <algorithm>
#include <cstring>

#include "core/protocol.h"
#include "host/addresses_of.h"
#include "host/hop_limit.h"
#include "parse/bytes.h"
#include "parse/checksum.h"
#include "parse/ip.h"

namespace millrace {
namespace {

using detail::big_endian;
using detail::Ipv4;
using detail::Ipv6;
using detail::load;
using detail::store;
using detail::u16;
using detail::u8;

struct TypeAndCode {
  std::uint8_t type;
  std::uint8_t code;
};

constexpr TypeAndCode message(IcmpError error, bool v4) {
  switch (error) {
    case IcmpError::hop_limit:
      return v4 ? TypeAndCode{11, 0} : TypeAndCode{3, 0};
    case IcmpError::too_big:
      return v4 ? TypeAndCode{3, 4} : TypeAndCode{2, 0};
    case IcmpError::no_route:
      return v4 ? TypeAndCode{3, 0} : TypeAndCode{1, 0};
    case IcmpError::host_unreachable:
      return v4 ? TypeAndCode{3, 1} : TypeAndCode{1, 3};
    case IcmpError::port_unreachable:
      return v4 ? TypeAndCode{3, 3} : TypeAndCode{1, 4};
    case IcmpError::prohibited:
      return v4 ? TypeAndCode{3, 13} : TypeAndCode{1, 1};
  }
  return {};
}

}  // namespace

template <class A>
bool may_answer_with_error(std::span<const std::byte> packet, const Headers& headers) {
  using Ip = std::conditional_t<A::kBytes == 4, Ipv4, Ipv6>;
  if (!is_one_host(source_of<A>(packet.data(), headers)) ||
      !is_one_host(destination_of<A>(packet.data(), headers)))
    return false;
  if (headers.protocol == kProtocolFragment) return false;  // the first fragment got the error
  if (headers.protocol != Ip::kControl) return true;
  if (headers.l4 >= headers.l4_end) return false;
  return Ip::message(u8(packet.data() + headers.l4)) == detail::Message::query;
}

template <class A>
unsigned write_icmp_error(std::byte* to, IcmpError error, const A& source,
                          std::span<const std::byte> about, unsigned mtu) {
  constexpr bool kV4 = A::kBytes == 4;
  using Ip = std::conditional_t<kV4, Ipv4, Ipv6>;
  constexpr unsigned kBefore = Ip::kHeader + 8;
  const auto quoted =
      static_cast<unsigned>(std::min<std::size_t>(about.size(), kIcmpErrorBytes<A> - kBefore));
  const unsigned bytes = kBefore + quoted;
  const A destination = address_at<A>(about.data() + Ip::kSource);
  std::fill_n(to, kBefore, std::byte{});
  if constexpr (kV4) {
    to[0] = std::byte{0x45};
    to[1] = std::byte{0xc0};  // internetwork control (RFC 1812, 4.3.2.5)
    store(to + 2, big_endian(static_cast<std::uint16_t>(bytes)));
    to[8] = std::byte{kFirstHopLimit};
    to[9] = std::byte{kProtocolIcmp};
  } else {
    to[0] = std::byte{0x60};
    store(to + 4, big_endian(static_cast<std::uint16_t>(bytes - Ip::kHeader)));
    to[6] = std::byte{kProtocolIcmpV6};
    to[7] = std::byte{kFirstHopLimit};
  }
  std::memcpy(to + Ip::kSource, source.bytes.data(), A::kBytes);
  std::memcpy(to + Ip::kSource + A::kBytes, destination.bytes.data(), A::kBytes);
  if constexpr (kV4) store(to + 10, internet_checksum({to, Ip::kHeader}));

  std::byte* const icmp = to + Ip::kHeader;
  const auto [type, code] = message(error, kV4);
  icmp[0] = std::byte{type};
  icmp[1] = std::byte{code};
  if (error == IcmpError::too_big) store(icmp + 6, big_endian(static_cast<std::uint16_t>(mtu)));
  std::memcpy(to + kBefore, about.data(), quoted);
  const unsigned length = 8 + quoted;
  const std::uint64_t sum =
      kV4 ? 0 : pseudo_header_sum(source, destination, kProtocolIcmpV6, length);
  store(icmp + 2, internet_checksum({icmp, length}, sum));
  return bytes;
}

bool is_echo_request(const std::byte* packet, const Headers& headers) {
  if (headers.l4_end - headers.l4 < 8) return false;
  const unsigned type = u8(packet + headers.l4);
  return (headers.family == 4 && headers.protocol == kProtocolIcmp && type == 8) ||
         (headers.family == 6 && headers.protocol == kProtocolIcmpV6 && type == 128);
}

void swap_ends(std::byte* packet, const Headers& headers) {
  const bool v4 = headers.family == 4;
  const unsigned bytes = v4 ? AddressV4::kBytes : AddressV6::kBytes;
  std::byte* const source = packet + headers.l3 + (v4 ? Ipv4::kSource : Ipv6::kSource);
  std::swap_ranges(source, source + bytes, source + bytes);
  set_hop_limit(packet, headers, kFirstHopLimit);
}

void make_echo_reply(std::byte* packet, const Headers& headers) {
  const bool v4 = headers.family == 4;
  swap_ends(packet, headers);
  std::byte* const icmp = packet + headers.l4;
  const auto was = load<std::uint16_t>(icmp);
  icmp[0] = std::byte{v4 ? std::uint8_t{0} : std::uint8_t{129}};
  Difference difference;
  difference.replace(was, load<std::uint16_t>(icmp));
  store(icmp + 2, difference.apply_to(load<std::uint16_t>(icmp + 2)));
}

template bool may_answer_with_error<AddressV4>(std::span<const std::byte>, const Headers&);
template bool may_answer_with_error<AddressV6>(std::span<const std::byte>, const Headers&);
template unsigned write_icmp_error(std::byte*, IcmpError, const AddressV4&,
                                   std::span<const std::byte>, unsigned);
template unsigned write_icmp_error(std::byte*, IcmpError, const AddressV6&,
                                   std::span<const std::byte>, unsigned);

}  // namespace millrace
