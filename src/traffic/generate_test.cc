#include "traffic/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/burst.h"
#include "core/test_sanitizers.h"
#include "parse/parse.h"
#include "port/replay_port.h"
#include "traffic/test_packet.h"

namespace millrace {
namespace {

using test::View;

Capture made(const TrafficPlan& plan) {
  auto capture = generate(plan);
  EXPECT_TRUE(capture.has_value()) << capture.error().message;
  return capture ? std::move(*capture) : Capture(CaptureFormat{});
}

constexpr std::array kProfiles{Profile::campus, Profile::uniform, Profile::flood, Profile::skewed};

TrafficPlan plan_of(Profile profile, std::uint64_t connections, std::uint64_t packets,
                    std::uint64_t seed = 1) {
  TrafficPlan plan;
  plan.profile = profile;
  plan.connections = connections;
  plan.packets = packets;
  plan.seed = seed;
  return plan;
}

/// Returns the positions of each conversation's packets.
std::map<View::Five, std::vector<std::size_t>> conversations(const Capture& capture) {
  std::map<View::Five, std::vector<std::size_t>> all;
  for (std::size_t i = 0; i < capture.size(); ++i) {
    all[View(capture.packet(i)).conversation()].push_back(i);
  }
  return all;
}

std::uint64_t digest(const Capture& capture) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  const auto add = [&hash](std::uint64_t v) { hash = (hash ^ v) * 0x100000001b3; };
  for (std::size_t i = 0; i < capture.size(); ++i) {
    const auto& packet = capture.packet(i);
    add(packet.timestamp_ns);
    add(packet.wire_length);
    for (const std::byte b : packet.bytes()) add(std::to_integer<std::uint64_t>(b));
  }
  return hash;
}

TEST(Generate, ExactlyWhatWasAskedFor) {
  for (const Profile profile : kProfiles) {
    for (const std::uint64_t connections : {1U, 2U, 7U, 1000U}) {
      for (const std::uint64_t each : {1U, 2U, 5U, 6U, 13U}) {
        const std::uint64_t packets =
            profile == Profile::flood ? connections : connections * each + each / 2;
        const Capture capture = made(plan_of(profile, connections, packets, each));
        ASSERT_EQ(capture.size(), packets) << to_string(profile) << " " << connections;
        ASSERT_EQ(conversations(capture).size(), connections)
            << to_string(profile) << " " << packets;
      }
    }
  }
}

// Pinned hashes: the same plan gives the same bytes with every compiler and processor.
TEST(Generate, SameOnEveryMachine) {
  EXPECT_EQ(digest(made(plan_of(Profile::campus, 300, 4000))), 12198601952501629755U);
  EXPECT_EQ(digest(made(plan_of(Profile::uniform, 300, 4000))), 5372938894992523365U);
  EXPECT_EQ(digest(made(plan_of(Profile::flood, 4000, 4000))), 14278123794108534722U);
}

TEST(Generate, SeedsDiffer) {
  for (const Profile profile : kProfiles) {
    EXPECT_NE(digest(made(plan_of(profile, 100, 100, 1))),
              digest(made(plan_of(profile, 100, 100, 2))));
  }
}

TEST(Generate, ChecksumsAreRightOverTheWholePacket) {
  for (const Profile profile : kProfiles) {
    const std::uint64_t connections = profile == Profile::flood ? 20'000 : 2'000;
    const Capture capture = made(plan_of(profile, connections, 20'000));
    for (std::size_t i = 0; i < capture.size(); ++i) {
      const View view(capture.packet(i));
      ASSERT_TRUE(view.is_ip());
      if (!view.ipv6()) {
        ASSERT_EQ(view.header_sum(), 0xffffU) << i;
      }
      ASSERT_EQ(view.payload_sum(), 0xffffU) << to_string(profile) << " " << i;
    }
  }
}

TEST(Generate, LengthsAgree) {
  for (const std::uint32_t snaplen : {64U, 128U, 2000U}) {
    TrafficPlan plan = plan_of(Profile::campus, 1000, 10'000);
    plan.snaplen = snaplen;
    const Capture capture = made(plan);
    EXPECT_EQ(capture.format().snaplen, snaplen);
    for (std::size_t i = 0; i < capture.size(); ++i) {
      const auto& packet = capture.packet(i);
      const View view(packet);
      ASSERT_EQ(packet.captured, std::min(packet.wire_length, snaplen));
      ASSERT_EQ(packet.wire_length, std::max(60U, view.l4() + view.ip_payload()));
      ASSERT_LE(packet.wire_length, 1514U);
    }
  }
}

TEST(Generate, TimeGoesForward) {
  for (const Profile profile : kProfiles) {
    TrafficPlan plan = plan_of(profile, 3000, profile == Profile::flood ? 3000 : 30'000);
    plan.duration_s = 10;
    const Capture capture = made(plan);
    for (std::size_t i = 1; i < capture.size(); ++i) {
      ASSERT_GE(capture.packet(i).timestamp_ns, capture.packet(i - 1).timestamp_ns);
    }
    EXPECT_GT(capture.span_ns(), 9'000'000'000U) << to_string(profile);
    EXPECT_LT(capture.span_ns(), 18'000'000'000U) << to_string(profile);
  }
}

// The parser gives every packet the verdict `tracked`.
TEST(Generate, EveryPacketIsTracked) {
  for (const Profile profile : kProfiles) {
    const Capture capture = made(plan_of(profile, 1000, profile == Profile::flood ? 1000 : 10'000));
    auto port = ReplayPort::create(capture, {});
    Burst burst;
    while (port->receive(burst)) {
      parse(burst, port->link_type());
      for (unsigned i = 0; i < burst.size; ++i) ASSERT_EQ(burst.verdict[i], Verdict::tracked);
    }
  }
}

TEST(Uniform, EveryTwoPacketsAreSeparatedByAllOthers) {
  constexpr std::size_t kConnections = 100;
  const Capture capture = made(plan_of(Profile::uniform, kConnections, 1050));
  for (std::size_t i = kConnections; i < capture.size(); ++i) {
    ASSERT_EQ(View(capture.packet(i)).five_tuple(),
              View(capture.packet(i - kConnections)).five_tuple());
  }
}

TEST(Uniform, SequenceNumbersFollow) {
  const Capture capture = made(plan_of(Profile::uniform, 10, 200));
  for (std::size_t i = 10; i < capture.size(); ++i) {
    const View before(capture.packet(i - 10));
    const View view(capture.packet(i));
    ASSERT_EQ(before.flags(), i < 20 ? 0x02U : 0x18U);
    ASSERT_EQ(view.sequence(), before.sequence() + before.tcp_payload() + (i < 20 ? 1 : 0));
  }
}

TEST(Flood, EveryPacketIsASyn) {
  const Capture capture = made(plan_of(Profile::flood, 5000, 5000));
  for (std::size_t i = 0; i < capture.size(); ++i) {
    ASSERT_EQ(View(capture.packet(i)).flags(), 0x02U);
    ASSERT_EQ(View(capture.packet(i)).destination(), View(capture.packet(0)).destination());
  }
}

TEST(Skewed, HalfOfThePacketsAreInThreeConnections) {
  const Capture capture = made(plan_of(Profile::skewed, 1000, 40'000));
  std::vector<std::size_t> sizes;
  for (const auto& [tuple, positions] : conversations(capture)) sizes.push_back(positions.size());
  std::ranges::sort(sizes, std::greater());
  EXPECT_NEAR(static_cast<double>(sizes[0] + sizes[1] + sizes[2]), 20'000, 10);
  EXPECT_NEAR(static_cast<double>(sizes[0]), static_cast<double>(sizes[2]), 500);
  // Zipf among the other connections: the tenth largest has about a tenth of the largest one's
  // packets.
  EXPECT_GT(sizes[3], 5 * sizes[12]);
  EXPECT_LT(sizes[3], 20 * sizes[12]);
}

TEST(Skewed, SequenceNumbersFollow) {
  const Capture capture = made(plan_of(Profile::skewed, 100, 5000));
  for (const auto& [tuple, positions] : conversations(capture)) {
    EXPECT_EQ(View(capture.packet(positions[0])).flags(), 0x02U);
    for (std::size_t i = 1; i < positions.size(); ++i) {
      const View before(capture.packet(positions[i - 1]));
      const View view(capture.packet(positions[i]));
      ASSERT_EQ(view.flags(), 0x18U);
      ASSERT_EQ(view.sequence(), before.sequence() + before.tcp_payload() + (i == 1 ? 1 : 0));
    }
  }
}

/// Checks one TCP conversation from beginning to end. Returns true if both sides ended it with
/// FINs.
bool check_tcp(const Capture& capture, const std::vector<std::size_t>& positions) {
  const View first(capture.packet(positions[0]));
  EXPECT_EQ(first.flags(), 0x02U);
  std::map<std::string, std::uint32_t> next{{first.source(), first.sequence() + 1}};
  std::set<std::string> ended;
  for (std::size_t n = 1; n < positions.size(); ++n) {
    const View view(capture.packet(positions[n]));
    const bool from_client = view.source() == first.source();
    const unsigned flags = view.flags();
    EXPECT_NE(flags & 0x10, 0U) << "no ACK";
    EXPECT_EQ(view.acknowledgement(), next[view.destination()]);
    if (n == 1) {
      EXPECT_TRUE(!from_client && (flags == 0x12 || flags == 0x14)) << flags;
    }
    if (n == 2) {
      EXPECT_TRUE(from_client);
    }
    if (n > 1) {
      EXPECT_EQ(flags & 0x02, 0U) << "a second SYN";
    }
    if (const auto known = next.find(view.source()); known != next.end()) {
      EXPECT_EQ(view.sequence(), known->second);
    }
    EXPECT_FALSE((flags & 0x04) != 0 && n + 1 != positions.size()) << "packets after RST";
    if (!ended.empty()) {
      EXPECT_EQ(view.tcp_payload(), 0U) << "data after FIN";
    }
    next[view.source()] = view.sequence() + view.tcp_payload() + ((flags & 0x03) != 0 ? 1 : 0);
    if ((flags & 0x01) != 0) {
      EXPECT_TRUE(ended.insert(view.source()).second) << "a second FIN";
    }
  }
  EXPECT_NE(ended.size(), 1U) << "only one side has sent a FIN";
  return ended.size() == 2;
}

TEST(Campus, TcpConnectionsLiveFromHandshakeToEnd) {
  for (const std::uint64_t packets : {3'000U, 9'000U, 40'000U}) {
    const Capture capture = made(plan_of(Profile::campus, 3000, packets));
    unsigned whole = 0;
    unsigned tcp = 0;
    for (const auto& [five, positions] : conversations(capture)) {
      if (std::get<4>(five) != 6) continue;
      ++tcp;
      whole += check_tcp(capture, positions) ? 1 : 0;
    }
    EXPECT_NEAR(tcp, 3000 * 0.54, 150);
    if (packets == 40'000) {
      EXPECT_GT(whole, tcp * 3 / 4);
    }
  }
}

TEST(Campus, EchoesAreAnswered) {
  const Capture capture = made(plan_of(Profile::campus, 5000, 40'000));
  std::size_t pings = 0;
  for (const auto& [five, positions] : conversations(capture)) {
    if (std::get<4>(five) == 6 || std::get<4>(five) == 17) continue;
    ++pings;
    for (std::size_t n = 1; n < positions.size(); n += 2) {
      const View request(capture.packet(positions[n - 1]));
      const View reply(capture.packet(positions[n]));
      ASSERT_EQ(request.source(), reply.destination());
      ASSERT_EQ(request.identifier(), reply.identifier());
    }
  }
  EXPECT_NEAR(static_cast<double>(pings), 150, 60);
}

TEST(Campus, LooksLikeACampus) {
  if (kSanitized) GTEST_SKIP() << test::kStatistics;
  constexpr std::uint64_t kConnections = 50'000;
  const Capture capture = made(plan_of(Profile::campus, kConnections, 1'000'000));
  const auto all = conversations(capture);
  std::vector<std::size_t> sizes;
  std::map<std::string, std::size_t> servers;
  double ipv6 = 0;
  for (const auto& [five, positions] : all) {
    sizes.push_back(positions.size());
    const View first(capture.packet(positions[0]));
    ++servers[first.destination()];
    ipv6 += first.ipv6() ? 1 : 0;
  }
  std::sort(sizes.rbegin(), sizes.rend());
  EXPECT_NEAR(ipv6 / kConnections, 0.25, 0.01);
  // Heavy tail: the largest hundredth of the connections has most of the packets, and the median
  // connection has at most 10.
  std::size_t carried = 0;
  for (std::size_t i = 0; i < kConnections / 100; ++i) carried += sizes[i];
  EXPECT_GT(carried, capture.size() / 2);
  EXPECT_LE(sizes[kConnections / 2], 10U);
  // Zipf: the most popular of 3,124 servers occurs more than twice as often as the tenth most
  // popular one.
  std::vector<std::size_t> met;
  for (const auto& [server, count] : servers) met.push_back(count);
  std::sort(met.rbegin(), met.rend());
  EXPECT_GT(met[0], 2 * met[9]);
  EXPECT_GT(servers.size(), 3000U);

  std::size_t small = 0;
  std::size_t full = 0;
  std::size_t middle = 0;
  for (std::size_t i = 0; i < capture.size(); ++i) {
    const auto wire = capture.packet(i).wire_length;
    small += wire <= 100 ? 1 : 0;
    middle += wire >= 500 && wire <= 650 ? 1 : 0;
    full += wire >= 1270 ? 1 : 0;
  }
  EXPECT_GT(small * 5, capture.size());
  EXPECT_GT(middle * 25, capture.size());
  EXPECT_GT(full * 3, capture.size());
}

// Poisson arrivals: the variance of counts in equal slices is their mean.
TEST(Campus, ConnectionsArriveAtRandom) {
  if (kSanitized) GTEST_SKIP() << test::kStatistics;
  constexpr std::size_t kSlices = 500;
  const Capture capture = made(plan_of(Profile::campus, 50'000, 400'000));
  std::vector<double> count(kSlices);
  const std::uint64_t start = capture.packet(0).timestamp_ns;
  for (const auto& [five, positions] : conversations(capture)) {
    const std::uint64_t slice =
        (capture.packet(positions[0]).timestamp_ns - start) * kSlices / 59'000'000'000;
    if (slice < kSlices) ++count[slice];
  }
  double mean = 0;
  double variance = 0;
  for (const double c : count) mean += c / kSlices;
  for (const double c : count) variance += (c - mean) * (c - mean) / kSlices;
  EXPECT_NEAR(mean, 50'000 * 59.0 / 60 / kSlices, 3);
  EXPECT_NEAR(variance / mean, 1, 0.25);
}

std::string refusal_of(const TrafficPlan& plan) {
  const auto result = check(plan);
  EXPECT_FALSE(result.has_value());
  if (result) return {};
  EXPECT_EQ(result.error().kind, Error::Kind::usage);
  EXPECT_FALSE(Generator::create(plan).has_value());
  return result.error().message;
}

TEST(Plan, RefusesTheImpossible) {
  EXPECT_NE(refusal_of(plan_of(Profile::campus, 100, 99)).find("ask for 100 packets or more"),
            std::string::npos);
  EXPECT_NE(refusal_of(plan_of(Profile::flood, 100, 101)).find("in a flood"), std::string::npos);
  EXPECT_NE(refusal_of(plan_of(Profile::uniform, 0, 10)).find("0 connections"), std::string::npos);
  EXPECT_NE(refusal_of(plan_of(Profile::uniform, 5, UINT64_MAX)).find("packets"),
            std::string::npos);
  TrafficPlan plan = plan_of(Profile::campus, 10, 100);
  plan.snaplen = 63;
  plan.duration_s = 0;
  const std::string both = refusal_of(plan);
  EXPECT_NE(both.find("snaplen"), std::string::npos);
  EXPECT_NE(both.find("duration"), std::string::npos);
}

TEST(Plan, CanBeStoppedWhileItBegins) {
  const std::atomic<bool> stop = true;
  TrafficPlan plan =
      plan_of(Profile::campus, TrafficPlan::kMaxConnections, TrafficPlan::kMaxPackets);
  auto generator = Generator::create(plan, &stop);
  ASSERT_TRUE(generator.has_value());
  Generator::Packet packet;
  EXPECT_FALSE(generator->next(packet));
}

TEST(Plan, RefusesWhatCannotFitIntoMemory) {
  const auto capture = generate(plan_of(Profile::uniform, 4'000'000'000, TrafficPlan::kMaxPackets));
  ASSERT_FALSE(capture.has_value());
  EXPECT_EQ(capture.error().kind, Error::Kind::failed);
}

TEST(Plan, ProfilesHaveNames) {
  for (const Profile profile : kProfiles) EXPECT_EQ(profile_named(to_string(profile)), profile);
  EXPECT_FALSE(profile_named("datacentre").has_value());
}

}  // namespace
}  // namespace millrace
