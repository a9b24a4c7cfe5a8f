#include "live/filter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/address.h"
#include "live/tracer.h"
#include "parse/test_packets.h"

namespace millrace {
namespace {

using Given = std::vector<std::pair<std::string, std::string>>;

bool knows_none(std::string_view) { return false; }

KeyV4 key(const char* from, std::uint16_t port) {
  return {.source = *parse_address<AddressV4>(from),
          .destination = *parse_address<AddressV4>("203.0.113.10"),
          .source_port = port,
          .destination_port = 80,
          .protocol = 6};
}
ListedConnection connection(const char* from, std::uint16_t port, const char* backend) {
  KeyV4 to = key(from, port);
  to.destination = *parse_address<AddressV4>(backend);
  to.destination_port = 8080;
  return {.key = key(from, port), .translated = to, .state = ConnectionState::fin_wait_reply};
}

/// The customers 1, at a far end of his own, and 2 to 5, in a prefix.
const Customers kCustomers(
    {{.link = 0, .ends = {*parse_address<AddressV4>("172.18.0.9"), 32}, .key = 7, .name = "c17"},
     {.link = 0, .ends = {*parse_address<AddressV4>("172.17.0.0"), 30}, .key = {}, .name = {}}});

TEST(ConnectionFilter, CustomersWithEqualAddresses) {
  ListedConnection from = connection("10.0.0.5", 1234, "198.51.100.1");
  ListedConnection to = connection("198.51.100.1", 1234, "10.0.0.5");
  std::get<KeyV4>(from.key).set_zone(3);
  std::get<KeyV4>(to.translated).set_zone(1);
  const auto takes = [&](const std::string& customer) {
    const auto filter = parse_filter(Given{{"customer", customer}}, kCustomers, knows_none);
    EXPECT_TRUE(filter.has_value()) << filter.error().message;
    EXPECT_FALSE(filter->takes_all());
    EXPECT_FALSE(filter->takes(connection("10.0.0.5", 1234, "198.51.100.1")));
    return std::pair(filter->takes(from), filter->takes(to));
  };
  EXPECT_EQ(takes("c17"), std::pair(false, true));
  EXPECT_EQ(takes("172.17.0.1"), std::pair(true, false));
  EXPECT_EQ(takes("172.17.0.2"), std::pair(false, false));
  EXPECT_EQ(takes("172.17.0.0/30"), std::pair(true, false));
  const auto wrong = parse_filter(Given{{"customer", "c18"}}, kCustomers, knows_none);
  ASSERT_FALSE(wrong.has_value());
  EXPECT_NE(wrong.error().message.find("is no customer"), std::string::npos);
}

TEST(ConnectionFilter, AllPartsMustHold) {
  const ListedConnection one = connection("198.51.100.7", 1234, "10.0.0.1");
  const auto takes = [&one](const Given& given) {
    const auto filter = parse_filter(given, kCustomers, knows_none);
    EXPECT_TRUE(filter.has_value()) << filter.error().message;
    return filter && filter->takes(one);
  };
  EXPECT_TRUE(takes({}));
  EXPECT_FALSE(takes({{"source", "198.51.100.7"}, {"source_port", "80"}}));
  for (const auto& [name, yes, no] :
       std::vector<std::array<std::string, 3>>{{"protocol", "tcp", "udp"},
                                               {"protocol", "6", "7"},
                                               {"source", "198.51.100.7", "198.51.100.8"},
                                               {"source", "198.51.100.0/24", "198.51.101.0/24"},
                                               {"source", "0.0.0.0/0", "::/0"},
                                               {"source", "198.51.100.255/24", "198.51.100.255"},
                                               {"destination", "203.0.113.10", "10.0.0.1"},
                                               {"source_port", "1234", "80"},
                                               {"destination_port", "80", "8080"},
                                               {"state", "fin_wait", "established"},
                                               {"backend", "10.0.0.1", "10.0.0.2"},
                                               {"backend", "10.0.0.1:8080", "10.0.0.1:80"}}) {
    EXPECT_TRUE(takes({{name, yes}})) << name << " " << yes;
    EXPECT_FALSE(takes({{name, no}})) << name << " " << no;
  }
}

TEST(ConnectionFilter, SaysWhatIsWrong) {
  const auto message = [](const std::string& name, const std::string& value) {
    const auto filter = parse_filter(Given{{name, value}}, Customers{}, knows_none);
    return filter ? "" : filter.error().message;
  };
  for (const auto& [name, value, words] :
       std::vector<std::array<std::string, 3>>{{"protocol", "tpc", "give tcp, udp"},
                                               {"protocol", "256", "give tcp, udp"},
                                               {"source", "10.0.0.0/33", "0 to 32"},
                                               {"source", "10.0.0.0/", "0 to 32"},
                                               {"source", "fd00::/129", "0 to 128"},
                                               {"source", "example", "is no address"},
                                               {"source_port", "65536", "0 to 65535"},
                                               {"source_port", "-1", "0 to 65535"},
                                               {"state", "open", "docs/states.md"},
                                               {"backend", "10.0.0.1:", "give one like"},
                                               {"backend", "fd00::1:80:x", "give one like"},
                                               {"backend", "[10.0.0.1]:80", "give one like"},
                                               {"colour", "red", "protocol, source"}}) {
    EXPECT_NE(message(name, value).find(words), std::string::npos)
        << name << " " << value << ": " << message(name, value);
  }
  EXPECT_TRUE(parse_filter(Given{{"all", "true"}}, Customers{}, [](std::string_view name) {
                return name == "all";
              }).has_value());
}

TEST(ConnectionFilter, NamesOfBackends) {
  EXPECT_EQ(parse_backend("10.0.0.1")->port, std::nullopt);
  EXPECT_EQ(parse_backend("10.0.0.1:80")->port, 80);
  EXPECT_EQ(parse_backend("[fd00::1]:80")->port, 80);
  EXPECT_EQ(parse_backend("fd00::1")->port, std::nullopt);
}

TEST(ConnectionFilter, Keys) {
  const Given whole{{"protocol", "tcp"},
                    {"source", "198.51.100.7"},
                    {"source_port", "1234"},
                    {"destination", "203.0.113.10"},
                    {"destination_port", "80"}};
  const auto parsed = parse_key(whole, Customers{});
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(std::get<KeyV4>(*parsed), key("198.51.100.7", 1234));
  EXPECT_FALSE(parse_key(Given{{"protocol", "tcp"}, {"source", "::1"}}, Customers{}).has_value());
  EXPECT_FALSE(parse_key(Given{{"protocol", "tcp"}, {"source", "::1"}, {"destination", "10.0.0.1"}},
                         Customers{})
                   .has_value());
}

/// Returns how many copies a trace shows of a packet that leaves unchanged: 2 (as it arrived and as
/// it left) or 0. `file` changes the lanes and the verdict of the parsed packet, and `rewrite` the
/// packet, as a line does.
std::size_t traced(test::Bytes packet, const Given& given, const std::function<void(Burst&)>& file,
                   bool hides_sources = false,
                   const std::function<void(std::byte*)>& rewrite = {}) {
  const auto tracer = Tracer::create(*parse_filter(given, kCustomers, knows_none), hides_sources);
  const auto burst = std::make_unique<Burst>();
  burst->size = 1;
  burst->data[0] = packet.data();
  burst->length[0] = static_cast<std::uint16_t>(packet.size());
  burst->wire_length[0] = burst->length[0];
  parse(*burst, LinkType::raw_ip);
  file(*burst);
  (*tracer)->received(*burst);
  if (rewrite) rewrite(packet.data());
  const std::array out{Outgoing{.data = packet.data(), .length = burst->length[0]}};
  (*tracer)->served(*burst, 1, 1, out);
  std::size_t count = 0;
  while ((*tracer)->take() != nullptr) ++count;
  return count;
}

/// Leaves the packet in no lane, with `no_service`, as a packet that belongs to no service may be.
void file_nowhere(Burst& burst) {
  burst.verdict[0] = Verdict::no_service;
  burst.clear_parsed();
}
/// Leaves the packet in its lane, as a reply without a connection.
void file_as_reply(Burst& burst) {
  burst.v4.replies = 1;
  burst.v4.connection[0] = ConnId::none;
}

TEST(Tracer, ShowsWhatBelongsToNoConnectionAsItGoes) {
  const test::Bytes packet = test::ipv4({}, test::tcp());
  for (const auto& file : {file_nowhere, file_as_reply}) {
    EXPECT_EQ(traced(packet, {{"source", "192.0.2.1"}, {"destination_port", "443"}}, file), 2U);
    EXPECT_EQ(traced(packet, {{"source", "198.51.100.2"}}, file), 0U);
    EXPECT_EQ(traced(packet, {{"backend", "198.51.100.2"}}, file), 0U);
  }
  const auto nothing = [](Burst&) {};
  const test::Bytes advertisement =
      test::ipv4({.protocol = 1}, test::bytes({9, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(traced(advertisement, {{"source", "192.0.2.1"}, {"protocol", "icmp"}}, nothing), 2U);
}

// A reply to 203.0.113.9:40000, the public end of 192.0.2.1, as NAT rewrites it.
TEST(Tracer, ShowsRepliesWhoseOriginatorHasAnotherPublicEnd) {
  test::Bytes packet = test::ipv4({}, test::tcp());
  std::swap_ranges(packet.begin() + 12, packet.begin() + 16, packet.begin() + 16);
  const test::Bytes inside(packet.begin() + 16, packet.begin() + 20);
  const test::Bytes outside = test::bytes({203, 0, 113, 9});
  std::ranges::copy(outside, packet.begin() + 16);
  for (const bool is_his : {true, false}) {
    const auto shows = [&](const Given& given) {
      const auto serve = [](Burst& burst) {
        burst.v4.replies = 1;
        burst.v4.connection[0] = ConnId{7};
        burst.verdict[0] = Verdict::tracked;
      };
      return traced(packet, given, serve, true, [&](std::byte* data) {
        if (is_his) std::ranges::copy(inside, data + 16);
      });
    };
    EXPECT_EQ(shows({{"source", "192.0.2.1"}}), is_his ? 2U : 0U);
    EXPECT_EQ(shows({{"source", "192.0.2.1"}, {"destination", "198.51.100.2"}}), is_his ? 2U : 0U);
    EXPECT_EQ(shows({{"source", "192.0.2.1"}, {"protocol", "udp"}}), 0U);
    EXPECT_EQ(shows({{"source", "192.0.2.2"}}), 0U);
  }
}

TEST(Tracer, ShowsErrorsAsWhatTheyQuote) {
  test::Bytes quote = test::ipv4({}, test::tcp());
  std::swap_ranges(quote.begin() + 12, quote.begin() + 16, quote.begin() + 16);
  const test::Bytes error =
      test::ipv4({.protocol = 1}, test::operator+(test::bytes({3, 1, 0, 0, 0, 0, 0, 0}), quote));
  const auto nothing = [](Burst&) {};
  EXPECT_EQ(traced(error, {{"protocol", "tcp"}, {"source_port", "443"}}, nothing), 2U);
  EXPECT_EQ(traced(error, {{"protocol", "icmp"}, {"source", "192.0.2.1"}}, nothing), 2U);
  EXPECT_EQ(traced(error, {{"protocol", "udp"}}, nothing), 0U);
}

}  // namespace
}  // namespace millrace
