#include "host/tcp_reset.h"

#include <algorithm>
#include <cstring>

#include "core/protocol.h"
#include "host/addresses_of.h"
#include "host/own_packet.h"
#include "parse/bytes.h"
#include "parse/checksum.h"
#include "parse/ip.h"
#include "parse/signal.h"

namespace millrace {

template <class K>
void write_reset(std::byte* to, const Reset<K>& reset) {
  using detail::big_endian;
  using detail::store;
  const K& key = reset.key;
  std::byte* const tcp = write_ip_header(to, key, kProtocolTcp, detail::kTcpHeader);
  std::fill_n(tcp, std::size_t{detail::kTcpHeader}, std::byte{});
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
