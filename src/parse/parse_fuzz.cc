// Fuzzes the parser and, if a key was found, `rewrite` or `rewrite_error`. The first byte of an
// input chooses the link type, the rest is the packet, in a block of exactly its size: the address
// sanitizer sees any access beyond it.

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "core/protocol.h"
#include "parse/fragment.h"
#include "parse/parse.h"
#include "parse/quote.h"
#include "parse/rewrite.h"
#include "parse/signal.h"

namespace millrace {
namespace {

void require(bool condition) {
  if (!condition) __builtin_trap();
}

bool has_headers(Verdict verdict) {
  return verdict == Verdict::tracked || verdict == Verdict::fragment ||
         verdict == Verdict::icmp_error || verdict == Verdict::icmp_control;
}

void check_headers(const Burst& burst) {
  const Headers& h = burst.headers[0];
  if (has_headers(burst.verdict[0])) {
    require(h.family == 4 || h.family == 6);
    require(h.l3 < h.l4 && h.l4 <= h.l4_end && h.l4_end <= burst.length[0]);
  } else {
    require(h.family == 0 && h.l3 == 0 && h.l4 == 0 && h.l4_end == 0 && h.protocol == 0);
  }
}

void check_lanes(const Burst& burst) {
  const unsigned v4 = burst.v4.size;
  const unsigned v6 = burst.v6.size;
  require(v4 + v6 == (burst.verdict[0] == Verdict::tracked ? 1 : 0));
  require(v4 == 0 || (burst.headers[0].family == 4 && burst.v4.packet[0] == 0));
  require(v6 == 0 || (burst.headers[0].family == 6 && burst.v6.packet[0] == 0));
  const unsigned quoted_v4 = burst.quoted_v4.size;
  const unsigned quoted_v6 = burst.quoted_v6.size;
  require(quoted_v4 + quoted_v6 <= (burst.verdict[0] == Verdict::icmp_error ? 1 : 0));
  require(quoted_v4 == 0 || burst.headers[0].family == 4);
  require(quoted_v6 == 0 || burst.headers[0].family == 6);
  require(is_unmatched(burst.verdict[0]) || burst.verdict[0] == Verdict::tracked ||
          burst.verdict[0] == Verdict::fragment_tiny);
}

template <class K>
bool is_fragment(const Burst& burst) {
  return read_fragment<typename K::Address>(burst.data[0], burst.headers[0]).has_value();
}

void check_fragment(const Burst& burst) {
  const bool has = has_headers(burst.verdict[0]);
  require(burst.fragments <= 1 && (burst.fragments == 0 || has));
  if (!has) return;
  const bool is =
      burst.headers[0].family == 4 ? is_fragment<KeyV4>(burst) : is_fragment<KeyV6>(burst);
  require(is == (burst.fragments == 1));
  const bool is_later = burst.headers[0].protocol == kProtocolFragment;
  require(is_later || burst.verdict[0] != Verdict::fragment || !is);
}

/// Rewrites a later fragment from one key to another, as a packet of its datagram's connection:
/// only addresses and the IPv4 header's checksum may change.
template <class K>
void check_later_fragment(Burst& burst) {
  const Headers& h = burst.headers[0];
  using Ip = detail::IpOf<K>;
  if (h.protocol != kProtocolFragment || burst.verdict[0] != Verdict::fragment ||
      h.family != Ip::kFamily)
    return;
  constexpr std::size_t kAddresses = 2 * K::Address::kBytes;
  std::byte* const ip = burst.data[0] + h.l3;
  const std::vector<std::byte> before(burst.data[0], burst.data[0] + burst.length[0]);
  K was;
  std::memcpy(static_cast<void*>(&was), ip + Ip::kSource, kAddresses);
  was.protocol = kProtocolTcp;
  K is = was;
  is.source.bytes[1] ^= 0x5a;
  is.destination.bytes[2] ^= 0xa5;
  is.source_port = is.destination_port = 77;
  rewrite(burst.data[0], h, was, is);
  require(std::memcmp(ip + Ip::kSource, &is, kAddresses) == 0);
  rewrite(burst.data[0], h, is, was);
  for (unsigned i = 0; i < burst.length[0]; ++i) {
    const bool is_checksum = h.family == 4 && (i == h.l3 + 10U || i == h.l3 + 11U);
    require(is_checksum || before[i] == burst.data[0][i]);
  }
}

/// Returns by how much the transport checksum is wrong, over the captured bytes; 0 if it is right.
template <class K>
unsigned checksum_error(const Burst& burst, const K& key) {
  const Headers& h = burst.headers[0];
  const unsigned bytes = h.l4_end - h.l4;
  const auto sum = pseudo_header_sum(key.source, key.destination, h.protocol, bytes);
  return internet_checksum({burst.data[0] + h.l4, bytes}, sum) % 0xffffU;
}

/// True if rewriting must leave `checksum_error` unchanged.
template <class K>
bool is_covered(const Burst& burst) {
  const Headers& h = burst.headers[0];
  const unsigned at = detail::kChecksumAt<detail::IpOf<K>>[h.protocol];
  if (at == 0 || h.l4 + at + 2 > h.l4_end) return false;
  return h.protocol != kProtocolUdp || detail::load<std::uint16_t>(burst.data[0] + h.l4 + at) != 0;
}

/// The protocol that has an identifier in place of ports.
template <class K>
constexpr std::uint8_t kQuery = std::is_same_v<K, KeyV4> ? kProtocolIcmp : kProtocolIcmpV6;

/// Rewrites the packet to the key `is` as the line does, and parses it again: nothing else may have
/// changed.
template <class K>
void become(Burst& burst, LinkType link, const K& is) {
  const Headers before = burst.headers[0];
  Lane<K>& lane = burst.lane<K>();
  const K was = lane.key[0];
  const bool is_query = before.protocol == kQuery<K>;
  const bool covered = is_covered<K>(burst);
  const unsigned error = checksum_error(burst, was);
  begin_serving<K>(burst);
  if (is.source != was.source || (!is_query && is.source_port != was.source_port))
    lane.set_source(0, is.source, is.source_port);
  if (is.destination != was.destination ||
      (!is_query && is.destination_port != was.destination_port))
    lane.set_destination(0, is.destination, is.destination_port);
  if (is_query && is.source_port != was.source_port) lane.set_identifier(0, is.source_port);
  require(lane.leaving(0) == is);
  rewrite<K>(burst);
  parse(burst, link);
  require(burst.verdict[0] == Verdict::tracked);
  require(std::memcmp(&before, burst.headers.data(), sizeof before) == 0);
  const K found = burst.lane<K>().key[0];
  require(found == is);
  require(!covered || checksum_error(burst, found) == error);
}

template <class K>
void check_rewriting(Burst& burst, LinkType link) {
  if (burst.lane<K>().size == 0) return;
  const K original = burst.lane<K>().key[0];
  const std::uint8_t protocol = burst.headers[0].protocol;
  K other = original;
  std::ranges::reverse(other.source.bytes);
  other.source.bytes[0] ^= 0x55;
  other.destination = other.source;
  other.destination.bytes[0] ^= 1;
  if (has_ports(protocol)) other.source_port = 0x1234;
  if (has_ports(protocol)) other.destination_port = 0xfedc;
  const bool is_query = protocol == kQuery<K>;
  if (is_query) other.source_port = other.destination_port = 0x4321;
  K half = original;
  half.source = other.source;
  if (!is_query) half.source_port = other.source_port;
  become(burst, link, half);
  become(burst, link, other);
  half = other;
  half.destination = original.destination;
  if (!is_query) half.destination_port = original.destination_port;
  become(burst, link, half);
  become(burst, link, original);
  become(burst, link, other);  // both ends at once
  become(burst, link, original);
  const bool covered = is_covered<K>(burst);
  const unsigned error = checksum_error(burst, original);
  burst.has_mss = 0;
  burst.limit_mss(0, 100);
  clamp_mss(burst);
  require(!covered || checksum_error(burst, original) == error);
}

/// Returns by how much an ICMP error's checksum is wrong; it covers the quote. ICMPv4 has no pseudo
/// header.
template <class K>
unsigned icmp_error_of(const Burst& burst, const Headers& h) {
  using Ip = detail::IpOf<K>;
  K ends;
  std::memcpy(static_cast<void*>(&ends), burst.data[0] + h.l3 + Ip::kSource,
              2 * std::size_t{K::Address::kBytes});
  const unsigned bytes = h.l4_end - h.l4;
  const auto sum =
      Ip::kFamily == 4 ? 0 : pseudo_header_sum(ends.source, ends.destination, h.protocol, bytes);
  return internet_checksum({burst.data[0] + h.l4, bytes}, sum) % 0xffffU;
}

/// Rewrites an error as the line does, so that `address` becomes one end of the quoted packet and
/// the opposite end of the error itself.
template <class K>
K pass_on_and_parse(Burst& burst, LinkType link, End quoted, const typename K::Address& address,
                    std::uint16_t port) {
  const Headers before = burst.headers[0];
  const auto quote = read_quote<K>(burst.data[0], before);
  require(quote.has_value());
  const Headers& h = quote->headers;
  require(before.l4 + 8 == h.l3 && h.l3 < h.l4 && h.l4 <= h.l4_end && h.l4_end <= before.l4_end);
  K expected = burst.quoted<K>().key[0];
  require(expected == reversed(quote->key));
  const bool to_sender = quoted == End::source;
  (to_sender ? expected.destination : expected.source) = address;
  if (has_ports(h.protocol)) {
    (to_sender ? expected.destination_port : expected.source_port) = port;
  }
  const unsigned error = icmp_error_of<K>(burst, before);
  require(rewrite_error(burst.data[0], before, burst.quoted<K>().key[0], expected));
  require(icmp_error_of<K>(burst, before) == error);
  parse(burst, link);
  require(burst.verdict[0] == Verdict::icmp_error && burst.quoted<K>().size == 1);
  require(std::memcmp(&before, burst.headers.data(), sizeof before) == 0);
  require(burst.quoted<K>().key[0] == expected);
  return expected;
}

template <class K>
void check_quote(Burst& burst, LinkType link) {
  if (burst.quoted<K>().size == 0) return;
  const K original = burst.quoted<K>().key[0];
  typename K::Address address = original.source;
  std::ranges::reverse(address.bytes);
  address.bytes[0] ^= 0x55;
  pass_on_and_parse<K>(burst, link, End::source, address, 0x1234);
  pass_on_and_parse<K>(burst, link, End::destination, address, 0xfedc);
  pass_on_and_parse<K>(burst, link, End::source, original.destination, original.destination_port);
  const K back =
      pass_on_and_parse<K>(burst, link, End::destination, original.source, original.source_port);
  require(back == original);
}

/// Requires that exactly TCP packets have a TCP signal, and SCTP packets an SCTP signal, that a
/// segment is whole exactly if its TCP header was captured and the packet has room for the length
/// that the header states, and that an INIT shows the tag that its sender has chosen, and no other
/// one.
void check_segment(const Burst& burst) {
  if (burst.verdict[0] != Verdict::tracked) return;
  const Headers& headers = burst.headers[0];
  const bool tcp = headers.protocol == kProtocolTcp;
  require(tcp == is_tcp(burst.signal[0]));
  require((headers.protocol == kProtocolSctp) == is_sctp(burst.signal[0]));
  if (is_sctp(burst.signal[0])) {
    const Tags tags = read_tags(burst.data[0], headers);
    const bool is_init = burst.signal[0] == Signal::sctp_init;
    require(!tags.is_whole || !is_init || (tags.tag == 0 && tags.initiate != 0));
    require(burst.signal[0] != Signal::sctp_abort || tags.is_whole);
  }
  if (!tcp) return;
  const Segment segment = read_segment(burst.data[0], headers);
  const bool is_captured = headers.l4 + 20U <= headers.l4_end;
  const unsigned stated = is_captured ? (detail::u8(burst.data[0] + headers.l4 + 12) >> 4) * 4U : 0;
  require(segment.is_whole ==
          (stated >= 20 && headers.l4 + stated <= detail::payload_end(burst.data[0], headers)));
  require(segment.next - segment.sequence <= 0x10001);  // SYN and FIN count
}

void check(LinkType link, std::span<const std::uint8_t> packet) {
  static Burst burst;
  const auto memory = std::make_unique<std::byte[]>(packet.size());
  if (!packet.empty()) std::memcpy(memory.get(), packet.data(), packet.size());
  burst.size = 1;
  burst.data[0] = memory.get();
  burst.length[0] = static_cast<std::uint16_t>(packet.size());
  burst.wire_length[0] = burst.length[0];
  parse(burst, link);
  check_headers(burst);
  check_lanes(burst);
  check_fragment(burst);
  check_later_fragment<KeyV4>(burst);
  check_later_fragment<KeyV6>(burst);
  check_segment(burst);
  check_rewriting<KeyV4>(burst, link);
  check_rewriting<KeyV6>(burst, link);
  check_quote<KeyV4>(burst, link);
  check_quote<KeyV6>(burst, link);
}

}  // namespace
}  // namespace millrace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer calls it so.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0 || size > 0xffff) return -1;
  millrace::check(static_cast<millrace::LinkType>(data[0] % 4), {data + 1, size - 1});
  return 0;
}
