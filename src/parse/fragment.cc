#include "parse/fragment.h"

#include <cstring>

#include "core/protocol.h"
#include "parse/ip.h"
#include "parse/packet.h"

namespace millrace {
namespace {

using namespace detail;

/// Returns the fragment header's offset; 0 if there is none before the transport header.
unsigned fragment_header(const std::byte* packet, const Headers& headers) {
  unsigned at = headers.l3 + Ipv6::kHeader;
  std::uint8_t protocol = u8(packet + headers.l3 + 6);
  while (at < headers.l4 && protocol != kProtocolFragment) {
    const unsigned bytes = extension_bytes(protocol, u8(packet + at + 1));
    protocol = u8(packet + at);
    at += bytes;
  }
  return at < headers.l4 ? at : 0;
}

}  // namespace

template <class A>
std::optional<Fragment<A>> read_fragment(const std::byte* packet, const Headers& headers) {
  using Ip = std::conditional_t<A::kBytes == 4, Ipv4, Ipv6>;
  const std::byte* const ip = packet + headers.l3;
  Fragment<A> fragment;
  Datagram<A>& datagram = fragment.datagram;
  unsigned payload = 0;  // offset of the fragment's part of the datagram
  if constexpr (A::kBytes == 4) {
    const unsigned field = u16(ip + 6);
    if ((field & Ip::kFragment) == 0) return std::nullopt;
    datagram.id = u16(ip + 4);
    datagram.protocol = u8(ip + 9);
    fragment.begin = (field & Ip::kOffset) * 8;
    fragment.is_last = (field & 0x2000) == 0;
    payload = headers.l3 + (u8(ip) & 15U) * 4;
  } else {
    const unsigned at = fragment_header(packet, headers);
    if (at == 0) return std::nullopt;
    const unsigned field = u16(packet + at + 2);
    if ((field & Ip::kFragment) == 0) return std::nullopt;
    datagram.id = u32(packet + at + 4);
    fragment.begin = field & Ip::kOffset;
    fragment.is_last = (field & 1) == 0;
    payload = at + 8;
  }
  const unsigned end = payload_end(packet, headers);
  fragment.end = fragment.begin + (end > payload ? end - payload : 0);
  std::memcpy(datagram.source.bytes.data(), ip + Ip::kSource, A::kBytes);
  std::memcpy(datagram.destination.bytes.data(), ip + Ip::kSource + A::kBytes, A::kBytes);
  return fragment;
}

template std::optional<Fragment<AddressV4>> read_fragment(const std::byte*, const Headers&);
template std::optional<Fragment<AddressV6>> read_fragment(const std::byte*, const Headers&);

}  // namespace millrace
