#include "host/datagram.h"

#include <cstring>

#include "core/protocol.h"
#include "host/ethernet.h"
#include "host/own_packet.h"

namespace millrace {

namespace {
constexpr std::size_t kUdpHeader = 8;
}

template <class K>
void write_datagram(std::byte* to, const K& ends, std::span<const std::byte> payload) {
  using detail::big_endian;
  using detail::store;
  const auto length = static_cast<std::uint16_t>(kUdpHeader + payload.size());
  std::byte* const udp = write_ip_header(to, ends, kProtocolUdp, length);
  store(udp, big_endian(ends.source_port));
  store(udp + 2, big_endian(ends.destination_port));
  store(udp + 4, big_endian(length));
  store(udp + 6, std::uint16_t{0});
  if (!payload.empty()) std::memcpy(udp + kUdpHeader, payload.data(), payload.size());
  const std::uint64_t sum = pseudo_header_sum(ends.source, ends.destination, kProtocolUdp, length);
  const std::uint16_t checksum = internet_checksum({udp, length}, sum);
  store(udp + 6, checksum == 0 ? std::uint16_t{0xffff} : checksum);
}

std::optional<Headers> headers_of_datagram(std::span<const std::byte> frame) {
  constexpr std::size_t kLeast = kEthernetHeader + 20;
  if (frame.size() < kLeast) return std::nullopt;
  const unsigned version = detail::u8(frame.data() + kEthernetHeader) >> 4;
  const unsigned header =
      version == 4 ? (detail::u8(frame.data() + kEthernetHeader) & 15U) * 4 : 40;
  const unsigned protocol_at = kEthernetHeader + (version == 4 ? 9 : 6);
  const std::size_t l4 = kEthernetHeader + header;
  if ((version != 4 && version != 6) || l4 + kUdpHeader > frame.size() ||
      detail::u8(frame.data() + protocol_at) != kProtocolUdp)
    return std::nullopt;
  return Headers{.l3 = kEthernetHeader,
                 .l4 = static_cast<std::uint16_t>(l4),
                 .l4_end = static_cast<std::uint16_t>(frame.size()),
                 .family = static_cast<std::uint8_t>(version),
                 .protocol = kProtocolUdp};
}

std::optional<std::span<std::byte>> payload_of(std::span<std::byte> packet,
                                               const Headers& headers) {
  if (headers.protocol != kProtocolUdp || headers.l4 + kUdpHeader > packet.size())
    return std::nullopt;
  const std::size_t length = detail::u16(packet.data() + headers.l4 + 4);
  if (length < kUdpHeader || headers.l4 + length > packet.size()) return std::nullopt;
  return packet.subspan(headers.l4 + kUdpHeader, length - kUdpHeader);
}

template void write_datagram(std::byte*, const KeyV4&, std::span<const std::byte>);
template void write_datagram(std::byte*, const KeyV6&, std::span<const std::byte>);

}  // namespace millrace
