#include "parse/check.h"

#include <array>
#include <cstdint>
#include <initializer_list>

#include "core/protocol.h"
#include "parse/bytes.h"
#include "parse/ip.h"
#include "parse/tcp.h"

namespace millrace {
namespace {

/// Size in bytes of a header without options, by protocol; 0: the header is not checked.
constexpr auto kLeastHeader = [] {
  std::array<std::uint8_t, 256> bytes{};
  bytes[kProtocolTcp] = detail::kTcpHeader;
  bytes[kProtocolUdp] = 8;
  bytes[kProtocolUdpLite] = 8;
  bytes[kProtocolSctp] = 12;
  bytes[kProtocolDccp] = 12;
  return bytes;
}();

/// The values of the low six flags that a sender may set, a bit each.
constexpr std::uint64_t kPossibleFlags = [] {
  using detail::kAck, detail::kFin, detail::kRst, detail::kSyn;
  constexpr unsigned kPush = 0x08;
  constexpr unsigned kUrgent = 0x20;
  std::uint64_t possible = 0;
  for (const unsigned flags :
       std::initializer_list<unsigned>{kSyn, kSyn | kUrgent, kSyn | kAck, kRst, kRst | kAck,
                                       kFin | kAck, kFin | kAck | kUrgent, kAck, kAck | kUrgent})
    possible |= std::uint64_t{1} << flags | std::uint64_t{1} << (flags | kPush);
  return possible;
}();

/// Returns the end of the IP payload, in bytes from `data`, that the IP header gives; the largest
/// number if it gives none.
unsigned stated_end(const std::byte* data, const Headers& headers) {
  const bool has_length = detail::u16(data + headers.l3 + (headers.family == 4 ? 2 : 4)) != 0;
  return has_length ? detail::payload_end(data, headers) : detail::Payload::kUnknownEnd;
}

bool is_possible_tcp(const std::byte* data, const Headers& headers) {
  const std::byte* const tcp = data + headers.l4;
  if (headers.l4 + detail::kTcpFlags >= headers.l4_end) return true;
  const unsigned header = (detail::u8(tcp + 12) >> 4) * 4U;
  const unsigned flags = detail::u8(tcp + detail::kTcpFlags) & 63U;
  if (header < detail::kTcpHeader || (kPossibleFlags >> flags & 1) == 0) return false;
  return headers.l4 + header <= headers.l4_end || headers.l4 + header <= stated_end(data, headers);
}

/// Checks the length that the header of UDP, or of UDP-Lite, gives. `whole`: the length 0 means the
/// whole IP payload.
bool is_possible_length(const std::byte* data, const Headers& headers, bool whole) {
  constexpr unsigned kLength = 4;
  if (headers.l4 + kLength + 2 > headers.l4_end) return true;
  const unsigned length = detail::u16(data + headers.l4 + kLength);
  const unsigned end = stated_end(data, headers);
  if (end == detail::Payload::kUnknownEnd || (whole && length == 0)) return true;
  if (length < kLeastHeader[kProtocolUdp]) return false;
  return headers.l4 + length <= end || detail::datagram_bytes(data, headers) == 0;
}

bool is_possible(const std::byte* data, const Headers& headers) {
  const unsigned least = headers.l4 + kLeastHeader[headers.protocol];
  if (least > headers.l4_end && least > stated_end(data, headers)) [[unlikely]]
    return false;
  switch (headers.protocol) {
    case kProtocolTcp:
      return is_possible_tcp(data, headers);
    case kProtocolUdp:
    case kProtocolUdpLite:
      return is_possible_length(data, headers, headers.protocol == kProtocolUdpLite);
    default:
      return true;
  }
}

template <class K>
std::uint64_t impossible(const Burst& burst, const Lane<K>& lane) {
  std::uint64_t packets = 0;
  for (unsigned i = 0; i < lane.size; ++i) {
    const unsigned packet = lane.packet[i];
    const bool is_right = is_possible(burst.data[packet], burst.headers[packet]);
    packets |= std::uint64_t{!is_right} << packet;
  }
  return packets;
}

}  // namespace

void check_headers(Burst& burst) {
  const std::uint64_t wrong = impossible(burst, burst.v4) | impossible(burst, burst.v6);
  for_each_bit(wrong, [&](unsigned i) { burst.verdict[i] = Verdict::malformed; });
  unfile(burst, wrong);
}

}  // namespace millrace
