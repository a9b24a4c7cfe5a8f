#include "host/tcp_reset.h"

#include <algorithm>
#include <cstring>

#include "core/protocol.h"
#include "host/addresses_of.h"
#include "host/hop_limit.h"
#include "parse/bytes.h"
#include "parse/checksum.h"
#include "parse/ip.h"
#include "parse/signal.h"

namespace millrace {

template <class K>
void write_reset(std::byte* to, const Reset<K>& reset) {
  using detail::big_endian;
  using detail::store;
  using A = typename K::Address;
  using Ip = detail::IpOf<K>;
  const K& key = reset.key;
  std::fill_n(to, kResetBytes<A>, std::byte{});
  if constexpr (A::kBytes == 4) {
    to[0] = std::byte{0x45};
    store(to + 2, big_endian(std::uint16_t{kResetBytes<A>}));
    // Don't Fragment is set, so the identification may be 0 (RFC 6864).
    to[6] = std::byte{0x40};
    to[8] = std::byte{kFirstHopLimit};
    to[9] = std::byte{kProtocolTcp};
  } else {
    to[0] = std::byte{0x60};
    store(to + 4, big_endian(std::uint16_t{detail::kTcpHeader}));
    to[6] = std::byte{kProtocolTcp};
    to[7] = std::byte{kFirstHopLimit};
  }
  std::memcpy(to + Ip::kSource, key.source.bytes.data(), A::kBytes);
  std::memcpy(to + Ip::kSource + A::kBytes, key.destination.bytes.data(), A::kBytes);
  if constexpr (A::kBytes == 4) store(to + 10, internet_checksum({to, Ip::kHeader}));

  std::byte* const tcp = to + Ip::kHeader;
  store(tcp, big_endian(key.source_port));
  store(tcp + 2, big_endian(key.destination_port));
  store(tcp + 4, big_endian(reset.sequence));
  store(tcp + 8, big_endian(reset.acknowledged.value_or(0)));
  tcp[12] = std::byte{detail::kTcpHeader / 4 << 4};
  tcp[detail::kTcpFlags] =
      static_cast<std::byte>(detail::kRst | (reset.acknowledged ? detail::kAck : 0));
  const std::uint64_t sum =
      pseudo_header_sum(key.source, key.destination, kProtocolTcp, detail::kTcpHeader);
  store(tcp + 16, internet_checksum({tcp, detail::kTcpHeader}, sum));
}

template <class K>
std::optional<Reset<K>> answering_reset(const std::byte* packet, const Headers& headers) {
  using A = typename K::Address;
  const Segment segment = read_segment(packet, headers);
  if (!segment.is_whole || read_signal(packet, headers) == Signal::rst) return std::nullopt;
  const std::byte* const tcp = packet + headers.l4;
  const K key{.source = destination_of<A>(packet, headers),
              .destination = source_of<A>(packet, headers),
              .source_port = detail::u16(tcp + 2),
              .destination_port = detail::u16(tcp),
              .protocol = kProtocolTcp};
  if (segment.acknowledges) return Reset<K>{key, segment.acknowledged, std::nullopt};
  return Reset<K>{key, 0, segment.next};
}

template void write_reset(std::byte*, const Reset<KeyV4>&);
template void write_reset(std::byte*, const Reset<KeyV6>&);
template std::optional<Reset<KeyV4>> answering_reset(const std::byte*, const Headers&);
template std::optional<Reset<KeyV6>> answering_reset(const std::byte*, const Headers&);

}  // namespace millrace
