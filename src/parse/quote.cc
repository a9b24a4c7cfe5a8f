#include "parse/quote.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/protocol.h"
#include "parse/ip.h"

namespace millrace {
namespace {

using detail::Packet;

/// Number of bytes of an ICMP message before the quote.
constexpr unsigned kIcmpHeader = 8;
/// Offset of an ICMP message's checksum.
constexpr unsigned kIcmpChecksum = 2;

/// Returns the end of the quoted packet. Some messages state the quote's length, and extensions
/// follow the quote (RFC 4884, 4).
template <class Ip>
unsigned quote_end(Packet packet, const Headers& headers) {
  constexpr bool kV4 = Ip::kFamily == 4;
  constexpr std::uint64_t kSaySo = kV4 ? detail::bits({3, 11, 12}) : detail::bits({1, 3});
  if (!detail::contains(kSaySo, packet.u8(headers.l4))) return headers.l4_end;
  const unsigned bytes = kV4 ? packet.u8(headers.l4 + 5) * 4U : packet.u8(headers.l4 + 4) * 8U;
  if (bytes == 0) return headers.l4_end;
  return std::min<unsigned>(headers.l4 + kIcmpHeader + bytes, headers.l4_end);
}

/// A copy of some words of a packet, to be compared with the packet after it has been rewritten.
class Before {
 public:
  Before(const std::byte* at, unsigned bytes) : at_(at), bytes_(bytes & ~1U) {
    std::memcpy(was_.data(), at, bytes_);
  }
  void compare(Difference& difference) const {
    for (unsigned i = 0; i < bytes_; i += 2) {
      const auto was = detail::load<std::uint16_t>(was_.data() + i);
      const auto is = detail::load<std::uint16_t>(at_ + i);
      if (was != is) difference.replace(was, is);
    }
  }

 private:
  const std::byte* at_;
  unsigned bytes_;
  std::array<std::byte, detail::Ipv6::kHeader> was_;
};
static_assert(kTransportBytes <= detail::Ipv6::kHeader);

}  // namespace

template <class K>
std::optional<Quote<K>> read_quote(const std::byte* packet, const Headers& headers) {
  using Ip = detail::IpOf<K>;
  if (headers.l4 + kIcmpHeader > headers.l4_end) return std::nullopt;
  const unsigned end = quote_end<Ip>({packet, headers.l4_end}, headers);
  Quote<K> quote;
  const Verdict verdict =
      detail::parse_ip<Ip>({packet, end}, headers.l4 + kIcmpHeader, quote.headers, quote.key);
  // A quoted first fragment has the verdict `fragment`, too.
  const bool has_key = verdict == Verdict::tracked || (verdict == Verdict::fragment &&
                                                       quote.headers.protocol != kProtocolFragment);
  const std::byte* destination = packet + headers.l3 + Ip::kSource + K::Address::kBytes;
  if (!has_key || std::memcmp(&quote.key.source, destination, K::Address::kBytes) != 0)
    return std::nullopt;
  return quote;
}

template <class K>
bool has_wrong_checksum(const std::byte* packet, const Headers& headers) {
  const unsigned bytes = detail::datagram_bytes(packet, headers);
  if (bytes == 0 || headers.l4 + bytes > headers.l4_end) return false;
  std::uint64_t sum = 0;
  if constexpr (K::Address::kBytes != 4) {
    typename K::Address ends[2];
    std::memcpy(ends, packet + headers.l3 + detail::IpOf<K>::kSource, sizeof(ends));
    sum = pseudo_header_sum(ends[0], ends[1], kProtocolIcmpV6, bytes);
  }
  return internet_checksum({packet + headers.l4, bytes}, sum) != 0;
}

template <class K>
void rewrite_quote(std::byte* packet, const Headers& headers, const Quote<K>& quote, const K& is) {
  const Headers& quoted = quote.headers;
  const Before ip(packet + quoted.l3, detail::IpOf<K>::kHeader);
  const unsigned there = quoted.l4_end - quoted.l4;
  const Before transport(packet + quoted.l4, std::min(there, kTransportBytes));
  rewrite(packet, quoted, quote.key, is);
  Difference difference;
  ip.compare(difference);
  transport.compare(difference);
  detail::update_checksum(packet + headers.l4 + kIcmpChecksum, difference);
}

template <class K>
bool rewrite_error(std::byte* packet, const Headers& headers, const K& was, const K& is) {
  const auto quote = read_quote<K>(packet, headers);
  if (!quote) return false;
  rewrite_quote(packet, headers, *quote, reversed(is));
  K ends = was;
  ends.source = is.source;
  ends.destination = is.destination;
  rewrite(packet, headers, was, ends);
  return true;
}

template std::optional<Quote<KeyV4>> read_quote(const std::byte*, const Headers&);
template std::optional<Quote<KeyV6>> read_quote(const std::byte*, const Headers&);
template bool has_wrong_checksum<KeyV4>(const std::byte*, const Headers&);
template bool has_wrong_checksum<KeyV6>(const std::byte*, const Headers&);
template void rewrite_quote(std::byte*, const Headers&, const Quote<KeyV4>&, const KeyV4&);
template void rewrite_quote(std::byte*, const Headers&, const Quote<KeyV6>&, const KeyV6&);
template bool rewrite_error(std::byte*, const Headers&, const KeyV4&, const KeyV4&);
template bool rewrite_error(std::byte*, const Headers&, const KeyV6&, const KeyV6&);

}  // namespace millrace
