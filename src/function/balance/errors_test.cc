// ICMP errors about packets that the balancer has rewritten.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "function/balance/test_line.h"
#include "parse/test_checksums.h"

namespace millrace {
namespace {

using test::Bytes;
using test::operator+;

template <class K>
class ErrorsTest : public TestServices<K> {
 public:
  using Line = BalanceLine<K>;
  using Spec = TestServices<K>::Spec;
  static constexpr bool kV4 = Line::kV4;
  static constexpr std::uint8_t kTcp = 6;
  static constexpr std::uint8_t kUdp = 17;
  static constexpr std::uint8_t kIcmp = kV4 ? 1 : 58;
  static constexpr unsigned kHeader = kV4 ? 20 : 40;
  static constexpr unsigned kSource = kV4 ? 12 : 8;
  static constexpr unsigned kAddress = kV4 ? 4 : 16;

  /// Returns the service at host v, port 80, any protocol. Its backends are the hosts that `names`
  /// spells, at `port`.
  static Spec service(const std::string& names, std::uint16_t port = 0) {
    Spec spec{.address = Line::host('v'), .port = 80, .scheduler = "round-robin", .backends = {}};
    for (const char name : names)
      spec.backends.push_back({.address = Line::host(name), .port = port});
    return spec;
  }
  static Spec any_port(const std::string& names) {
    Spec spec = service(names);
    spec.port = 0;
    return spec;
  }
  static Spec everything(const std::string& names) {
    Spec spec = any_port(names);
    spec.address = {};
    spec.prefix_bits = 0;
    return spec;
  }

  /// Returns the bytes of a packet between two ends, such as "x:1" and "v:80".
  static Bytes sent(const std::string& from, const std::string& to, unsigned protocol = kTcp) {
    Bytes payload = protocol == kTcp   ? test::tcp(33)
                    : protocol == kUdp ? test::udp(33)
                                       : test::icmp(kV4 ? 8 : 128);
    const auto [port, other] = std::pair(std::stoi(from.substr(2)), std::stoi(to.substr(2)));
    if (protocol == kIcmp) {
      test::put(payload, 4, static_cast<unsigned>(port));
    } else {
      test::put(payload, 0, static_cast<unsigned>(port));
      test::put(payload, 2, static_cast<unsigned>(other));
    }
    Bytes packet = between(from[0], to[0], protocol, payload);
    test::make_right(packet, {kV4 ? 4U : 6U, kHeader, protocol});
    return packet;
  }
  /// Returns the bytes of an ICMP error "destination unreachable" about that packet.
  static Bytes error(char from, char to, const Bytes& about) {
    const Bytes message = test::bytes({kV4 ? 3U : 1U, 4, 0, 0, 0, 0, 0, 0}) + about;
    Bytes packet = between(from, to, kIcmp, message);
    test::make_right(packet, {kV4 ? 4U : 6U, kHeader, kIcmp});
    return packet;
  }

  /// Sends the error `in` down the line, and expects it to leave as `out`.
  static void expect(Line& line, const Bytes& in, const Bytes& out) {
    EXPECT_EQ(to_string(line.send_error(in)), "related");
    EXPECT_EQ(line.bytes(), out);
  }
  static void expect_untouched(Line& line, const Bytes& in) {
    EXPECT_EQ(to_string(line.send_error(in)), "icmp_error");
    EXPECT_EQ(line.bytes(), in);
  }

 private:
  static Bytes between(char from, char to, unsigned protocol, const Bytes& payload) {
    Bytes packet =
        kV4 ? test::ipv4({.protocol = protocol}, payload) : test::ipv6({.next = protocol}, payload);
    const auto hosts = std::array{Line::host(from), Line::host(to)};
    for (unsigned i = 0; i < 2; ++i)
      std::memcpy(&packet[kSource + std::size_t{i} * kAddress], hosts[i].bytes.data(), kAddress);
    return packet;
  }
};
using Families = testing::Types<KeyV4, KeyV6>;
TYPED_TEST_SUITE(ErrorsTest, Families);

// The error must leave as if it had been made about the packet that its receiver sent: the same in
// every byte and checksum.
TYPED_TEST(ErrorsTest, GoOnToTheBackend) {
  using T = TestFixture;
  for (const std::uint8_t protocol : {T::kTcp, T::kUdp}) {
    typename T::Line line(T::config({T::service("ab", 8080)}));
    ASSERT_EQ(line.send({"x:1000", "v:80", protocol}).to, "a:8080");
    ASSERT_EQ(line.send({"x:1001", "v:80", protocol}).to, "b:8080");
    T::expect(line, T::error('r', 'v', T::sent("v:80", "x:1000", protocol)),
              T::error('r', 'a', T::sent("a:8080", "x:1000", protocol)));
    T::expect(line, T::error('x', 'v', T::sent("v:80", "x:1001", protocol)),
              T::error('x', 'b', T::sent("b:8080", "x:1001", protocol)));
  }
}

TYPED_TEST(ErrorsTest, WithAWrongChecksumAreDropped) {
  using T = TestFixture;
  typename T::Line line(T::config({T::service("a")}));
  ASSERT_EQ(line.send({"x:1", "v:80"}).to, "a:80");
  for (Bytes error :
       {T::error('r', 'v', T::sent("v:80", "x:1")), T::error('r', 'x', T::sent("x:1", "a:80"))}) {
    error.back() ^= std::byte{1};
    EXPECT_EQ(to_string(line.send_error(error)), "bad_checksum");
    EXPECT_EQ(line.bytes(), error);
  }
  // An error that concerns no connection is none of the balancer's business.
  Bytes error = T::error('r', 'v', T::sent("v:81", "x:1"));
  error.back() ^= std::byte{1};
  T::expect_untouched(line, error);
}

TYPED_TEST(ErrorsTest, GoOnToTheClientAsTheService) {
  using T = TestFixture;
  for (const std::uint8_t protocol : {T::kTcp, T::kUdp}) {
    typename T::Line line(T::config({T::service("ab", 8080)}));
    ASSERT_EQ(line.send({"x:1000", "v:80", protocol}).to, "a:8080");
    const Bytes out = T::error('v', 'x', T::sent("x:1000", "v:80", protocol));
    T::expect(line, T::error('a', 'x', T::sent("x:1000", "a:8080", protocol)), out);
    T::expect(line, T::error('r', 'x', T::sent("x:1000", "a:8080", protocol)), out);
  }
}

TYPED_TEST(ErrorsTest, AreCountedForNobody) {
  using T = TestFixture;
  typename T::Line line(T::config({T::service("a")}));
  ASSERT_EQ(line.send({"x:1", "v:80"}).to, "a:80");
  T::expect(line, T::error('r', 'v', T::sent("v:80", "x:1")),
            T::error('r', 'a', T::sent("a:80", "x:1")));
  T::expect(line, T::error('r', 'x', T::sent("x:1", "a:80")),
            T::error('v', 'x', T::sent("x:1", "v:80")));
  const auto service = line.balance().statistics()[0];
  EXPECT_EQ(service.backends[0].packets, 1U);
  EXPECT_EQ(service.backends[0].replies, 0U);
  EXPECT_EQ(service.backends[0].connections, 1U);
  EXPECT_EQ(service.stateless + service.refused + service.limited, 0U);
}

TYPED_TEST(ErrorsTest, OfAServiceThatTakesAnyPort) {
  using T = TestFixture;
  typename T::Line line(T::config({T::any_port("a")}));
  ASSERT_EQ(line.send({"x:1", "v:443"}).to, "a:443");
  T::expect(line, T::error('r', 'v', T::sent("v:443", "x:1")),
            T::error('r', 'a', T::sent("a:443", "x:1")));
  T::expect(line, T::error('r', 'x', T::sent("x:1", "a:443")),
            T::error('v', 'x', T::sent("x:1", "v:443")));
}

TYPED_TEST(ErrorsTest, AboutEchoesGoByTheirIdentifier) {
  using T = TestFixture;
  typename T::Line line(T::config({T::any_port("ab")}));
  ASSERT_EQ(line.send({"x:7", "v:7", T::kIcmp}).verdict, Verdict::tracked);
  ASSERT_EQ(line.send({"x:8", "v:8", T::kIcmp}).verdict, Verdict::tracked);
  for (const auto& [port, backend] : {std::pair(":7", 'a'), std::pair(":8", 'b')}) {
    const auto of = [&](char host) { return host + std::string(port); };
    T::expect(line, T::error('r', 'v', T::sent(of('v'), of('x'), T::kIcmp)),
              T::error('r', backend, T::sent(of(backend), of('x'), T::kIcmp)));
    T::expect(line, T::error('r', 'x', T::sent(of('x'), of(backend), T::kIcmp)),
              T::error('v', 'x', T::sent(of('x'), of('v'), T::kIcmp)));
  }
}

// For a packet without an entry, consistent hashing says which backend it was sent to.
TYPED_TEST(ErrorsTest, WithoutAnEntryGoWhereMaglevSays) {
  using T = TestFixture;
  typename T::Line line(T::config({T::service("abcdefgh", 8080)}));
  line.full = true;
  for (int port = 1; port < 40; ++port) {
    const std::string client = "x:" + std::to_string(port);
    const auto stateless = line.send({client, "v:80"});
    ASSERT_EQ(stateless.verdict, Verdict::stateless);
    const char backend = stateless.to[0];
    T::expect(line, T::error('r', 'v', T::sent("v:80", client)),
              T::error('r', backend, T::sent(stateless.to, client)));
    for (const char asked : std::string("abcdefgh")) {
      const Bytes in = T::error('r', 'x', T::sent(client, std::string(1, asked) + ":8080"));
      if (asked == backend) {
        T::expect(line, in, T::error('v', 'x', T::sent(client, "v:80")));
      } else {
        T::expect_untouched(line, in);
      }
    }
  }
  EXPECT_EQ(line.balance().statistics()[0].stateless, 39U);
}

TYPED_TEST(ErrorsTest, AnEntryCountsMoreThanMaglev) {
  using T = TestFixture;
  typename T::Line line(T::config({T::service("a")}));
  ASSERT_EQ(line.send({"x:1", "v:80"}).to, "a:80");
  line.update(T::only({T::service("bc")}));  // `a` drains
  T::expect(line, T::error('r', 'v', T::sent("v:80", "x:1")),
            T::error('r', 'a', T::sent("a:80", "x:1")));
  T::expect(line, T::error('r', 'x', T::sent("x:1", "a:80")),
            T::error('v', 'x', T::sent("x:1", "v:80")));
}

TYPED_TEST(ErrorsTest, AboutWhatConcernsNoServiceStay) {
  using T = TestFixture;
  typename T::Line line(T::config({T::service("a")}));
  ASSERT_EQ(line.send({"x:1", "v:80"}).to, "a:80");
  T::expect_untouched(line, T::error('r', 'v', T::sent("v:81", "x:1")));
  T::expect_untouched(line, T::error('r', 'x', T::sent("x:1", "a:81")));
  T::expect_untouched(line, T::error('r', 'x', T::sent("x:1", "z:80")));
  // This error is addressed to the quoted packet's sender already.
  T::expect_untouched(line, T::error('r', 'a', T::sent("a:80", "x:1")));
  // These errors go to another host than the sender of the packet that they quote.
  T::expect_untouched(line, T::error('r', 'v', T::sent("a:80", "x:1")));
  T::expect_untouched(line, T::error('r', 'v', T::sent("x:1", "v:80")));
  T::expect_untouched(line, T::error('r', 'y', T::sent("v:80", "x:1")));
  T::expect_untouched(line, T::error('r', 'y', T::sent("x:1", "a:80")));
  typename T::Line nothing(T::config({}));
  T::expect_untouched(nothing, T::error('r', 'v', T::sent("v:80", "x:1")));
  auto spec = T::service("a");
  spec.backends[0].weight = 0;
  typename T::Line unwilling(T::config({spec}));
  T::expect_untouched(unwilling, T::error('r', 'v', T::sent("v:80", "x:1")));
}

// Replies of a one-way service do not pass the balancer, but errors about them do, since these are
// sent to the service's address.
TYPED_TEST(ErrorsTest, OfOneWayServicesGoOnToTheBackend) {
  using T = TestFixture;
  auto config = T::config({T::service("abcd")});
  config.stateful = false;
  typename T::Line stateless(config);
  const auto there = stateless.send({"x:1", "v:80"});
  ASSERT_EQ(there.verdict, Verdict::stateless);
  T::expect(stateless, T::error('r', 'v', T::sent("v:80", "x:1")),
            T::error('r', there.to[0], T::sent(there.to, "x:1")));
  T::expect_untouched(stateless, T::error('r', 'x', T::sent("x:1", there.to)));

  typename T::Line prefix(T::config({T::everything("ab")}));
  ASSERT_EQ(prefix.send({"x:1", "y:2"}).to, "a:2");
  ASSERT_EQ(prefix.send({"x:2", "y:2"}).to, "b:2");
  T::expect(prefix, T::error('r', 'y', T::sent("y:2", "x:1")),
            T::error('r', 'a', T::sent("a:2", "x:1")));
  T::expect(prefix, T::error('r', 'y', T::sent("y:2", "x:2")),
            T::error('r', 'b', T::sent("b:2", "x:2")));
}

// A backend that answers clients itself must get the errors unchanged.
TYPED_TEST(ErrorsTest, OfDirectReturnGoToTheServerAsTheyCame) {
  using T = TestFixture;
  auto spec = T::service("a");
  spec.forward = Forward::dsr;
  typename T::Line line(T::config({spec}));
  ASSERT_EQ(line.send({"x:1", "v:80"}).by, "a");
  for (const std::string client : {"x:1", "x:2"}) {  // x:1 has an entry, x:2 has none
    const Bytes in = T::error('r', 'v', T::sent("v:80", client));
    T::expect(line, in, in);
    EXPECT_EQ(line.next_hop(), "a");
  }
  T::expect_untouched(line, T::error('r', 'x', T::sent("x:1", "a:80")));
  EXPECT_EQ(line.next_hop(), "");
}

// The clients of a service are within a prefix that is a service, too. An error to such a client
// goes on as a reply if the quoted packet went to a backend of the service, else to the backend of
// the prefix.
TYPED_TEST(ErrorsTest, BesideACatchAllGoToWhomTheyConcern) {
  using T = TestFixture;
  typename T::Line line(T::config({T::service("a", 8080), T::everything("m")}));
  ASSERT_EQ(line.send({"x:1", "v:80"}).to, "a:8080");
  T::expect(line, T::error('r', 'v', T::sent("v:80", "x:1")),
            T::error('r', 'a', T::sent("a:8080", "x:1")));
  T::expect(line, T::error('r', 'x', T::sent("x:1", "a:8080")),
            T::error('v', 'x', T::sent("x:1", "v:80")));
  T::expect(line, T::error('r', 'x', T::sent("x:1", "y:2")),
            T::error('r', 'm', T::sent("m:1", "y:2")));
}

}  // namespace
}  // namespace millrace
