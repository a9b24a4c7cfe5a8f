#include "bench/nat_port.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "core/protocol.h"
#include "parse/bytes.h"
#include "parse/parse.h"
#include "parse/rewrite.h"

namespace millrace::bench {
namespace {

constexpr unsigned kBytes = 64;
constexpr unsigned kBurst = 32;

/// Stands in for a line with NAT: customers keep their ports, and get the address of `outside_of`.
/// It gives packets to `spoil` before it sends them.
class Translator {
 public:
  using Spoil = std::function<void(std::byte* frame, bool is_out)>;

  void run(NatPort& port, const Spoil& spoil = [](std::byte*, bool) {}) {
    for (bool more = true; more;) {
      burst_.clear();
      more = port.receive(burst_);
      parse(burst_, port.link_type());
      EXPECT_EQ(burst_.v4.size, burst_.size);
      const Lane<KeyV4>& lane = burst_.v4;
      for (unsigned i = 0; i < lane.size; ++i) {
        const bool is_out = lane.key[i].source.bytes[0] == 10;
        translate(i, is_out);
        spoil(burst_.data[i], is_out);
      }
      port.send(burst_, all_of(burst_));
    }
  }

 private:
  void translate(unsigned i, bool is_out) {
    const KeyV4& was = burst_.v4.key[i];
    KeyV4 is = was;
    AddressV4& other = is_out ? is.source : is.destination;
    other.bytes[0] = is_out ? 100 : 10;
    other.bytes[1] ^= 64;
    rewrite(burst_.data[i], burst_.headers[i], was, is);
  }

  Burst burst_;
};

class NatPortTest : public ::testing::Test {
 protected:
  void begin() {
    const NatPlan first = plan_first_packets(sessions_, kBytes);
    port_.play(
        {.plan = first, .packets = first.size(), .begins = sessions_, .checks_checksums = true});
    translator_.run(port_);
    ASSERT_EQ(port_.forwarded(), first.size());
    ASSERT_EQ(port_.wrong(), 0U);
    plan_ = plan_both_ways(sessions_, kBytes, 1);
  }
  /// Returns how many packets were found wrong.
  std::uint64_t pass(const Translator::Spoil& spoil) {
    port_.play({.plan = plan_, .packets = plan_.size(), .checks_checksums = true});
    translator_.run(port_, spoil);
    return port_.wrong();
  }

  CycleClock clock_;
  std::vector<NatSession> sessions_ = make_sessions(10'000, 100, 1);
  NatPort port_{clock_, kBytes, kBurst};
  Translator translator_;
  NatPlan plan_;
};

TEST(NatSessions, AreEvenlySpreadAndDistinct) {
  const auto sessions = make_sessions(10'007, 100, 7);
  std::map<AddressV4, std::set<std::uint16_t>> ports;
  std::set<std::uint16_t> remote_ports;
  for (const NatSession& session : sessions) {
    const std::uint16_t port = detail::big_endian(session.inside.port);
    EXPECT_GE(port, 1024);
    EXPECT_TRUE(ports[session.inside.address].insert(port).second);
    const std::uint16_t remote = detail::big_endian(session.remote.port);
    EXPECT_TRUE(remote >= 1 && remote <= 49'151) << remote;
    remote_ports.insert(remote);
    EXPECT_EQ(session.remote.address.bytes[0], 198);
  }
  EXPECT_EQ(ports.size(), 100U);
  for (const auto& [customer, of] : ports) EXPECT_TRUE(of.size() == 100 || of.size() == 101);
  EXPECT_GT(remote_ports.size(), 8000U);
  // The order is random: neighbours in the list are hardly ever the same customer's.
  std::size_t neighbours = 0;
  for (std::size_t n = 1; n < sessions.size(); ++n)
    neighbours += sessions[n].inside.address == sessions[n - 1].inside.address;
  EXPECT_LT(neighbours, sessions.size() / 50);
}

TEST_F(NatPortTest, EachSessionHasAPacketEachWay) {
  begin();
  std::map<std::uint32_t, unsigned> out;
  std::map<std::uint32_t, unsigned> in;
  for (const PlannedPacket& packet : plan_)
    ++(packet.arrives.source.bytes[0] == 10 ? out : in)[packet.number];
  EXPECT_EQ(out.size(), sessions_.size());
  EXPECT_EQ(in.size(), sessions_.size());
  EXPECT_EQ(plan_.size(), 2 * sessions_.size());
  EXPECT_NE(plan_both_ways(sessions_, kBytes, 2)[0].number, plan_[0].number);
}

TEST_F(NatPortTest, RightPacketsAreRight) {
  begin();
  EXPECT_EQ(pass([](std::byte*, bool) {}), 0U);
  EXPECT_EQ(port_.forwarded(), plan_.size());
}

TEST_F(NatPortTest, WrongPacketsAreFound) {
  begin();
  const auto each_out = [](std::size_t at) {
    return [at](std::byte* frame, bool is_out) {
      if (is_out) frame[at] ^= std::byte{1};
    };
  };
  constexpr std::size_t kSource = 26;
  constexpr std::size_t kDestination = 30;
  constexpr std::size_t kSourcePort = 34;
  constexpr std::size_t kDestinationPort = 36;
  constexpr std::size_t kIpChecksum = 24;
  constexpr std::size_t kUdpChecksum = 40;
  for (const std::size_t at :
       {kSource, kDestination, kSourcePort, kDestinationPort, kIpChecksum, kUdpChecksum}) {
    EXPECT_EQ(pass(each_out(at)), sessions_.size()) << at;
  }
  EXPECT_EQ(pass([](std::byte* frame, bool is_out) {
              if (!is_out) frame[kDestinationPort] ^= std::byte{1};
            }),
            sessions_.size());
}

TEST_F(NatPortTest, SourcesOutsideThePoolAreFoundFromTheBeginning) {
  const NatPlan first = plan_first_packets(sessions_, kBytes);
  port_.play({.plan = first, .packets = first.size(), .begins = sessions_});
  translator_.run(port_, [](std::byte* frame, bool) { frame[27] = std::byte{128}; });
  EXPECT_EQ(port_.wrong(), first.size());
}

TEST_F(NatPortTest, PacketsThatComeTooFastAreLost) {
  begin();
  // A burst of 32 packets takes longer than 32 ps.
  port_.play({.plan = plan_, .packets = 1'000'000, .ns_each = 1e-3, .queue = 100});
  translator_.run(port_);
  EXPECT_EQ(port_.wrong(), 0U);
  EXPECT_GT(port_.lost(), 0U);
  EXPECT_EQ(port_.forwarded() + port_.lost(), 1'000'000U);
}

}  // namespace
}  // namespace millrace::bench
