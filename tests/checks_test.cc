// Tests what becomes of packets that are wrong, or cannot be of their connection, on a line whose
// function checks packets, and on a line whose function does not.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "function/chain.h"
#include "function/deployment.h"
#include "function/firewall/test_settings.h"
#include "function/forward/forward.h"
#include "function/kind.h"
#include "line/line.h"
#include "parse/test_packets.h"
#include "port/port.h"

namespace millrace::test {
namespace {

constexpr unsigned kUdp = 17;

/// A port that receives the added bursts, and counts the packets that are sent.
class BurstsPort final : public Port {
 public:
  LinkType link_type() const override { return LinkType::raw_ip; }
  void add(std::vector<Bytes> packets, std::uint32_t at_ms) {
    bursts_.emplace_back(std::move(packets), at_ms);
  }
  bool receive(Burst& burst) override {
    if (next_ == bursts_.size()) return false;
    auto& [packets, at_ms] = bursts_[next_++];
    burst.now = Tick{at_ms};
    for (Bytes& one : packets) {
      const unsigned i = burst.size++;
      burst.data[i] = one.data();
      burst.length[i] = static_cast<std::uint16_t>(one.size());
      burst.wire_length[i] = burst.length[i];
      burst.handle[i] = i;
    }
    return true;
  }
  void send(const Burst&, std::uint64_t forward) override {
    sent += static_cast<unsigned>(std::popcount(forward));
  }
  unsigned sent = 0;

 private:
  std::vector<std::pair<std::vector<Bytes>, std::uint32_t>> bursts_;
  std::size_t next_ = 0;
};

enum class Functions : std::uint8_t { firewall, firewall_in_chain, forward };
struct Given {
  Functions functions;
  bool is_v6;
};

class ChecksTest : public testing::TestWithParam<Given> {
 protected:
  void SetUp() override {
    const std::string accept = "[firewall]\ndefault = \"accept\"\npickup = \"loose\"";
    auto [settings, problems] = read_firewall(accept, around_.is);
    ASSERT_EQ(problems, "");
    deployment_ = *settings->kind().deploy(settings, {});
    functions_ = {&forward_, &deployment_->make(0)};
    if (GetParam().functions == Functions::firewall_in_chain)
      chain_ = std::make_unique<Chain>(functions_);
    Function& function = GetParam().functions == Functions::forward ? forward_
                         : chain_ ? static_cast<Function&>(*chain_)
                                  : *functions_[1];
    line_ = *make_line({.capacity = 100,
                        .capacity_v6 = 100,
                        .timeouts = Timeouts::all(1000),
                        .pages = Pages::small,
                        .pass_unmatched = false,
                        .catch_up = true},
                       function);
  }
  void TearDown() override {
    const auto ok = line_->check_invariants();
    EXPECT_TRUE(ok.has_value()) << ok.error().message;
    std::uint64_t verdicts = 0;
    for (const Counter& counter : line_->counters().verdict) verdicts += counter.value();
    EXPECT_EQ(line_->counters().in.value(), verdicts);
  }

  bool checks() const { return GetParam().functions != Functions::forward; }
  static Bytes ip(bool by_client, unsigned protocol, const Bytes& payload) {
    Bytes packet = GetParam().is_v6 ? ipv6({.next = protocol}, payload)
                                    : ipv4({.protocol = protocol}, payload);
    const std::ptrdiff_t source = GetParam().is_v6 ? 8 : 12;
    const std::ptrdiff_t bytes = GetParam().is_v6 ? 16 : 4;
    const auto from = packet.begin() + source;
    if (!by_client) std::swap_ranges(from, from + bytes, from + bytes);
    return packet;
  }
  /// Returns a TCP segment. Both sides' first sequence number is 1000.
  static Bytes segment(bool by_client, unsigned flags, std::uint32_t sequence,
                       std::uint32_t acknowledged, std::size_t data = 0) {
    const unsigned ports[] = {4000, 80};
    const auto number = [](std::uint32_t of) {
      return be((of + 1000) >> 16) + be((of + 1000) & 0xffff);
    };
    return ip(by_client, 6,
              be(ports[by_client ? 0 : 1]) + be(ports[by_client ? 1 : 0]) + number(sequence) +
                  number(acknowledged) + bytes({0x50, flags, 1, 0}) + zeros(4 + data));
  }
  static Bytes client(std::uint32_t sequence, std::uint32_t acknowledged, std::size_t data = 0) {
    return segment(true, kAck, sequence, acknowledged, data);
  }
  static Bytes server(std::uint32_t sequence, std::uint32_t acknowledged, std::size_t data = 0) {
    return segment(false, kAck, sequence, acknowledged, data);
  }
  static std::vector<Bytes> handshake() {
    return {segment(true, kSyn, 0, 0), segment(false, kSyn | kAck, 0, 1), client(1, 1)};
  }

  struct Outcome {
    unsigned sent;
    std::uint64_t invalid;
    std::uint64_t malformed;
    std::uint64_t no_connection;
    friend bool operator==(const Outcome&, const Outcome&) = default;
    friend std::ostream& operator<<(std::ostream& to, const Outcome& is) {
      return to << is.sent << " sent, " << is.invalid << " invalid, " << is.malformed
                << " malformed, " << is.no_connection << " of no connection";
    }
  };
  Outcome play(std::vector<std::pair<std::vector<Bytes>, std::uint32_t>> bursts) {
    const auto count = [this](Verdict verdict) {
      return line_->counters().verdict[static_cast<std::size_t>(verdict)].value();
    };
    const auto counts = [&] {
      return std::array{count(Verdict::invalid), count(Verdict::malformed),
                        count(Verdict::no_connection)};
    };
    const auto before = counts();
    BurstsPort port;
    for (auto& [packets, at_ms] : bursts) port.add(std::move(packets), at_ms);
    line_->run(port);
    const auto after = counts();
    return {port.sent, after[0] - before[0], after[1] - before[1], after[2] - before[2]};
  }

  static constexpr unsigned kFin = 1;
  static constexpr unsigned kSyn = 2;
  static constexpr unsigned kRst = 4;
  static constexpr unsigned kAck = 16;

  Around around_;
  Forwarder forward_{FunctionRun{}};
  std::unique_ptr<FunctionDeployment> deployment_;
  std::vector<Function*> functions_;
  std::unique_ptr<Chain> chain_;
  std::unique_ptr<Line> line_;
};

std::string name_of_given(const testing::TestParamInfo<Given>& given) {
  const std::string names[] = {"firewall", "chain", "forward"};
  return names[static_cast<std::size_t>(given.param.functions)] +
         (given.param.is_v6 ? "_v6" : "_v4");
}
INSTANTIATE_TEST_SUITE_P(All, ChecksTest,
                         testing::Values(Given{Functions::firewall, false},
                                         Given{Functions::firewall, true},
                                         Given{Functions::firewall_in_chain, false},
                                         Given{Functions::firewall_in_chain, true},
                                         Given{Functions::forward, false},
                                         Given{Functions::forward, true}),
                         name_of_given);

// Each packet of the burst is judged by what the packets before it have shown.
TEST_P(ChecksTest, AWholeConnectionInOneBurstIsValid) {
  std::vector<Bytes> all = handshake();
  for (unsigned n = 0; n < 10; ++n) {
    all.push_back(client(1 + 1400 * n, 1 + 100 * n, 1400));
    all.push_back(server(1 + 100 * n, 1 + 1400 * (n + 1), 100));
  }
  all.push_back(segment(true, kFin | kAck, 14001, 1001));
  all.push_back(segment(false, kFin | kAck, 1001, 14002));
  all.push_back(client(14002, 1002));
  EXPECT_EQ(play({{all, 0}}), (Outcome{26, 0, 0, 0}));
}

TEST_P(ChecksTest, PacketsBeyondTheWindowAreDropped) {
  play({{handshake(), 0}});
  const std::vector<Bytes> wrong{client(900'000, 1, 10),          client(1, 900'000),
                                 server(900'000, 1, 10),          server(1, 900'000),
                                 segment(true, kRst, 900'000, 0), segment(false, kRst, 900'000, 0)};
  const auto count = static_cast<unsigned>(wrong.size());
  EXPECT_EQ(play({{wrong, 1}}), checks() ? (Outcome{0, count, 0, 0}) : (Outcome{count, 0, 0, 0}));
  EXPECT_EQ(play({{{client(1, 1, 10), server(1, 11, 10), client(11, 11)}, 2}}),
            (Outcome{3, 0, 0, 0}));
}

// The connection times out 1000 ms after its last packet that is valid.
TEST_P(ChecksTest, InvalidPacketsRefreshNothing) {
  const Bytes valid = client(1, 1);
  const Bytes invalid = client(1, 900'000);
  const Bytes other = server(900'000, 1);
  struct Case {
    std::vector<Bytes> burst;
    unsigned invalid;
    bool refreshes;
  };
  const std::vector<Case> cases{{{valid}, 0, true},
                                {{invalid}, 1, false},
                                {{other}, 1, false},
                                {{invalid, invalid, other, other}, 4, false},
                                {{invalid, valid}, 1, true},
                                {{valid, invalid}, 1, true},
                                {{invalid, invalid, valid, invalid}, 3, true},
                                {{other, other, invalid, valid}, 3, true},
                                {{invalid, server(1, 1), invalid}, 2, true}};
  std::uint32_t begin = 10'000;
  for (const Case& one : cases) {
    SCOPED_TRACE(begin);
    const bool expires = checks() && !one.refreshes;
    EXPECT_EQ(play({{handshake(), begin}}), (Outcome{3, 0, 0, 0}));
    const auto at = play({{one.burst, begin + 600}});
    EXPECT_EQ(at.invalid, checks() ? one.invalid : 0);
    EXPECT_EQ(play({{{}, begin + 1200}}), (Outcome{}));
    EXPECT_EQ(line_->live().v4 + line_->live().v6, expires ? 0U : 1U);
    begin += 10'000;
  }
}

TEST_P(ChecksTest, WrongHeadersBeginAndChangeNothing) {
  Bytes datagram = udp(4);
  datagram[5] = std::byte{200};
  const Bytes impossible = segment(true, kSyn | kFin, 0, 0);
  Bytes short_header = client(1, 1);
  short_header[(GetParam().is_v6 ? 40 : 20) + 12] = std::byte{0x40};
  const std::vector<Bytes> first{ip(true, kUdp, datagram), short_header};
  EXPECT_EQ(play({{first, 0}}), checks() ? (Outcome{0, 0, 2, 0}) : (Outcome{2, 0, 0, 0}));
  EXPECT_EQ(line_->counters().opened.value(), checks() ? 0U : 2U);
  play({{handshake(), 10'000}});
  EXPECT_EQ(play({{{impossible, short_header}, 10'600}}),
            checks() ? (Outcome{0, 0, 2, 0}) : (Outcome{2, 0, 0, 0}));
  play({{{}, 11'200}});
  EXPECT_EQ(line_->live().v4 + line_->live().v6, checks() ? 0U : 1U);
}

}  // namespace
}  // namespace millrace::test
