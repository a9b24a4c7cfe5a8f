#include "host/datagrams.h"

#include "parse/ip.h"

namespace millrace {
namespace {

/// Returns the fragment header's offset; 0 if there is none before the transport header.
unsigned fragment_header(const std::byte* packet, const Headers& headers) {
  unsigned at = headers.l3 + detail::Ipv6::kHeader;
  std::uint8_t protocol = detail::u8(packet + headers.l3 + 6);
  while (at < headers.l4 && protocol != kProtocolFragment) {
    const unsigned bytes = detail::extension_bytes(protocol, detail::u8(packet + at + 1));
    protocol = detail::u8(packet + at);
    at += bytes;
  }
  return at < headers.l4 ? at : 0;
}

}  // namespace

template <class A>
std::optional<Fragment<A>> read_fragment(const std::byte* packet, const Headers& headers) {
  Fragment<A> fragment{.datagram = {.source = source_of<A>(packet, headers),
                                    .destination = destination_of<A>(packet, headers)}};
  if constexpr (A::kBytes == 4) {
    const std::byte* const ip = packet + headers.l3;
    const unsigned field = detail::u16(ip + 6);
    if ((field & 0x3fff) == 0) return std::nullopt;
    fragment.datagram.id = detail::u16(ip + 4);
    fragment.datagram.protocol = detail::u8(ip + 9);
    fragment.is_first = (field & 0x1fff) == 0;
  } else {
    const unsigned at = fragment_header(packet, headers);
    if (at == 0 || (detail::u16(packet + at + 2) & 0xfff9) == 0) return std::nullopt;
    fragment.datagram.id = detail::u32(packet + at + 4);
    fragment.is_first = (detail::u16(packet + at + 2) & 0xfff8) == 0;
  }
  return fragment;
}

template std::optional<Fragment<AddressV4>> read_fragment(const std::byte*, const Headers&);
template std::optional<Fragment<AddressV6>> read_fragment(const std::byte*, const Headers&);

}  // namespace millrace
