#include "parse/quote.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "parse/test_checksums.h"
#include "parse/test_packets.h"

namespace millrace::test {
namespace {

template <class K>
class QuoteTest : public testing::Test {
 protected:
  using Address = typename K::Address;
  static constexpr bool kV4 = Address::kBytes == 4;
  static constexpr unsigned kFamily = kV4 ? 4 : 6;
  static constexpr unsigned kHeader = kV4 ? 20 : 40;
  static constexpr unsigned kSource = kV4 ? 12 : 8;
  static constexpr unsigned kIcmp = kV4 ? 1 : 58;
  static constexpr unsigned kUnreachable = kV4 ? 3 : 1;
  static constexpr unsigned kEcho = kV4 ? 8 : 128;
  static constexpr unsigned kQuote = kHeader + 8;

  /// Returns a packet against the error's direction: from 198.51.100.2 to 192.0.2.1, or from
  /// 2001:db8::2 to 2001:db8::1.
  static Bytes sent(unsigned protocol, const Bytes& payload) {
    return turned(ip(protocol, payload));
  }
  static Bytes ip(unsigned protocol, const Bytes& payload) {
    return kV4 ? ipv4({.protocol = protocol}, payload) : ipv6({.next = protocol}, payload);
  }
  static Bytes turned(Bytes packet) {
    const auto source = packet.begin() + kSource;
    std::swap_ranges(source, source + Address::kBytes, source + Address::kBytes);
    return packet;
  }
  static Bytes error(const Bytes& quote, unsigned type = kUnreachable, unsigned words = 0) {
    const Bytes lengths = kV4 ? bytes({0, words, 0, 0}) : bytes({words, 0, 0, 0});
    return ip(kIcmp, bytes({type, 0, 0, 0}) + lengths + quote);
  }
  /// Returns the key that the parser files for an error about a packet between these ports.
  static K key(unsigned protocol, unsigned from, unsigned to) {
    K key;
    const Bytes packet = ip(protocol, {});
    std::memcpy(key.source.bytes.data(), &packet[kSource], Address::kBytes);
    std::memcpy(key.destination.bytes.data(), &packet[kSource + Address::kBytes], Address::kBytes);
    key.source_port = static_cast<std::uint16_t>(to);
    key.destination_port = static_cast<std::uint16_t>(from);
    key.protocol = static_cast<std::uint8_t>(protocol);
    return key;
  }
  /// Returns the key that the parser files for the packet as an ICMP error; none if it files none.
  static std::optional<K> filed(const Bytes& packet) {
    const Parsed p = parse(LinkType::raw_ip, packet);
    EXPECT_EQ(to_string(p.verdict), "icmp_error");
    EXPECT_EQ(p.v4 + p.v6, 0U);
    EXPECT_FALSE(p.quoted4 && p.quoted6);
    return p.quoted<K>();
  }

  std::mt19937 random{3};
};
using Families = testing::Types<KeyV4, KeyV6>;
TYPED_TEST_SUITE(QuoteTest, Families);

TYPED_TEST(QuoteTest, IsFiledReversed) {
  using T = TestFixture;
  for (const unsigned type : T::kV4 ? std::vector{3U, 4U, 11U, 12U} : std::vector{1U, 2U, 3U, 127U})
    EXPECT_EQ(T::filed(T::error(T::sent(6, tcp(9)), type)), T::key(6, 1024, 443)) << type;
  EXPECT_EQ(T::filed(T::error(T::sent(17, udp()))), T::key(17, 1024, 443));
  for (const unsigned protocol : {33U, 132U, 136U})
    EXPECT_EQ(T::filed(T::error(T::sent(protocol, udp(4)))), T::key(protocol, 1024, 443));
  EXPECT_EQ(T::filed(T::error(T::sent(T::kIcmp, icmp(T::kEcho)))), T::key(T::kIcmp, 4660, 4660));
  EXPECT_EQ(T::filed(T::error(T::sent(47, zeros(8)))), T::key(47, 0, 0));
}

TYPED_TEST(QuoteTest, IsFiledBehindOptionsAndExtensions) {
  using T = TestFixture;
  if (T::kV4) {
    for (unsigned words = 1; words <= 10; ++words) {
      const Bytes options(4 * std::size_t{words}, std::byte{1});
      EXPECT_EQ(T::filed(T::error(T::turned(ipv4({.options = options}, tcp())))),
                T::key(6, 1024, 443));
    }
  } else {
    const Bytes chain = extension(60) + extension(44, 3) + fragment6(6, 0, true) + tcp();
    EXPECT_EQ(T::filed(T::error(T::turned(ipv6({.next = 0}, chain)))), T::key(6, 1024, 443));
  }
  EXPECT_EQ(T::filed(T::error(T::sent(51, authentication(6, 6) + tcp()))), T::key(51, 0, 0));
}

// The error's sender may have cut the quote short, and the capture may have been cut short, too.
TYPED_TEST(QuoteTest, MayEndBehindThePorts) {
  using T = TestFixture;
  struct Kind {
    unsigned protocol;
    Bytes payload;
    unsigned needed;
    unsigned port[2];
  };
  const std::vector<Kind> kinds{{6, tcp(20), 4, {1024, 443}},
                                {17, udp(20), 4, {1024, 443}},
                                {T::kIcmp, icmp(T::kEcho), 6, {4660, 4660}}};
  for (const Kind& kind : kinds) {
    const Bytes quote = T::sent(kind.protocol, kind.payload);
    const Bytes whole = T::error(quote);
    for (std::size_t size = 0; size <= quote.size(); ++size) {
      const bool suffices = size >= T::kHeader + kind.needed;
      const auto expected = suffices
                                ? std::optional(T::key(kind.protocol, kind.port[0], kind.port[1]))
                                : std::nullopt;
      EXPECT_EQ(T::filed(T::error(cut(quote, size))), expected) << size;
      EXPECT_EQ(T::filed(T::error(cut(quote, size)) + zeros(40)), expected) << "padded " << size;
      EXPECT_EQ(T::filed(cut(whole, T::kQuote + size)), expected) << "captured " << size;
    }
  }
  for (std::size_t size = 1; size < 8; ++size)
    EXPECT_EQ(T::filed(T::ip(T::kIcmp, cut(bytes({T::kUnreachable}) + zeros(7), size))),
              std::nullopt);
}

TYPED_TEST(QuoteTest, IsNotFiledWhereItIsNothingTracked) {
  using T = TestFixture;
  EXPECT_EQ(T::filed(T::error(T::sent(T::kIcmp, icmp(T::kUnreachable)))), std::nullopt);
  EXPECT_EQ(T::filed(T::error(T::sent(T::kIcmp, icmp(T::kV4 ? 5 : 137)))), std::nullopt);
  EXPECT_EQ(T::filed(T::error(T::kV4 ? ipv6({}, tcp()) : ipv4({}, tcp()))), std::nullopt);
  if (T::kV4) {
    EXPECT_EQ(T::filed(T::error(T::turned(ipv4({.fragment = 0x2001}, tcp())))), std::nullopt);
    EXPECT_EQ(T::filed(T::error(T::turned(ipv4({.total = 19}, tcp())))), std::nullopt);
    const Bytes route = bytes({131, 7, 4, 9, 9, 9, 9, 0});
    EXPECT_EQ(T::filed(T::error(T::turned(ipv4({.options = route}, tcp())))), std::nullopt);
  } else {
    EXPECT_EQ(T::filed(T::error(T::turned(ipv6({.next = 44}, fragment6(6, 1, false) + tcp())))),
              std::nullopt);
    EXPECT_EQ(T::filed(T::error(T::turned(ipv6({.next = 43}, extension(6, 1, 1) + tcp())))),
              std::nullopt);
    EXPECT_EQ(T::filed(T::error(T::turned(ipv6({.next = 0}, extension(60, 60) + tcp())))),
              std::nullopt);
  }
}

// Changes each byte of the quoted source, and of the error's own destination.
TYPED_TEST(QuoteTest, IsNotFiledWhereItsSourceIsNotTheOneToBeTold) {
  using T = TestFixture;
  const Bytes real = T::error(T::sent(6, tcp()));
  ASSERT_TRUE(T::filed(real));
  for (const unsigned at : {T::kSource + T::Address::kBytes, T::kQuote + T::kSource}) {
    for (unsigned i = 0; i < T::Address::kBytes; ++i) {
      Bytes forged = real;
      forged[at + i] ^= std::byte{1};
      EXPECT_EQ(T::filed(forged), std::nullopt);
    }
  }
}

// Extensions follow the original datagram, and are not part of it (RFC 4884, 4).
TYPED_TEST(QuoteTest, EndsWhereExtensionsBegin) {
  using T = TestFixture;
  const unsigned unit = T::kV4 ? 4 : 8;
  const Bytes quote = T::sent(6, tcp(100)) + zeros(unit);
  for (const unsigned type : T::kV4 ? std::vector{3U, 11U, 12U, 4U} : std::vector{1U, 3U, 2U, 4U}) {
    const bool says_so = T::kV4 ? type != 4 : type % 2 == 1;
    for (unsigned words = 1; words * unit <= quote.size(); ++words) {
      const bool suffices = !says_so || words * unit >= T::kHeader + 4;
      EXPECT_EQ(T::filed(T::error(quote, type, words)).has_value(), suffices) << words;
      EXPECT_EQ(T::filed(T::error(cut(quote, T::kHeader + 12), type, words)).has_value(), suffices);
    }
  }
  const unsigned words = (T::kHeader + 16 + unit - 1) / unit;
  const Bytes packet = T::error(quote, T::kUnreachable, words);
  const Parsed p = parse(LinkType::raw_ip, packet);
  const auto found = read_quote<TypeParam>(p.memory.get(), p.headers);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->headers.l4_end, T::kQuote + words * unit);
}

/// Returns the error with one end of its quote rewritten, in memory that ends with the packet.
template <class K>
Bytes with_quote(End end, const Bytes& packet, const typename K::Address& address,
                 std::uint16_t port) {
  const Parsed p = parse(LinkType::raw_ip, packet);
  const auto quote = read_quote<K>(p.memory.get(), p.headers);
  if (!quote) {
    ADD_FAILURE() << "the error quotes no packet";
    return packet;
  }
  K is = quote->key;
  (end == End::source ? is.source : is.destination) = address;
  if (has_ports(is.protocol)) (end == End::source ? is.source_port : is.destination_port) = port;
  rewrite_quote(p.memory.get(), p.headers, *quote, is);
  return {p.memory.get(), p.memory.get() + p.length};
}

constexpr unsigned kProtocols[] = {6, 17, 33, 136, 132, 1, 58};

TYPED_TEST(QuoteTest, RightChecksumsStayRight) {
  using T = TestFixture;
  for (const unsigned protocol : kProtocols) {
    if (protocol == (T::kV4 ? 58 : 1)) continue;
    const Layout inner{T::kFamily, T::kHeader, protocol};
    const Layout outer{T::kFamily, T::kHeader, T::kIcmp};
    const bool ports = has_ports(static_cast<std::uint8_t>(protocol));
    for (int round = 0; round < 1000; ++round) {
      Bytes quote = T::turned(packet(T::kFamily, protocol, this->random, 20 + this->random() % 50));
      const auto finish = [&](Bytes& p) {
        if (protocol != 132) return make_right(p, inner);
        const Bytes right = with_right_sctp({p.begin() + T::kHeader, p.end()});
        std::ranges::copy(right, p.begin() + T::kHeader);
        if (T::kV4) make_right_l3(p);
      };
      finish(quote);
      // Quotes of all sizes, from 8 bytes of the transport header to the whole packet.
      const std::size_t size =
          round % 2 == 0 ? quote.size()
                         : T::kHeader + 8 + this->random() % (quote.size() - T::kHeader - 8);
      Bytes p = T::error(cut(quote, size));
      make_right(p, outer);
      const End end = this->random() % 2 == 0 ? End::source : End::destination;
      const auto address = random_address<TypeParam>(this->random);
      const auto port = static_cast<std::uint16_t>(this->random());
      const Bytes q = with_quote<TypeParam>(end, p, address, port);
      ASSERT_EQ(l4_error(q, outer) % 0xffff, 0U) << protocol << " of " << size;

      // The quote must be what it would be if the packet had been sent with the new address, port
      // and checksums.
      const unsigned place = end == End::source ? 0 : 1;
      Bytes expected = quote;
      std::memcpy(expected.data() + inner.source() + std::size_t{place} * inner.address(),
                  address.bytes.data(), address.bytes.size());
      if (ports) put(expected, T::kHeader + 2 * place, port);
      finish(expected);
      const std::size_t field = T::kHeader + (protocol == 132 ? 8 : inner.checksum());
      if (size < field + (protocol == 132 ? 4 : 2))  // the quote ends within or before the checksum
        std::copy(quote.begin() + static_cast<std::ptrdiff_t>(field), quote.end(),
                  expected.begin() + static_cast<std::ptrdiff_t>(field));
      ASSERT_EQ(Bytes(q.begin() + T::kQuote, q.end()), cut(expected, size)) << protocol;
      Bytes outside = q;
      std::copy(p.begin() + T::kQuote, p.end(), outside.begin() + T::kQuote);
      put(outside, T::kHeader + 2, get(p, T::kHeader + 2));
      ASSERT_EQ(outside, p);
    }
  }
}

TYPED_TEST(QuoteTest, WrongChecksumsStayAsWrong) {
  using T = TestFixture;
  for (const unsigned protocol : {6U, 17U, T::kIcmp}) {
    const Layout inner{T::kFamily, T::kHeader, protocol};
    const Layout outer{T::kFamily, T::kHeader, T::kIcmp};
    for (int round = 0; round < 1000; ++round) {
      Bytes quote = T::turned(packet(T::kFamily, protocol, this->random, 20 + this->random() % 50));
      if (T::kV4) put(quote, 10, static_cast<unsigned>(this->random()));
      const unsigned at = T::kHeader + inner.checksum();
      if (get(quote, at) == 0) put(quote, at, 1);
      Bytes p = T::error(quote);
      put(p, T::kHeader + 2, static_cast<unsigned>(this->random()));
      const Bytes q =
          with_quote<TypeParam>(End::destination, p, random_address<TypeParam>(this->random),
                                static_cast<std::uint16_t>(this->random()));
      ASSERT_EQ(distance(l4_error(q, outer), l4_error(p, outer)), 0U) << protocol;
      const Bytes quoted(q.begin() + T::kQuote, q.end());
      ASSERT_EQ(distance(l4_error(quoted, inner), l4_error(quote, inner)), 0U) << protocol;
      if (T::kV4) {
        ASSERT_EQ(distance(l3_error(quoted), l3_error(quote)), 0U);
      }
    }
  }
}

// The length of the quote, and the extensions behind it with a checksum of their own (RFC 4884, 7),
// stay as they are. Options and extension headers stand in the quote.
TYPED_TEST(QuoteTest, ExtensionsStayRight) {
  using T = TestFixture;
  const Layout outer{T::kFamily, T::kHeader, T::kIcmp};
  for (const unsigned options : {0U, 8U, 40U}) {
    if (!T::kV4 && options == 40) continue;
    Bytes quote = T::kV4 ? ipv4({.options = Bytes(options, std::byte{1})}, tcp(200))
                         : ipv6({.next = options == 0 ? 6U : 60U},
                                options == 0 ? tcp(200) : extension(6) + tcp(200));
    quote = T::turned(quote);
    if (T::kV4) make_right_l3(quote);
    make_right(quote, {6, T::kHeader + options, 6});
    for (const unsigned size : {128U, 192U}) {
      // An object of class 1: a label of MPLS (RFC 4950).
      Bytes extension = bytes({0x20, 0, 0, 0, 0, 8, 1, 1, 0x12, 0x34, 0x51, 0xff});
      put(extension, 2, ~plain_sum(extension.data(), extension.size(), 0) & 0xffff);
      Bytes p = T::error(cut(quote, size) + extension, T::kUnreachable, size / (T::kV4 ? 4 : 8));
      make_right(p, outer);
      const auto address = random_address<TypeParam>(this->random);
      const Bytes q = with_quote<TypeParam>(End::destination, p, address, 9);
      EXPECT_EQ(l4_error(q, outer) % 0xffff, 0U);
      EXPECT_EQ(Bytes(q.end() - 12, q.end()), extension);
      EXPECT_EQ(Bytes(q.begin() + T::kHeader + 4, q.begin() + T::kHeader + 8),
                Bytes(p.begin() + T::kHeader + 4, p.begin() + T::kHeader + 8));
      EXPECT_EQ(get(q, T::kQuote + T::kHeader + options + 2), 9U);
      if (T::kV4) {
        const Bytes quoted(q.begin() + T::kQuote, q.end());
        EXPECT_EQ(l3_error(quoted), 0U);
      }
    }
  }
}

TYPED_TEST(QuoteTest, WrongChecksumsOfErrorsAreFound) {
  using T = TestFixture;
  const Layout outer{T::kFamily, T::kHeader, T::kIcmp};
  const auto is_wrong = [](const Bytes& packet) {
    const Parsed p = parse(LinkType::raw_ip, packet);
    EXPECT_EQ(to_string(p.verdict), "icmp_error");
    return has_wrong_checksum<TypeParam>(p.memory.get(), p.headers);
  };
  for (int round = 0; round < 500; ++round) {
    Bytes p = T::error(T::turned(packet(T::kFamily, 17, this->random, 8 + this->random() % 70)));
    make_right(p, outer);
    EXPECT_FALSE(is_wrong(p));
    EXPECT_FALSE(is_wrong(p + zeros(9))) << "bytes behind the packet";
    Bytes wrong = p;
    const std::size_t at = T::kHeader + this->random() % (p.size() - T::kHeader);
    if (at != T::kHeader) wrong[at] ^= std::byte{1};
    EXPECT_EQ(is_wrong(wrong), at != T::kHeader) << at;
    EXPECT_FALSE(is_wrong(cut(wrong, p.size() - 1))) << "the last byte is not known";
  }
  // Checksums of fragments cover the whole datagram. A source or destination counts for ICMPv6.
  Bytes p = T::error(T::sent(17, udp(9)));
  put(p, T::kHeader + 2, 0x1234);
  EXPECT_TRUE(is_wrong(p));
  if (T::kV4) {
    p[6] = std::byte{0x20};
    EXPECT_FALSE(is_wrong(p));
  } else {
    make_right(p, outer);
    p[T::kSource] ^= std::byte{1};
    EXPECT_TRUE(is_wrong(p));
    Bytes rest(p.begin() + T::kHeader, p.end());
    rest.back() ^= std::byte{1};
    EXPECT_FALSE(is_wrong(ipv6({.next = 44}, fragment6(58, 0, true) + rest)));
    EXPECT_TRUE(is_wrong(ipv6({.next = 44}, fragment6(58, 0, false) + rest)));
  }
}

TYPED_TEST(QuoteTest, AUdpChecksumOfZeroIsKept) {
  using T = TestFixture;
  Bytes p = T::error(T::sent(17, udp(11)));
  const Layout outer{T::kFamily, T::kHeader, T::kIcmp};
  make_right(p, outer);
  const Bytes q = with_quote<TypeParam>(End::source, p, random_address<TypeParam>(this->random), 9);
  EXPECT_EQ(get(q, T::kQuote + T::kHeader), 9U);
  EXPECT_EQ(get(q, T::kQuote + T::kHeader + 6), 0U);
  EXPECT_EQ(l4_error(q, outer) % 0xffff, 0U);
}

TYPED_TEST(QuoteTest, WritingWhatIsThereChangesNothing) {
  using T = TestFixture;
  Bytes p = T::error(T::sent(6, tcp(5)));
  put(p, T::kHeader + 2, 0xffff);
  typename TypeParam::Address address;
  std::memcpy(address.bytes.data(), &p[T::kQuote + T::kSource], address.kBytes);
  put(p, T::kQuote + T::kHeader + 16, 0x1234);
  if (T::kV4) put(p, T::kQuote + 10, 0x1234);
  EXPECT_EQ(with_quote<TypeParam>(End::source, p, address, 1024), p);
}

// The quote ends after the first 8 bytes of TCP, and extensions follow: there is no TCP checksum.
TYPED_TEST(QuoteTest, ChecksumsAreNotSoughtInExtensions) {
  using T = TestFixture;
  const unsigned words = T::kV4 ? 7 : 6;  // 28 or 48 bytes: the IP header and 8 bytes of TCP
  const Bytes quote = T::sent(6, tcp(100));
  const Bytes p = T::error(quote, T::kUnreachable, words);
  const Bytes q = with_quote<TypeParam>(End::source, p, random_address<TypeParam>(this->random), 9);
  EXPECT_EQ(get(q, T::kQuote + T::kHeader), 9U);
  EXPECT_TRUE(std::equal(p.begin() + T::kQuote + T::kHeader + 8, p.end(),
                         q.begin() + T::kQuote + T::kHeader + 8));
}

TEST(QuoteInBurst, FilesErrorsApart) {
  Bytes inner = ipv4({}, tcp());
  std::swap_ranges(inner.begin() + 12, inner.begin() + 16, inner.begin() + 16);
  const Bytes error = ipv4({.protocol = 1}, bytes({11, 0, 0, 0}) + zeros(4) + inner);
  std::vector<Bytes> packets{ipv4({}, tcp()), error, ipv6({}, tcp()), error,
                             ipv4({.protocol = 1}, icmp(3))};
  auto burst = std::make_unique<Burst>();
  burst->quoted_v4.size = 9;
  burst->quoted_v6.size = 9;
  for (Bytes& packet : packets) {
    burst->data[burst->size] = packet.data();
    burst->length[burst->size++] = static_cast<std::uint16_t>(packet.size());
  }
  parse(*burst, LinkType::raw_ip);
  ASSERT_EQ(burst->quoted_v4.size, 2U);
  EXPECT_EQ(burst->quoted_v4.packet[0], 1);
  EXPECT_EQ(burst->quoted_v4.packet[1], 3);
  EXPECT_EQ(burst->signal[3], Signal::packet);
  EXPECT_EQ(burst->quoted_v6.size, 0U);
  EXPECT_EQ(burst->v4.size, 1U);
  EXPECT_EQ(burst->v6.size, 1U);
}

}  // namespace
}  // namespace millrace::test
