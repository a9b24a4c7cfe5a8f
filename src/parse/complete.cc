#include "parse/complete.h"

#include "core/protocol.h"
#include "parse/bytes.h"
#include "parse/checksum.h"
#include "parse/rewrite.h"

namespace millrace {
namespace {

/// True for a fragment: its checksum covers the whole datagram, and so cannot be completed. An IPv6
/// fragment header behind another extension header is not found.
template <class K>
bool is_fragment(const std::byte* ip) {
  if (K::Address::kBytes == 4) return (detail::u16(ip + 6) & 0x3fff) != 0;
  return detail::u8(ip + 6) == kProtocolFragment;
}

template <class K>
void complete(std::byte* packet, const Headers& headers) {
  using Ip = detail::IpOf<K>;
  constexpr unsigned kAddresses = 2 * K::Address::kBytes;
  const unsigned at = detail::kChecksumAt<Ip>[headers.protocol];
  if (headers.l4 + at + 2 > headers.l4_end) return;
  const auto bytes = static_cast<std::uint32_t>(headers.l4_end - headers.l4);
  const std::byte* const ip = packet + headers.l3;
  if (is_fragment<K>(ip)) return;
  std::byte* const field = packet + headers.l4 + at;
  const auto is = detail::load<std::uint16_t>(field);
  // The pseudo header's sum: addresses, protocol and length, in any order.
  std::uint64_t sum = add_words(0, {ip + Ip::kSource, kAddresses});
  sum += detail::big_endian(static_cast<std::uint16_t>(headers.protocol));
  sum += detail::big_endian(static_cast<std::uint16_t>(bytes));
  if (fold(sum) != is) [[likely]]
    return;
  detail::store<std::uint16_t>(field, 0);
  const std::uint16_t whole = internet_checksum({packet + headers.l4, bytes}, sum);
  const bool never_zero = headers.protocol == kProtocolUdp && whole == 0;
  detail::store<std::uint16_t>(field, never_zero ? 0xffff : whole);
}

}  // namespace

void complete_checksums(Burst& burst) {
  for (unsigned i = 0; i < burst.size; ++i) {
    const Headers& headers = burst.headers[i];
    if (headers.protocol != kProtocolTcp && headers.protocol != kProtocolUdp) continue;
    if (burst.verdict[i] == Verdict::fragment || burst.wire_length[i] != burst.length[i]) continue;
    if (headers.family == 4) {
      complete<KeyV4>(burst.data[i], headers);
    } else if (headers.family == 6) {
      complete<KeyV6>(burst.data[i], headers);
    }
  }
}

}  // namespace millrace
