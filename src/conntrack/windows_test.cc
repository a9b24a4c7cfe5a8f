// Tests which packets a tracker that checks takes for those of their connection: by scenarios in
// plain text, one packet a line, and by random conversations with losses.
#include "conntrack/windows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "conntrack/schemes.h"
#include "conntrack/test_support.h"
#include "conntrack/tracker.h"

namespace millrace {
namespace {

struct AllLimits {
  Proof take(ConnId) { return Proof::service; }
  void give_back(ConnId, Proof) {}
};

/// First sequence numbers of client and server.
using Firsts = std::array<std::uint32_t, 2>;
constexpr Firsts kLow{1000, 5'000'000};
constexpr Firsts kHigh{0xffffff00, 0xfffffe00};

template <class K>
class WindowsTest : public testing::Test {
 protected:
  using Tracked = Tracker<Race, Sharded::Guards, K>;
  using Followed = typename Tracked::Followed;

  void SetUp() override { open(); }
  void TearDown() override {
    const auto ok = tracker_.check_invariants();
    EXPECT_TRUE(ok.has_value()) << ok.error().message;
  }
  void open() {
    const K key = test::nth_key<K>(1, kProtocolTcp);
    const auto none = [](ConnId) { FAIL() << "an eviction"; };
    client_ = tracker_.open(key, tracker_.hasher()(key), now_, none).id;
    server_ = tracker_.link(reversed(key), now_, {}, none).id;
    tracker_.confirm(client_, server_);
  }
  void begin_again() {
    tracker_.close(client_);
    tracker_.reclaim();
    open();
  }

  Followed send(Side from, Signal signal, const Segment& segment) {
    now_ = now_ + 1;
    const ConnId id = from == Side::originator ? client_ : server_;
    if (may_follow_alone_ && signal == Signal::ack && tracker_.follow_alone(from, id, segment))
      return Followed::passed;
    if (!tracker_.concerns(from, id, signal, now_)) return Followed::passed;
    return tracker_.follow(from, id, signal, segment, now_, limits_);
  }

  /// Plays a scenario with each of two pairs of first numbers, with and without `follow_alone`. A
  /// line is the sender and flags, as in `>SA`; the sequence number and the acknowledged number,
  /// relative to the first ones; perhaps the number of data bytes, and the window scale as in
  /// `scale=7`; and `!` if the packet is invalid.
  void play(std::string_view scenario) {
    for (const Firsts& first : {kLow, kHigh}) {
      for (const bool alone : {false, true}) {
        may_follow_alone_ = alone;
        std::istringstream lines{std::string(scenario)};
        std::string line;
        while (std::getline(lines, line)) play_line(line, first);
        begin_again();
      }
    }
  }
  ConnectionState state() const { return tracker_.state_of(Side::originator, client_); }

  Tick now_{100};
  Tracked tracker_ = *Tracked::create({.capacity = 10,
                                       .reply_state_bytes = 0,
                                       .follows = true,
                                       .checks = true,
                                       .timeouts = Timeouts::all(1000),
                                       .ageing = &Wheel::create,
                                       .pages = Pages::small});
  ConnId client_{};
  ConnId server_{};
  AllLimits limits_;
  bool may_follow_alone_ = true;

 private:
  void play_line(const std::string& line, const Firsts& first) {
    std::istringstream words(line);
    std::string flags;
    if (!(words >> flags)) return;
    const bool by_client = flags[0] == '>';
    const auto has = [&](char flag) { return flags.find(flag) != std::string::npos; };
    std::int64_t numbers[3] = {};
    std::size_t count = 0;
    bool is_invalid = false;
    Segment segment{.is_whole = true, .window_scale = kUnscaled};
    for (std::string word; words >> word;) {
      if (word == "!") {
        is_invalid = true;
      } else if (word.starts_with("scale=")) {
        segment.window_scale = static_cast<std::uint8_t>(std::stoi(word.substr(6)));
      } else {
        numbers[count++] = std::stoll(word);
      }
    }
    segment.sequence = first[by_client ? 0 : 1] + static_cast<std::uint32_t>(numbers[0]);
    segment.acknowledges = has('A');
    if (segment.acknowledges)
      segment.acknowledged = first[by_client ? 1 : 0] + static_cast<std::uint32_t>(numbers[1]);
    segment.next = segment.sequence + static_cast<std::uint32_t>(numbers[2]) +
                   (has('S') ? 1U : 0U) + (has('F') ? 1U : 0U);
    const Signal signal = has('R')               ? Signal::rst
                          : has('S') && has('A') ? Signal::syn_ack
                          : has('S')             ? Signal::syn
                          : has('F')             ? Signal::fin
                                                 : Signal::ack;
    const ConnectionState before = state();
    const Followed followed = send(by_client ? Side::originator : Side::reply, signal, segment);
    EXPECT_EQ(followed == Followed::invalid, is_invalid) << line << " from " << first[0];
    if (is_invalid) {
      EXPECT_EQ(to_string(state()), to_string(before)) << line;
    }
  }
};
using Families = testing::Types<KeyV4, KeyV6>;
TYPED_TEST_SUITE(WindowsTest, Families);

// A RST that is out of place moves no mark, so it shows where the bound is.
TYPED_TEST(WindowsTest, SegmentsMayLieAWindowAhead) {
  this->play(R"(
    >S 0
    <SA 0 1
    >A 1 1
    >A 1 1 100
    <A 1 101 200
    >R 65636
    >R 65637 !
    <R 65736
    <R 65737 !
    >A 65536 201 100
    >A 131072 201 99
    >A 196608 201 99 !
    >FA 196706 201 !
    <A -100000 111 50
    >A -2000000 1)");
}

TYPED_TEST(WindowsTest, ScaledWindowsReachFarther) {
  this->play(R"(
    >S 0 scale=4
    <SA 0 1 scale=2
    >A 1 1
    >R 262141
    >R 262142 !
    <R 1048561
    <R 1048562 !
    >RA 2 1048561
    >RA 2 1048562 !
    <RA 2 262141
    <RA 2 262142 !)");
  // The SYN and ACK has no scale, so neither side scales.
  this->play(R"(
    >S 0 scale=4
    <SA 0 1
    >R 65536
    >R 65537 !
    <R 65536
    <R 65537 !)");
  // The server has a scale, so the client has offered one in a SYN that was not the latest.
  this->play(R"(
    >S 0 scale=7
    >S 0
    <SA 0 1 scale=7
    <R 1000000000)");
}

TYPED_TEST(WindowsTest, AcknowledgementsMayLieAWindowAhead) {
  this->play(R"(
    >S 0
    <SA 0 1
    >A 1 65537 !
    >A 1 2000000 !
    >A 1 1
    >A 1 1 100
    <RA 2 65636
    <RA 2 65637 !
    <A 1 -2000000
    >RA 200 65536
    >RA 200 65537 !)");
}

// Data that took another path is known by its acknowledgement, if that is in sequence.
TYPED_TEST(WindowsTest, AcknowledgedDataMovesTheMark) {
  this->play(R"(
    >S 0
    <SA 0 1
    >A 1 1
    <A -200000000 65536
    >R 65537 !
    <A -2000000 65536
    >R 65537 !
    <A 1 65536
    >R 131071
    >R 131072 !
    <A 1 131071
    >R 196606
    >R 196607 !
    <A 1 1
    >R 196607 !
    >R 131071)");
}

TYPED_TEST(WindowsTest, ManySmallAcknowledgementsMoveTheMark) {
  std::string scenario = ">S 0\n<SA 0 1\n>A 1 1\n";
  for (unsigned step = 1; step <= 100; ++step)
    scenario += ">A 1 " + std::to_string(step * 60'000) + "\n";
  this->play(scenario + "<A 6065536 1 !\n<A 6065535 1");
}

// The client's packets took another path while the server sent up to 7 GiB.
TYPED_TEST(WindowsTest, AnOldAcknowledgementMovesNoMark) {
  for (const std::uint32_t gibibytes : {1U, 3U, 4U, 7U}) {
    this->send(Side::originator, Signal::syn,
               {.sequence = 0, .next = 1, .is_whole = true, .window_scale = 14});
    this->send(Side::reply, Signal::syn_ack,
               {.sequence = 0,
                .next = 1,
                .acknowledged = 1,
                .acknowledges = true,
                .is_whole = true,
                .window_scale = 14});
    Segment segment{.sequence = 1, .acknowledged = 1, .acknowledges = true, .is_whole = true};
    this->send(Side::originator, Signal::ack, segment);
    constexpr std::uint32_t kBytes = 1 << 15;
    for (std::uint32_t sent = 0; sent < gibibytes << 15; ++sent) {
      segment.next = segment.sequence + kBytes;
      ASSERT_EQ(this->send(Side::reply, Signal::ack, segment), TestFixture::Followed::passed);
      segment.sequence = segment.next;
    }
    this->send(Side::reply, Signal::rst, segment);
    EXPECT_EQ(to_string(this->state()), "closed") << gibibytes;
    this->begin_again();
  }
}

TYPED_TEST(WindowsTest, TheAnswerToASynAcknowledgesNoMore) {
  this->play(R"(
    >S 0
    <SA 0 2 !
    <SA 0 200000 !
    <RA 0 77 !
    <SA 0 0
    <SA 0 1
    >A 1 1)");
  this->play(R"(
    >S 0 0 20
    <SA 0 22 !
    <SA 0 21)");
  // An end that has another connection with these ports challenges the SYN (RFC 5961, 4), and the
  // client then resets that connection.
  this->play(R"(
    >S 0
    <A 77000000 99000000
    >R 99000000
    >S 0
    <SA 0 1
    >A 1 1)");
  this->play(R"(
    >S 0
    <R 0
    <RA 0 1)");
}

TYPED_TEST(WindowsTest, RstsFarAboveAreInvalid) {
  this->play(R"(
    >S 0
    <SA 0 1
    >A 1 1
    >R 65537 !
    >R 65536
    <R 65537 !
    <R -70000
    >R 1)");
  // Some senders set the flag ACK, and leave the acknowledged number 0.
  this->play(">S 0\n<SA 0 1\n>A 1 1\n>RA 1 -5000000");
}

TYPED_TEST(WindowsTest, SynsAreNeverInvalid) {
  // A SYN of another number is refused, or challenged, or both ends begin again.
  this->play(R"(
    >S 0
    <SA 0 1
    >A 1 1
    >S 900000000
    <RA 1900000000 900000001
    >S 900000000)");
  this->play(R"(
    >S 0
    <SA 0 1
    >A 1 1
    >S 900000000
    <A 1 1
    >R 1)");
  this->play(R"(
    >S 0
    <SA 0 1
    >A 1 1
    >S -900000000
    <SA -800000000 -899999999
    >A -899999999 -799999999
    >A -899999999 -799999999 100
    >A 1 -799999999 !
    >A -899999899 1 !
    <A 1 -899999899 !
    <A -799999999 1 !
    <A -799999999 -899999899)");
  this->play(R"(
    >S 0
    <S 0
    >SA 0 1
    <SA 0 1
    >A 1 1 10
    <A 1 11 10
    <A 65600 11 !)");
}

TYPED_TEST(WindowsTest, WithoutTheHandshakeNothingIsInvalid) {
  this->play(R"(
    >A 1 1 10
    <A 1 11 10
    >A 1900000000 1900000000 10
    <R 1900000000
    <A 1 1900000000)");
  // A scale that was not captured.
  this->play(R"(
    >S 0 scale=0
    <SA 0 1 scale=7
    >A 1 1
    <A 1900000000 1)");
  // The SYN and ACK took another path.
  this->play(R"(
    >S 0
    <A 1 1 100
    >A 1 101
    >A 1900000000 101)");
}

TYPED_TEST(WindowsTest, HeadersThatWereNotCapturedAreNotChecked) {
  const Segment syn{.sequence = 1000, .next = 1001, .is_whole = true, .window_scale = kUnscaled};
  Segment answer = syn;
  answer.acknowledged = 1001;
  answer.acknowledges = true;
  this->send(Side::originator, Signal::syn, syn);
  this->send(Side::reply, Signal::syn_ack, answer);
  EXPECT_EQ(this->send(Side::originator, Signal::ack, {}), TestFixture::Followed::passed);
}

TYPED_TEST(WindowsTest, AnInvalidPacketMovesNoMark) {
  this->play(R"(
    >S 0
    <SA 0 1
    >A 1 1
    >A 70000 1 10 !
    <A 1 70010 !
    >R 65536
    >R 65537 !
    <R 65537 !)");
}

/// One side of a TCP connection that obeys RFC 9293: it sends at most a window beyond what is
/// acknowledged, acknowledges what it has received without a gap, and repeats what is lost.
struct Sender {
  std::uint32_t first;
  std::uint64_t acknowledged = 0;  // of its own bytes, as it knows
  std::uint64_t sent = 0;
  std::uint64_t received = 0;                    // of the other side's bytes, without a gap
  std::map<std::uint64_t, std::uint64_t> ahead;  // beyond a gap: begin and end
  std::uint64_t window = 65535;

  void receive(std::uint64_t begin, std::uint64_t end) {
    if (begin > received + window) return;
    if (end > received) ahead[begin] = std::max(ahead[begin], end);
    for (auto at = ahead.begin(); at != ahead.end() && at->first <= received; at = ahead.erase(at))
      received = std::max(received, at->second);
  }
};

// Each packet may be lost before the tracker or behind it, come late or twice. No packet of such a
// connection is invalid, whatever the window.
TYPED_TEST(WindowsTest, NoPacketOfARealConnectionIsInvalid) {
  SCOPED_TRACE(test::repeat());
  std::mt19937_64 random(test::seed());
  const auto chance = [&](unsigned percent) { return random() % 100 < percent; };
  for (unsigned run = 0; run < 60; ++run) {
    this->may_follow_alone_ = run % 2 == 0;
    const std::uint8_t scale = run % 3 == 0 ? kUnscaled : static_cast<std::uint8_t>(run % 15);
    const std::uint64_t window = std::uint64_t{65535} << (scale == kUnscaled ? 0 : scale);
    Sender ends[2];
    for (Sender& end : ends) {
      end.first = static_cast<std::uint32_t>(random());
      end.window = window;
    }
    struct Packet {
      bool by_client;
      std::uint64_t begin, end, acknowledged;
    };
    std::vector<Packet> before;  // on the way to the tracker
    std::vector<Packet> behind;
    const auto syn = [&](bool by_client) {
      const Sender& own = ends[by_client ? 0 : 1];
      Segment segment{.sequence = own.first - 1, .next = own.first, .is_whole = true};
      segment.window_scale = scale == 0 ? 1 : scale;
      if (!by_client) segment.acknowledged = ends[0].first;
      segment.acknowledges = !by_client;
      this->send(by_client ? Side::originator : Side::reply,
                 by_client ? Signal::syn : Signal::syn_ack, segment);
    };
    syn(true);
    syn(false);
    const unsigned loss = run % 4 * 5;
    const std::uint64_t longest = std::min<std::uint64_t>(window / 8, 60'000);
    for (unsigned step = 0; step < 3000; ++step) {
      const unsigned which = random() % 2;
      Sender& own = ends[which];
      const bool repeats = chance(30);
      const std::uint64_t from =
          repeats ? own.acknowledged - (chance(20) && own.acknowledged > 0) : own.sent;
      const std::uint64_t most = own.acknowledged + window - from;
      const std::uint64_t bytes = std::min(most, random() % longest);
      if (from + bytes > own.acknowledged + window) continue;
      own.sent = std::max(own.sent, from + bytes);
      before.push_back({which == 0, from, from + bytes, own.received});
      while (before.size() > random() % 8) {
        const std::size_t at = chance(80) ? 0 : random() % before.size();
        const Packet packet = before[at];
        if (!chance(5)) before.erase(before.begin() + static_cast<std::ptrdiff_t>(at));
        if (chance(loss)) continue;
        const Sender& its = ends[packet.by_client ? 0 : 1];
        const Segment segment{.sequence = its.first + static_cast<std::uint32_t>(packet.begin),
                              .next = its.first + static_cast<std::uint32_t>(packet.end),
                              .acknowledged = ends[packet.by_client ? 1 : 0].first +
                                              static_cast<std::uint32_t>(packet.acknowledged),
                              .acknowledges = true,
                              .is_whole = true};
        const auto followed =
            this->send(packet.by_client ? Side::originator : Side::reply, Signal::ack, segment);
        ASSERT_NE(followed, TestFixture::Followed::invalid)
            << "run " << run << " step " << step << ": " << packet.begin << " to " << packet.end
            << ", acknowledged " << packet.acknowledged << ", scale " << unsigned{scale};
        behind.push_back(packet);
      }
      while (behind.size() > random() % 8) {
        const std::size_t at = chance(80) ? 0 : random() % behind.size();
        const Packet packet = behind[at];
        behind.erase(behind.begin() + static_cast<std::ptrdiff_t>(at));
        if (chance(loss)) continue;
        Sender& to = ends[packet.by_client ? 1 : 0];
        to.receive(packet.begin, packet.end);
        to.acknowledged = std::max(to.acknowledged, packet.acknowledged);
      }
    }
    this->begin_again();
  }
}

}  // namespace
}  // namespace millrace
