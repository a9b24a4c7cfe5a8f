#include "parse/parse.h"

#include "parse/fragment.h"

#include <gtest/gtest.h>

#include "parse/test_packets.h"

namespace millrace::test {
namespace {

Bytes tcp4() { return ipv4({}, tcp(10)); }
Bytes tcp6() { return ipv6({}, tcp(10)); }

KeyV4 key4(unsigned protocol, unsigned source_port, unsigned destination_port) {
  KeyV4 key;
  key.source.bytes = {192, 0, 2, 1};
  key.destination.bytes = {198, 51, 100, 2};
  key.source_port = static_cast<std::uint16_t>(source_port);
  key.destination_port = static_cast<std::uint16_t>(destination_port);
  key.protocol = static_cast<std::uint8_t>(protocol);
  return key;
}
KeyV6 key6(unsigned protocol, unsigned source_port, unsigned destination_port) {
  KeyV6 key;
  key.source.bytes = {0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  key.destination.bytes = {0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};
  key.source_port = static_cast<std::uint16_t>(source_port);
  key.destination_port = static_cast<std::uint16_t>(destination_port);
  key.protocol = static_cast<std::uint8_t>(protocol);
  return key;
}

void expect_tracked(const Parsed& p, const KeyV4& key) {
  ASSERT_EQ(to_string(p.verdict), "tracked");
  ASSERT_EQ(p.v4, 1U);
  EXPECT_EQ(p.v6, 0U);
  EXPECT_EQ(p.headers.family, 4);
  EXPECT_EQ(p.headers.protocol, key.protocol);
  EXPECT_EQ(p.key4, key);
}
void expect_tracked(const Parsed& p, const KeyV6& key) {
  ASSERT_EQ(to_string(p.verdict), "tracked");
  ASSERT_EQ(p.v6, 1U);
  EXPECT_EQ(p.v4, 0U);
  EXPECT_EQ(p.headers.family, 6);
  EXPECT_EQ(p.headers.protocol, key.protocol);
  EXPECT_EQ(p.key6, key);
}
void expect_headers(const Parsed& p, unsigned l3, unsigned l4, unsigned l4_end) {
  EXPECT_EQ(p.headers.l3, l3);
  EXPECT_EQ(p.headers.l4, l4);
  EXPECT_EQ(p.headers.l4_end, l4_end);
}
void expect_untracked(const Parsed& p, Verdict verdict) {
  EXPECT_EQ(to_string(p.verdict), to_string(verdict));
  EXPECT_EQ(p.v4 + p.v6, 0U);
}

/// Parses a raw IP packet, without a link header.
Parsed raw(const Bytes& packet) { return parse(LinkType::raw_ip, packet); }
Verdict raw_verdict(const Bytes& packet) {
  const Parsed p = raw(packet);
  EXPECT_EQ(p.v4 + p.v6, p.verdict == Verdict::tracked ? 1U : 0U);
  return p.verdict;
}

TEST(ParseLink, Ethernet) {
  const Parsed p = parse(LinkType::ethernet, ethernet(0x0800) + tcp4());
  expect_tracked(p, key4(6, 1024, 443));
  expect_headers(p, 14, 34, 64);
  expect_tracked(parse(LinkType::ethernet, ethernet(0x86dd) + tcp6()), key6(6, 1024, 443));
}

TEST(ParseLink, PaddingIsLeftOut) {
  const Parsed p = parse(LinkType::ethernet, ethernet(0x0800) + ipv4({}, tcp()) + zeros(6));
  expect_tracked(p, key4(6, 1024, 443));
  expect_headers(p, 14, 34, 54);
}

TEST(ParseLink, EveryStackOfTags) {
  for (const unsigned outer : {0x8100U, 0x88a8U, 0x9100U}) {
    for (const unsigned inner : {0x8100U, 0x88a8U, 0x9100U}) {
      const Bytes tags = ethernet(outer) + tag(inner) + tag(0x0800, 9);
      const Parsed p = parse(LinkType::ethernet, tags + tcp4());
      expect_tracked(p, key4(6, 1024, 443));
      EXPECT_EQ(p.headers.l3, 22);
      expect_untracked(parse(LinkType::ethernet, cut(tags, 17)), Verdict::truncated);
    }
  }
}

TEST(ParseLink, TagsEndSomewhere) {
  Bytes tags = ethernet(0x8100);
  for (unsigned i = 1; i < kMaxLinkHeaders; ++i) tags = tags + tag(0x8100);
  expect_tracked(parse(LinkType::ethernet, tags + tag(0x0800) + tcp4()), key4(6, 1024, 443));
  expect_untracked(parse(LinkType::ethernet, tags + tag(0x8100) + tag(0x0800) + tcp4()),
                   Verdict::header_chain);
}

TEST(ParseLink, Mpls) {
  for (const unsigned type : {0x8847U, 0x8848U}) {
    const Bytes labels = ethernet(type) + label(16, false) + label(17, true);
    expect_tracked(parse(LinkType::ethernet, labels + tcp4()), key4(6, 1024, 443));
    expect_tracked(parse(LinkType::ethernet, labels + tcp6()), key6(6, 1024, 443));
    expect_untracked(parse(LinkType::ethernet, labels + zeros(60)), Verdict::not_ip);
    expect_untracked(parse(LinkType::ethernet, labels), Verdict::truncated);
    expect_untracked(parse(LinkType::ethernet, cut(labels, 21)), Verdict::truncated);
  }
}

TEST(ParseLink, Pppoe) {
  const Bytes ip4 = tcp4();
  const Bytes ip6 = tcp6();
  const Bytes ether = ethernet(0x8864);
  const auto of = [&](const Bytes& rest) { return parse(LinkType::ethernet, ether + rest); };
  expect_tracked(of(pppoe(be(0x0021), ip4.size()) + ip4), key4(6, 1024, 443));
  expect_tracked(of(pppoe(be(0x0057), ip6.size()) + ip6), key6(6, 1024, 443));
  expect_tracked(of(pppoe(bytes({0x21}), ip4.size()) + ip4), key4(6, 1024, 443));
  expect_tracked(of(pppoe(bytes({0x57}), ip6.size()) + ip6), key6(6, 1024, 443));
  expect_untracked(of(pppoe(be(0xc021), 10) + zeros(10)), Verdict::not_ip);
  expect_untracked(of(cut(pppoe(be(0x0021), 10), 6)), Verdict::truncated);
  expect_untracked(of(cut(pppoe(be(0x0021), 10), 7)), Verdict::truncated);
  expect_untracked(of(bytes({0x11, 9, 0, 9}) + zeros(20)), Verdict::not_ip);
}

TEST(ParseLink, LlcSnap) {
  const auto of = [&](const Bytes& rest) {
    return parse(LinkType::ethernet, ethernet(static_cast<unsigned>(rest.size())) + rest);
  };
  expect_tracked(of(snap(0, 0x0800) + tcp4()), key4(6, 1024, 443));
  expect_tracked(of(snap(0xf8, 0x86dd) + tcp6()), key6(6, 1024, 443));
  expect_tracked(of(snap(0, 0x8100) + tag(0x0800) + tcp4()), key4(6, 1024, 443));
  expect_untracked(of(snap(0x00000c, 0x2000) + zeros(40)), Verdict::not_ip);  // CDP
  expect_untracked(of(bytes({0x42, 0x42, 3}) + zeros(35)), Verdict::not_ip);  // STP
  expect_untracked(of(bytes({0xaa, 0xaa, 0xf3}) + zeros(35)), Verdict::not_ip);
  expect_untracked(of(cut(snap(0, 0x0800), 2)), Verdict::truncated);
  expect_untracked(of(cut(snap(0, 0x0800), 7)), Verdict::truncated);
}

TEST(ParseLink, LinuxCooked) {
  for (const Bytes& inner : {be(0), tag(0), label(16, true)}) {
    const bool tagged = inner.size() == 4 && inner.back() == std::byte{0};
    const Bytes between = inner.size() == 2 ? Bytes{} : tagged ? tag(0x0800) : label(16, true);
    const unsigned type = inner.size() == 2 ? 0x0800 : tagged ? 0x8100 : 0x8847;
    const Parsed p = parse(LinkType::linux_cooked, cooked(type) + between + tcp4());
    expect_tracked(p, key4(6, 1024, 443));
    EXPECT_EQ(p.headers.l3, 16 + between.size());
    const Parsed p2 = parse(LinkType::linux_cooked2, cooked2(type) + between + tcp4());
    expect_tracked(p2, key4(6, 1024, 443));
    EXPECT_EQ(p2.headers.l3, 20 + between.size());
  }
  expect_tracked(parse(LinkType::linux_cooked, cooked(4) + snap(0, 0x0800) + tcp4()),
                 key4(6, 1024, 443));
  expect_untracked(parse(LinkType::linux_cooked, cut(cooked(0x0800), 15)), Verdict::truncated);
  expect_untracked(parse(LinkType::linux_cooked2, cut(cooked2(0x0800), 19)), Verdict::truncated);
}

TEST(ParseLink, RawIp) {
  expect_tracked(raw(tcp4()), key4(6, 1024, 443));
  expect_tracked(raw(tcp6()), key6(6, 1024, 443));
  EXPECT_EQ(raw_verdict(zeros(60)), Verdict::not_ip);
  EXPECT_EQ(raw_verdict({}), Verdict::truncated);
}

TEST(ParseLink, NotIp) {
  expect_untracked(parse(LinkType::ethernet, ethernet(0x0806) + zeros(46)), Verdict::not_ip);
  expect_untracked(parse(LinkType::ethernet, cut(ethernet(0x0800), 13)), Verdict::truncated);
  expect_untracked(parse(LinkType::ethernet, {}), Verdict::truncated);
}

TEST(ParseIp, ProtocolsWithPorts) {
  for (const unsigned protocol : {6U, 17U, 33U, 132U, 136U}) {
    expect_tracked(raw(ipv4({.protocol = protocol}, udp())), key4(protocol, 1024, 443));
    expect_tracked(raw(ipv6({.next = protocol}, udp())), key6(protocol, 1024, 443));
    EXPECT_EQ(raw_verdict(ipv4({.protocol = protocol}, zeros(3))), Verdict::malformed);
  }
}

TEST(ParseIp, OtherProtocolsByAddresses) {
  for (const unsigned protocol : {2U, 4U, 41U, 47U, 50U, 51U, 59U, 89U, 255U}) {
    expect_tracked(raw(ipv4({.protocol = protocol}, udp())), key4(protocol, 0, 0));
    expect_tracked(raw(ipv6({.next = protocol}, udp())), key6(protocol, 0, 0));
    expect_tracked(raw(ipv4({.protocol = protocol}, {})), key4(protocol, 0, 0));
  }
  // The other family's ICMP, and IPv6's extension headers in IPv4, are protocols without ports.
  expect_tracked(raw(ipv4({.protocol = 58}, icmp(128))), key4(58, 0, 0));
  expect_tracked(raw(ipv6({.next = 1}, icmp(8))), key6(1, 0, 0));
  expect_tracked(raw(ipv4({.protocol = 44}, fragment6(6, 9, false))), key4(44, 0, 0));
}

TEST(ParseIp, OnlyTheOutermost) {
  expect_tracked(raw(ipv4({.protocol = 4}, tcp4())), key4(4, 0, 0));
  expect_tracked(raw(ipv6({.next = 4}, tcp4())), key6(4, 0, 0));
  expect_tracked(raw(ipv4({.protocol = 41}, tcp6())), key4(41, 0, 0));
}

TEST(ParseIp, OnlyPortsMustBePresent) {
  expect_tracked(raw(ipv4({}, be(1024) + be(443))), key4(6, 1024, 443));
  EXPECT_EQ(raw_verdict(ipv4({}, zeros(3))), Verdict::malformed);
  EXPECT_EQ(raw_verdict(ipv6({}, zeros(3))), Verdict::malformed);
  const Bytes whole = tcp4();
  expect_tracked(raw(cut(whole, 24)), key4(6, 1024, 443));
  EXPECT_EQ(raw(cut(whole, 24)).headers.l4_end, 24);
  EXPECT_EQ(raw_verdict(cut(whole, 23)), Verdict::truncated);
  EXPECT_EQ(raw_verdict(cut(whole, 19)), Verdict::truncated);
  EXPECT_EQ(raw_verdict(cut(tcp6(), 43)), Verdict::truncated);
  EXPECT_EQ(raw_verdict(cut(tcp6(), 39)), Verdict::truncated);
}

TEST(ParseIp, LengthsThatContradict) {
  EXPECT_EQ(raw_verdict(ipv4({.total = 19}, tcp())), Verdict::malformed);
  EXPECT_EQ(raw_verdict(ipv4({.options = zeros(4), .total = 23}, tcp())), Verdict::malformed);
  EXPECT_EQ(raw_verdict(ipv6({.payload = 0}, tcp())), Verdict::malformed);
  Bytes short_header = tcp4();
  short_header[0] = std::byte{0x44};
  EXPECT_EQ(raw_verdict(short_header), Verdict::malformed);
}

TEST(ParseIp, CutBeforeItWasCaptured) {
  const Parsed p4 = raw(ipv4({.total = 1500}, tcp()));
  expect_tracked(p4, key4(6, 1024, 443));
  expect_headers(p4, 0, 20, 40);
  const Parsed p6 = raw(ipv6({.payload = 1460}, tcp()));
  expect_tracked(p6, key6(6, 1024, 443));
  expect_headers(p6, 0, 40, 60);
}

TEST(ParseIp, VersionsThatContradict) {
  expect_untracked(parse(LinkType::ethernet, ethernet(0x86dd) + tcp4() + zeros(40)),
                   Verdict::malformed);
  expect_untracked(parse(LinkType::ethernet, ethernet(0x0800) + tcp6()), Verdict::malformed);
}

TEST(ParseIp, NoLengthMeansToTheEnd) {
  const Parsed p = raw(ipv4({.total = 0}, tcp(10)));
  expect_tracked(p, key4(6, 1024, 443));
  expect_headers(p, 0, 20, 50);
  EXPECT_EQ(raw_verdict(ipv4({.total = 0}, zeros(3))), Verdict::truncated);
  const Parsed jumbo = raw(ipv6({.next = 0, .payload = 0}, extension(6) + tcp(10)));
  expect_tracked(jumbo, key6(6, 1024, 443));
  expect_headers(jumbo, 0, 48, 78);
}

TEST(ParseIpv4, Options) {
  const auto verdict = [](const Bytes& options) {
    return raw_verdict(ipv4({.options = options}, tcp()));
  };
  const Parsed p = raw(ipv4({.options = bytes({1, 1, 1, 0})}, tcp()));
  expect_tracked(p, key4(6, 1024, 443));
  EXPECT_EQ(p.headers.l4, 24);
  EXPECT_EQ(verdict(bytes({7, 7, 4, 0, 0, 0, 0, 1})), Verdict::tracked);  // record route
  EXPECT_EQ(verdict(bytes({131, 7, 4, 9, 9, 9, 9, 0})), Verdict::source_routed);
  EXPECT_EQ(verdict(bytes({1, 137, 7, 4, 9, 9, 9, 9})), Verdict::source_routed);
  EXPECT_EQ(verdict(bytes({131, 7, 8, 9, 9, 9, 9, 0})), Verdict::tracked);  // route exhausted
  EXPECT_EQ(verdict(bytes({131, 2, 1, 1})), Verdict::malformed);
  EXPECT_EQ(verdict(bytes({0, 131, 7, 4})), Verdict::tracked);  // behind the end of options
  EXPECT_EQ(verdict(bytes({7, 1, 0, 0})), Verdict::malformed);
  EXPECT_EQ(verdict(bytes({7, 5, 4, 0})), Verdict::malformed);
  EXPECT_EQ(verdict(bytes({1, 1, 1, 7})), Verdict::malformed);
  EXPECT_EQ(raw_verdict(cut(ipv4({.options = zeros(8)}, tcp()), 27)), Verdict::truncated);
}

TEST(ParseIp, Fragments) {
  expect_tracked(raw(ipv4({.fragment = 0x2000}, tcp())), key4(6, 1024, 443));
  const Parsed later4 = raw(ipv4({.fragment = 0x2002}, zeros(2)));
  expect_untracked(later4, Verdict::fragment);
  expect_headers(later4, 0, 20, 22);
  EXPECT_EQ(later4.headers.protocol, 44);
  EXPECT_EQ(raw_verdict(ipv4({.fragment = 2}, {})), Verdict::fragment);

  expect_tracked(raw(ipv6({.next = 44}, fragment6(6, 0, true) + tcp())), key6(6, 1024, 443));
  expect_tracked(raw(ipv6({.next = 44}, fragment6(17, 0, false) + udp())), key6(17, 1024, 443));
  const Parsed later6 = raw(ipv6({.next = 44}, fragment6(6, 2, false) + zeros(3)));
  expect_untracked(later6, Verdict::fragment);
  expect_headers(later6, 0, 48, 51);
  EXPECT_EQ(later6.headers.protocol, 44);
  for (unsigned bit = 0; bit < 13; ++bit) {
    EXPECT_EQ(raw_verdict(ipv4({.protocol = 17, .fragment = 1U << bit}, udp())), Verdict::fragment)
        << bit;
    EXPECT_EQ(raw_verdict(ipv6({.next = 44}, fragment6(17, 1U << bit, true) + udp())),
              Verdict::fragment)
        << bit;
  }
  // Other flags, and the reserved bits of IPv6's fragment header, do not make a fragment.
  EXPECT_EQ(raw_verdict(ipv4({.fragment = 0xc000}, tcp())), Verdict::tracked);
  Bytes reserved = ipv6({.next = 44}, fragment6(6, 0, true) + tcp());
  reserved[43] |= std::byte{6};
  EXPECT_EQ(raw_verdict(reserved), Verdict::tracked);
  // Data follows a later fragment's header, whatever its next header says.
  EXPECT_EQ(raw_verdict(ipv6({.next = 44}, fragment6(60, 1, true) + zeros(3))), Verdict::fragment);
  EXPECT_EQ(raw_verdict(ipv4({.protocol = 51, .fragment = 1}, zeros(3))), Verdict::fragment);
}

TEST(ParseIp, FragmentsAreNoted) {
  const auto noted = [](const Bytes& packet) {
    const Parsed p = raw(packet);
    return p.fragments;
  };
  for (const unsigned field : {0x2000U, 0x2003U, 3U})
    EXPECT_EQ(noted(ipv4({.fragment = field}, tcp())), 1U) << field;
  EXPECT_EQ(noted(ipv4({.protocol = 1, .fragment = 0x2000}, icmp(3))), 1U);
  EXPECT_EQ(noted(ipv4({.fragment = 0x4000}, tcp())), 0U);
  EXPECT_EQ(noted(ipv6({.next = 44}, fragment6(6, 0, true) + tcp())), 1U);
  EXPECT_EQ(noted(ipv6({.next = 44}, fragment6(6, 3, false) + tcp())), 1U);
  EXPECT_EQ(noted(ipv6({.next = 44}, fragment6(6, 0, false) + tcp())), 0U);  // atomic
}

// RFC 1858, RFC 3128, RFC 7112: the first fragment has the whole transport header, and a second one
// does not begin within TCP's.
TEST(ParseIp, TinyFragments) {
  const auto verdict = [](unsigned protocol, const Bytes& payload) {
    const Verdict v4 = raw_verdict(ipv4({.protocol = protocol, .fragment = 0x2000}, payload));
    const unsigned next = protocol == 1 ? 58 : protocol;
    EXPECT_EQ(raw_verdict(ipv6({.next = 44}, fragment6(next, 0, true) + payload)), v4);
    return v4;
  };
  const Bytes ping = bytes({128, 0, 0, 0, 0, 7, 0, 1});
  EXPECT_EQ(verdict(6, cut(tcp(), 3)), Verdict::fragment_tiny);
  EXPECT_EQ(verdict(6, cut(tcp(), 16)), Verdict::fragment_tiny);
  Bytes options = tcp(12);
  options[12] = std::byte{0x80};
  EXPECT_EQ(verdict(6, options), Verdict::tracked);
  EXPECT_EQ(verdict(6, cut(options, 24)), Verdict::fragment_tiny);
  EXPECT_EQ(verdict(17, udp()), Verdict::tracked);
  EXPECT_EQ(verdict(17, cut(udp(), 7)), Verdict::fragment_tiny);
  EXPECT_EQ(verdict(136, zeros(7)), Verdict::fragment_tiny);
  EXPECT_EQ(verdict(33, zeros(11)), Verdict::fragment_tiny);
  EXPECT_EQ(verdict(132, zeros(15)), Verdict::fragment_tiny);
  EXPECT_EQ(verdict(50, zeros(1)), Verdict::tracked);
  EXPECT_EQ(raw_verdict(ipv4({.protocol = 1, .fragment = 0x2000}, cut(ping, 7))),
            Verdict::fragment_tiny);
  EXPECT_EQ(raw_verdict(ipv4({.fragment = 1}, zeros(16))), Verdict::fragment_tiny);
  EXPECT_EQ(raw_verdict(ipv6({.next = 44}, fragment6(6, 1, true) + zeros(16))),
            Verdict::fragment_tiny);
}

// Each fragment is the bytes behind its header, wherever that stands.
TEST(ReadFragment, PartsOfDatagrams) {
  const auto v4 = [](const Bytes& packet) {
    const Parsed p = raw(packet);
    return read_fragment<AddressV4>(p.memory.get(), p.headers);
  };
  const auto v6 = [](const Bytes& packet) {
    const Parsed p = raw(packet);
    return read_fragment<AddressV6>(p.memory.get(), p.headers);
  };
  const auto expect = [](const auto& found, unsigned begin, unsigned end, bool is_last) {
    ASSERT_TRUE(found);
    EXPECT_EQ(found->begin, begin);
    EXPECT_EQ(found->end, end);
    EXPECT_EQ(found->is_last, is_last);
  };
  expect(v4(ipv4({.fragment = 0x2000, .options = bytes({1, 1, 1, 1})}, tcp(4))), 0, 24, false);
  expect(v4(ipv4({.fragment = 5}, zeros(3)) + zeros(23)), 40, 43, true);
  EXPECT_EQ(v4(ipv4({.protocol = 17, .fragment = 5}, zeros(3)))->datagram.protocol, 17);
  EXPECT_EQ(v4(ipv4({.fragment = 5}, zeros(3)))->datagram.id, 77U);
  EXPECT_FALSE(v4(ipv4({}, tcp())));
  const Bytes behind = extension(44) + fragment6(60, 0, true) + extension(17) + udp(4);
  expect(v6(ipv6({.next = 0}, behind)), 0, 20, false);
  expect(v6(ipv6({.next = 0}, extension(44) + fragment6(17, 3, true) + udp())), 24, 32, false);
  expect(v6(ipv6({.next = 44}, fragment6(17, 8191, false) + udp())), 65528, 65536, true);
  EXPECT_FALSE(v6(ipv6({.next = 44}, fragment6(17, 0, false) + udp())));
}

TEST(ParseIpv6, ExtensionHeaders) {
  const Bytes chain = extension(60) + extension(43, 2) + extension(44, 3) +
                      fragment6(60, 0, false) + extension(60, 3) + extension(6);
  const Parsed p = raw(ipv6({.next = 0}, chain + tcp()));
  expect_tracked(p, key6(6, 1024, 443));
  EXPECT_EQ(p.headers.l4, 40 + chain.size());
  for (std::size_t length = 41; length < 40 + chain.size() + 4; ++length) {
    EXPECT_EQ(raw_verdict(cut(ipv6({.next = 0}, chain + tcp()), length)), Verdict::truncated)
        << length;
  }
}

TEST(ParseIpv6, ExtensionHeadersBeyondTheirPacket) {
  EXPECT_EQ(raw_verdict(ipv6({.next = 60}, zeros(7))), Verdict::malformed);
  EXPECT_EQ(raw_verdict(ipv6({.next = 60, .payload = 8}, extension(6, 2))), Verdict::malformed);
  EXPECT_EQ(raw_verdict(ipv6({.next = 60}, extension(6))), Verdict::malformed);
}

TEST(ParseIpv6, ChainsEndSomewhere) {
  Bytes chain;
  for (unsigned i = 1; i < kMaxExtensions; ++i) chain = chain + extension(60);
  expect_tracked(raw(ipv6({.next = 60}, chain + extension(17) + udp())), key6(17, 1024, 443));
  EXPECT_EQ(raw_verdict(ipv6({.next = 60}, chain + extension(60) + extension(17) + udp())),
            Verdict::header_chain);
  const unsigned units = (kMaxReach - 40) / 8;
  // The parser needs no more bytes than every port offers.
  const Bytes longest = ipv6({.next = 60}, extension(6, units) + tcp(1000));
  expect_tracked(raw(cut(longest, kOfferedBytes)), key6(6, 1024, 443));
  EXPECT_LE(raw(longest).headers.l4 + kTransportBytes, kOfferedBytes);
  EXPECT_EQ(
      raw_verdict(cut(ipv6({.next = 60}, extension(6, units + 1) + tcp(1000)), kOfferedBytes)),
      Verdict::header_chain);
  EXPECT_EQ(raw_verdict(ipv6({.next = 60}, extension(17, units) + udp())), Verdict::tracked);
  EXPECT_EQ(raw_verdict(ipv6({.next = 60}, extension(17, units + 1) + udp())),
            Verdict::header_chain);
}

TEST(ParseIpv6, SourceRouted) {
  EXPECT_EQ(raw_verdict(ipv6({.next = 43}, extension(6, 3, 1) + tcp())), Verdict::source_routed);
  EXPECT_EQ(raw_verdict(ipv6({.next = 60}, extension(6, 1, 1) + tcp())), Verdict::tracked);
}

// Whatever is behind an authentication header, the packet is tracked by its addresses.
TEST(ParseIp, AuthenticationByAddressesInBothFamilies) {
  for (const Bytes& behind : {authentication(6, 6) + tcp(), authentication(44, 6), zeros(1)}) {
    expect_tracked(raw(ipv4({.protocol = 51}, behind)), key4(51, 0, 0));
    expect_tracked(raw(ipv6({.next = 51}, behind)), key6(51, 0, 0));
    const Parsed p = raw(ipv6({.next = 60}, extension(51) + behind));
    expect_tracked(p, key6(51, 0, 0));
    EXPECT_EQ(p.headers.l4, 48);
  }
}

TEST(ParseIcmp, QueriesByIdentifier) {
  for (const unsigned type : {0U, 8U, 13U, 14U, 15U, 16U, 17U, 18U, 42U, 43U}) {
    expect_tracked(raw(ipv4({.protocol = 1}, icmp(type))), key4(1, 4660, 4660));
  }
  for (const unsigned type : {128U, 129U, 160U, 161U}) {
    expect_tracked(raw(ipv6({.next = 58}, icmp(type))), key6(58, 4660, 4660));
  }
  EXPECT_EQ(raw_verdict(ipv4({.protocol = 1}, cut(icmp(8), 5))), Verdict::malformed);
  EXPECT_EQ(raw_verdict(cut(ipv4({.protocol = 1}, icmp(8)), 25)), Verdict::truncated);
}

TEST(ParseIcmp, ErrorsAndControl) {
  for (const unsigned type : {3U, 4U, 11U, 12U}) {
    const Parsed p = raw(ipv4({.protocol = 1}, icmp(type)));
    expect_untracked(p, Verdict::icmp_error);
    expect_headers(p, 0, 20, 32);
  }
  for (const unsigned type : {5U, 9U, 10U, 40U, 63U, 64U, 255U}) {
    expect_untracked(raw(ipv4({.protocol = 1}, icmp(type))), Verdict::icmp_control);
  }
  for (const unsigned type : {1U, 2U, 3U, 4U, 127U}) {
    expect_untracked(raw(ipv6({.next = 58}, icmp(type))), Verdict::icmp_error);
  }
  for (const unsigned type : {130U, 133U, 134U, 135U, 136U, 137U, 143U, 159U, 162U}) {
    expect_untracked(raw(ipv6({.next = 58}, icmp(type))), Verdict::icmp_control);
  }
  EXPECT_EQ(raw_verdict(ipv4({.protocol = 1}, {})), Verdict::malformed);
  EXPECT_EQ(raw_verdict(ipv4({.protocol = 1, .total = 28}, {})), Verdict::truncated);
}

TEST(ParseBurst, FilesEachKeyWithItsPlace) {
  std::array<Bytes, 5> packets{tcp4(), zeros(40), tcp6(), ipv4({.protocol = 17}, udp()),
                               ipv6({.next = 58}, icmp(135))};
  auto burst = std::make_unique<Burst>();
  burst->v6.size = burst->v4.size = 9;
  for (Bytes& packet : packets) {
    burst->data[burst->size] = packet.data();
    burst->length[burst->size] = static_cast<std::uint16_t>(packet.size());
    burst->wire_length[burst->size++] = static_cast<std::uint32_t>(packet.size());
  }
  parse(*burst, LinkType::raw_ip);
  ASSERT_EQ(burst->v4.size, 2U);
  ASSERT_EQ(burst->v6.size, 1U);
  EXPECT_EQ(burst->v4.packet[0], 0);
  EXPECT_EQ(burst->v4.packet[1], 3);
  EXPECT_EQ(burst->v6.packet[0], 2);
  EXPECT_EQ(burst->v4.key[1], key4(17, 1024, 443));
  EXPECT_EQ(burst->verdict[1], Verdict::not_ip);
  EXPECT_EQ(burst->verdict[4], Verdict::icmp_control);
  EXPECT_EQ(burst->headers[1].family, 0);
}

}  // namespace
}  // namespace millrace::test
