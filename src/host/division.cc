#include "host/division.h"

#include <algorithm>
#include <cstring>

#include "parse/bytes.h"
#include "parse/checksum.h"

namespace millrace {
namespace {

constexpr unsigned kMinimum = 20;  // bytes of an IPv4 header without options
constexpr unsigned kDontFragment = 0x4000;
constexpr unsigned kMoreFragments = 0x2000;

void store16(std::byte* at, unsigned value) {
  detail::store(at, detail::big_endian(static_cast<std::uint16_t>(value)));
}

}  // namespace

bool may_be_divided(const std::byte* packet, const Headers& headers, unsigned mtu) {
  const std::byte* const ip = packet + headers.l3;
  if (headers.family != 4 || (detail::u16(ip + 6) & kDontFragment) != 0 ||
      mtu < Division::kLeastMtu)
    return false;
  const unsigned header = (detail::u8(ip) & 15U) * 4;
  const unsigned each = (mtu - header) / 8 * 8;
  return headers.l4_end - headers.l3 - header <= Division::kMostFragments * each;
}

Division::Division(std::byte* ip, unsigned bytes, unsigned mtu)
    : ip_(ip),
      header_((detail::u8(ip) & 15U) * 4),
      payload_(bytes - header_),
      field_(detail::u16(ip + 6)) {
  constexpr unsigned kEndOfList = 0;
  constexpr unsigned kNoOperation = 1;
  constexpr unsigned kCopied = 0x80;
  unsigned copied = 0;
  for (unsigned at = kMinimum; at < header_;) {
    const unsigned type = detail::u8(ip + at);
    if (type == kEndOfList) break;
    const unsigned size = type == kNoOperation || at + 1 == header_ ? 1 : detail::u8(ip + at + 1);
    if (size == 0 || at + size > header_) break;
    if ((type & kCopied) != 0) {
      std::memcpy(options_.data() + copied, ip + at, size);
      copied += size;
    }
    at += size;
  }
  later_header_ += (copied + 3) / 4 * 4;  // the rest is 0, the end of the list
  first_ = (mtu - header_) / 8 * 8;
  each_ = (mtu - later_header_) / 8 * 8;
  count_ = 1 + (payload_ - first_ + each_ - 1) / each_;
}

unsigned Division::payload(unsigned n) const {
  return n == 0 ? first_ : std::min(each_, payload_ - begin(n));
}

unsigned Division::bytes(unsigned n) const { return header(n) + payload(n); }

void Division::write(unsigned n, std::byte* to) const {
  std::memcpy(to, ip_, n == 0 ? header_ : kMinimum);
  if (n != 0) std::memcpy(to + kMinimum, options_.data(), later_header_ - kMinimum);
  std::memcpy(to + header(n), ip_ + header_ + begin(n), payload(n));
  finish_header(to, n);
}

void Division::make_first() const { finish_header(ip_, 0); }

/// Writes the fields of a fragment's header that differ from the packet's.
void Division::finish_header(std::byte* ip, unsigned n) const {
  ip[0] = static_cast<std::byte>(0x40 | header(n) / 4);
  store16(ip + 2, bytes(n));
  // Only the last fragment may be the last of the datagram.
  const unsigned more = n + 1 < count_ ? kMoreFragments : 0;
  store16(ip + 6, (field_ + begin(n) / 8) | more);
  store16(ip + 10, 0);
  detail::store(ip + 10, internet_checksum({ip, header(n)}));
}

}  // namespace millrace
