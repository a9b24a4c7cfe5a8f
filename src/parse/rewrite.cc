#include "parse/rewrite.h"

#include <algorithm>
#include <bit>

#include "parse/tcp.h"

namespace millrace {
namespace {

// Polynomials over GF(2) in the reflected order of CRC32c: the coefficient of x^0 is the highest
// bit.
constexpr std::uint32_t kOne = 0x80000000;
constexpr std::uint32_t kPolynomial = 0x82f63b78;  // RFC 9260, appendix A

constexpr std::uint32_t times_x(std::uint32_t a) {
  return (a >> 1) ^ ((a & 1) != 0 ? kPolynomial : 0);
}

constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (std::uint32_t bit = kOne; bit != 0; bit >>= 1, b = times_x(b)) {
    if ((a & bit) != 0) product ^= b;
  }
  return product;
}

/// Element k is x^(8 * 2^k): the factor by which 2^k zero bytes multiply a CRC.
constexpr auto kZeroBytes = [] {
  std::array<std::uint32_t, 32> power{};
  power[0] = kOne >> 8;
  for (std::size_t k = 1; k < power.size(); ++k) power[k] = multiply(power[k - 1], power[k - 1]);
  return power;
}();

}  // namespace

std::uint32_t crc32c_difference(std::uint16_t change, std::uint32_t following) {
  std::uint32_t crc = change;
  if constexpr (std::endian::native == std::endian::big) {
    crc = (crc << 8 | crc >> 8) & 0xffff;
  }
  for (int bit = 0; bit < 16; ++bit) crc = times_x(crc);
  for (std::size_t k = 0; following != 0; ++k, following >>= 1) {
    if ((following & 1) != 0) crc = multiply(crc, kZeroBytes[k]);
  }
  return crc;
}

void detail::rewrite_sctp_port(End end, std::byte* packet, const Headers& headers,
                               std::uint16_t port) {
  constexpr unsigned kChecksum = 8;
  const unsigned place = end == End::source ? 0 : 2;
  std::byte* const sctp = packet + headers.l4;
  const std::uint16_t word = big_endian(port);
  const auto change = static_cast<std::uint16_t>(load<std::uint16_t>(sctp + place) ^ word);
  store(sctp + place, word);
  const unsigned bytes = datagram_bytes(packet, headers);
  if (change == 0 || bytes == 0 || headers.l4 + kChecksum + 4 > headers.l4_end) return;
  const std::uint32_t difference = crc32c_difference(change, bytes - place - 2);
  // The CRC lies little-endian in the packet (RFC 9260, appendix A).
  for (unsigned i = 0; i < 4; ++i) {
    sctp[kChecksum + i] ^= static_cast<std::byte>(difference >> (8 * i));
  }
}

void detail::rewrite_icmp_identifier(std::byte* packet, const Headers& headers,
                                     std::uint16_t identifier) {
  std::byte* const icmp = packet + headers.l4;
  Difference difference;
  replace_port(icmp + 4, identifier, difference);
  update_checksum(icmp + 2, difference);
}

/// Writes both ends. In an ICMP query, writes only the fields that differ: both ports are the
/// identifier, so a new identifier alone makes both ends look new.
template <class K>
void detail::rewrite_both(std::byte* packet, const Headers& headers, const K& was, const K& is) {
  if (headers.protocol != kProtocolIcmp && headers.protocol != kProtocolIcmpV6)
    return rewrite<K, true, true>(packet, headers, is);
  if (was.source != is.source) rewrite<K, true, false>(packet, headers, is);
  if (was.destination != is.destination) rewrite<K, false, true>(packet, headers, is);
  if (was.source_port != is.source_port) rewrite_icmp_identifier(packet, headers, is.source_port);
}
template void detail::rewrite_both(std::byte*, const Headers&, const KeyV4&, const KeyV4&);
template void detail::rewrite_both(std::byte*, const Headers&, const KeyV6&, const KeyV6&);

void clamp_mss(std::byte* packet, const Headers& headers, std::uint16_t mss) {
  constexpr unsigned kEnd = 0;
  constexpr unsigned kNothing = 1;
  constexpr unsigned kMss = 2;
  constexpr unsigned kHeader = 20;
  constexpr unsigned kChecksum = 16;
  std::byte* const tcp = packet + headers.l4;
  const unsigned there = headers.l4_end - headers.l4;
  if (headers.protocol != kProtocolTcp || there < kHeader ||
      (detail::u8(tcp + detail::kTcpFlags) & detail::kSyn) == 0)
    return;
  const unsigned end = std::min((detail::u8(tcp + 12) >> 4) * 4U, there);
  for (unsigned at = kHeader; at + 1 < end;) {
    const unsigned kind = detail::u8(tcp + at);
    const unsigned bytes = kind == kNothing ? 1 : detail::u8(tcp + at + 1);
    if (kind == kEnd || bytes == 0 || at + bytes > end) return;
    if (kind == kMss && bytes == 4) {
      if (detail::u16(tcp + at + 2) <= mss) return;
      // At an odd offset the option's two bytes belong to two checksum words.
      const auto was = detail::load<std::uint16_t>(tcp + at + 2);
      const auto is = detail::big_endian(mss);
      const bool is_odd = at % 2 != 0;
      Difference difference;
      difference.replace(is_odd ? std::byteswap(was) : was, is_odd ? std::byteswap(is) : is);
      detail::store(tcp + at + 2, is);
      return detail::update_checksum(tcp + kChecksum, difference);
    }
    at += bytes;
  }
}

void clamp_mss(Burst& burst) {
  for (std::uint64_t left = burst.has_mss; left != 0; left &= left - 1) {
    const auto packet = static_cast<unsigned>(std::countr_zero(left));
    clamp_mss(burst.data[packet], burst.headers[packet], burst.mss[packet]);
  }
}

template <class K>
void rewrite(Burst& burst) {
  const Lane<K>& lane = burst.lane<K>();
  const auto rewrite_one = [&](unsigned i) {
    const unsigned packet = lane.packet[i];
    std::byte* const data = burst.data[packet];
    const Headers& headers = burst.headers[packet];
    const auto changed = lane.changed[i];
    if ((changed & Lane<K>::kZone) != 0) burst.send_to(packet, lane.target[i].number_of_zone());
    switch (changed & ~Lane<K>::kZone) {
      case 0:
        break;
      case Lane<K>::kDestination:
        detail::rewrite<K, false, true>(data, headers, lane.target[i]);
        break;
      case Lane<K>::kSource:
        detail::rewrite<K, true, false>(data, headers, lane.target[i]);
        break;
      default:
        rewrite(data, headers, lane.key[i], lane.leaving(i));
    }
  };
  // Rewrites the originators' packets and then the replies: packets of one direction mostly change
  // in the same way, so branches are predicted.
  for_each_bit(lane.originators(), rewrite_one);
  for_each_bit(lane.all() & lane.replies, rewrite_one);
}
template void rewrite<KeyV4>(Burst&);
template void rewrite<KeyV6>(Burst&);

}  // namespace millrace
