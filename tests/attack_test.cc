// Tests attacks on connections: packets with forged addresses and random sequence numbers, and ICMP
// errors. Packets of the real ends must still be followed.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "config/timeout_settings.h"
#include "function/balance/balance.h"
#include "line/line.h"
#include "parse/bytes.h"
#include "parse/test_checksums.h"
#include "port/port.h"

namespace millrace {
namespace {

constexpr std::uint8_t kFin = 1;
constexpr std::uint8_t kSyn = 2;
constexpr std::uint8_t kRst = 4;
constexpr std::uint8_t kAck = 16;

constexpr unsigned kConnections = 1000;
constexpr unsigned kGuesses = 1'000'000;
constexpr unsigned kFrame = 82;  // bytes: room for a TCP segment, or an ICMP error about one

struct End {
  std::array<std::uint8_t, 4> address;
  std::uint16_t port;
};
constexpr End kService{{203, 0, 113, 10}, 80};

struct Connection {
  End client;
  End backend;
  std::uint32_t client_next;
  std::uint32_t server_next;
};

class Frame {
 public:
  unsigned size = 0;
  std::array<std::byte, kFrame> bytes{};

  /// Makes a TCP segment. A SYN has the window scale option if `scale` is not 0 (RFC 7323, 2.2).
  void tcp(const End& from, const End& to, std::uint8_t flags, std::uint32_t sequence,
           std::uint32_t acknowledgement, std::uint8_t scale = 0) {
    size = 0;
    ethernet();
    const bool is_scaled = (flags & kSyn) != 0 && scale != 0;
    segment(from, to, flags, sequence, acknowledgement, is_scaled ? 4 : 0);
    if (is_scaled) put(std::uint32_t{0x01030300} | scale);
  }
  /// Makes an ICMP error (RFC 792): destination unreachable, from `anywhere`, about a segment that
  /// `from` had sent to `to`.
  void icmp_error(const End& anywhere, const End& from, const End& to, std::uint8_t code) {
    size = 0;
    ethernet();
    ip(56, 1, anywhere, from);
    put(std::uint8_t{3}).put(code).put(std::uint16_t{0}).put(std::uint32_t{0});
    segment(from, to, kAck, 1, 1);
    size = 14 + 20 + 8 + 28;
    const unsigned sum = 0xffff - test::plain_sum(&bytes[34], size - 34, 0);
    bytes[36] = static_cast<std::byte>(sum >> 8);
    bytes[37] = static_cast<std::byte>(sum);
  }

 private:
  template <class Field>
  Frame& put(Field value) {
    for (unsigned shift = 8 * sizeof value; shift > 0; shift -= 8)
      bytes.at(size++) = static_cast<std::byte>(value >> (shift - 8));
    return *this;
  }
  void ethernet() {
    for (unsigned i = 0; i < 3; ++i) put(std::uint32_t{0x02000000});
    put(std::uint16_t{0x0800});
  }
  void ip(std::uint16_t total, std::uint8_t protocol, const End& from, const End& to) {
    put(std::uint16_t{0x4500}).put(total).put(std::uint32_t{0x4000}).put(std::uint8_t{64});
    put(protocol).put(std::uint16_t{0});
    for (const End* end : {&from, &to}) {
      for (const std::uint8_t byte : end->address) put(byte);
    }
  }
  void segment(const End& from, const End& to, std::uint8_t flags, std::uint32_t sequence,
               std::uint32_t acknowledgement, unsigned options = 0) {
    ip(static_cast<std::uint16_t>(40 + options), 6, from, to);
    put(from.port).put(to.port).put(sequence).put(acknowledgement);
    put(static_cast<std::uint8_t>(0x50 + 4 * options))
        .put(flags)
        .put(std::uint16_t{65535})
        .put(std::uint32_t{0});
  }
};

/// A port that receives `count` packets, made by `make`: a burst of at most 32 each millisecond.
class Player final : public Port {
 public:
  using Make = std::function<void(unsigned n, Frame&)>;
  using Sent = std::function<void(unsigned n, const std::byte* packet)>;

  Player(Tick& now, unsigned count, Make make, Sent sent = {})
      : now_(now), count_(count), make_(std::move(make)), sent_(std::move(sent)) {}

  LinkType link_type() const override { return LinkType::ethernet; }
  bool receive(Burst& burst) override {
    now_ = now_ + 1;
    burst.now = now_;
    auto& frames = frames_[turn_++ % frames_.size()];
    for (; burst.size < frames.size() && next_ < count_; ++burst.size) {
      Frame& frame = frames[burst.size];
      make_(next_, frame);
      burst.data[burst.size] = frame.bytes.data();
      burst.length[burst.size] = static_cast<std::uint16_t>(frame.size);
      burst.wire_length[burst.size] = frame.size;
      burst.handle[burst.size] = next_++;
    }
    return next_ < count_;
  }
  void send(const Burst& burst, std::uint64_t forward) override {
    for (unsigned i = 0; i < burst.size; ++i) {
      EXPECT_TRUE(forward >> i & 1) << "a packet was dropped";
      if (sent_) sent_(static_cast<unsigned>(burst.handle[i]), burst.data[i]);
    }
  }

 private:
  Tick& now_;
  unsigned count_;
  Make make_;
  Sent sent_;
  unsigned next_ = 0;
  unsigned turn_ = 0;
  std::array<std::array<Frame, 32>, kBurstsInFlight + 1> frames_;
};

class AttackTest : public testing::Test {
 protected:
  AttackTest() {
    ServiceSpec<AddressV4> spec{.address = {kService.address}, .port = 80, .protocol = 6};
    for (const std::uint8_t last : std::array<std::uint8_t, 3>{1, 2, 3})
      spec.backends.push_back({{{10, 0, 0, last}}, 8080});
    config_.services = {.v4 = {spec}};
    make();
    for (unsigned n = 0; n < kConnections; ++n) {
      connections_.push_back(
          {{{192, 0, 2, static_cast<std::uint8_t>(n)}, static_cast<std::uint16_t>(1024 + n)},
           {},
           random(),
           random()});
    }
  }
  ~AttackTest() override {
    const auto ok = line_->check_invariants();
    EXPECT_TRUE(ok.has_value()) << ok.error().message;
  }

  void make() {
    line_.reset();
    balance_ = std::move(*Balance::create(config_));
    auto made = make_line({.capacity = 10 * kConnections,
                           .capacity_v6 = 1,
                           .timeouts = TimeoutSeconds().timeouts(),
                           .pages = Pages::small,
                           .secret = Secret::from_seed(1),
                           .half_open_percent = 25,
                           .catch_up = true},
                          *balance_);
    line_ = std::move(*made);
  }
  /// A connection that has changed since the last call of `carry`, and the image that the function
  /// makes of the connection's state.
  struct Carried {
    CarriedConnection<KeyV4> connection;
    std::array<std::byte, Part::kMost> image;
  };
  std::vector<Carried> carry() {
    for (LineCursor at; at.at != LineCursor::At::end;)
      at = line_->carry(at, kConnections, carrying_);
    const std::size_t image = line_->carried_parts().front().image_bytes;
    std::vector<Carried> all(std::exchange(carrying_.v4.count, 0));
    const std::byte* from = carrying_.v4.changed.data();
    for (Carried& one : all) {
      std::memcpy(&one.connection, from, sizeof(one.connection));
      std::memcpy(one.image.data(), from + sizeof(one.connection), image);
      from += sizeof(one.connection) + image;
    }
    carrying_.v4.changed.clear();
    return all;
  }

  std::uint32_t random() { return static_cast<std::uint32_t>(random_()); }
  void play(unsigned count, const Player::Make& make, const Player::Sent& sent = {}) {
    Player player(now_, count, make, sent);
    line_->run(player);
  }
  void from_client(const Connection& c, Frame& frame, unsigned flags) const {
    frame.tcp(c.client, kService, static_cast<std::uint8_t>(flags), c.client_next, c.server_next,
              scale_);
  }
  void from_server(const Connection& c, Frame& frame, unsigned flags) const {
    frame.tcp(c.backend, c.client, static_cast<std::uint8_t>(flags), c.server_next, c.client_next,
              scale_);
  }

  void send_syns() {
    play(
        kConnections, [&](unsigned n, Frame& f) { from_client(connections_[n], f, kSyn); },
        [&](unsigned n, const std::byte* packet) {
          End& backend = connections_[n].backend;
          std::memcpy(backend.address.data(), packet + 30, 4);
          backend.port = detail::u16(packet + 36);
        });
    for (Connection& c : connections_) ++c.client_next;
  }
  void answer_syns() {
    play(kConnections, [&](unsigned n, Frame& f) { from_server(connections_[n], f, kSyn | kAck); });
    for (Connection& c : connections_) ++c.server_next;
  }
  void establish() {
    send_syns();
    answer_syns();
    play(kConnections, [&](unsigned n, Frame& f) { from_client(connections_[n], f, kAck); });
  }

  /// Returns a function that makes packets of random connections, from either side, with random
  /// sequence numbers. The packets have the flags in `flags` in turn.
  Player::Make guesses(std::vector<unsigned> flags) {
    return [this, flags = std::move(flags)](unsigned n, Frame& f) {
      Connection guess = connections_[random() % kConnections];
      guess.client_next = random();
      guess.server_next = random();
      const unsigned with = flags[n % flags.size()];
      random() % 2 == 0 ? from_client(guess, f, with) : from_server(guess, f, with);
    };
  }

  std::map<std::string, unsigned> states() const {
    std::map<std::string, unsigned> count;
    const auto add = [&count](const ListedConnection& c) {
      ++count[std::string(to_string(c.state))];
      return Visit::leave;
    };
    for (LineCursor at; at.at != LineCursor::At::end;) at = line_->visit(at, add);
    return count;
  }
  using States = std::map<std::string, unsigned>;

  Tick now_{1'000'000};
  std::uint8_t scale_ = 0;  // the window scale in all SYNs; 0: no such option
  std::mt19937_64 random_{20261122};
  BalanceConfig config_;
  Carrying carrying_;
  std::unique_ptr<Balance> balance_;
  std::unique_ptr<Line> line_;
  std::vector<Connection> connections_;
};

TEST_F(AttackTest, GuessedResetsCloseNothing) {
  establish();
  ASSERT_EQ(states(), (States{{"established", kConnections}}));
  play(kGuesses, guesses({kRst, kRst | kAck}));
  EXPECT_EQ(states(), (States{{"established", kConnections}}));
  EXPECT_EQ(line_->counters().resets_ignored.value(), kGuesses);
  // Resets from the ends themselves, which know the sequence numbers, close the connections.
  play(kConnections, [&](unsigned n, Frame& f) {
    n % 2 == 0 ? from_client(connections_[n], f, kRst) : from_server(connections_[n], f, kRst);
  });
  EXPECT_EQ(states(), (States{{"closed", kConnections}}));
}

TEST_F(AttackTest, GuessedEndsAndDataChangeNothing) {
  for (const auto scale : std::array<std::uint8_t, 3>{0, 7, 14}) {
    SCOPED_TRACE("windows scaled by " + std::to_string(scale));
    scale_ = scale;
    make();
    establish();
    play(kGuesses, guesses({kFin | kAck, kAck, kSyn, kFin, 0}));
    EXPECT_EQ(states(), (States{{"established", kConnections}}));
    play(kConnections, [&](unsigned n, Frame& f) { from_client(connections_[n], f, kFin | kAck); });
    EXPECT_EQ(states(), (States{{"fin_wait", kConnections}}));
  }
}

// The server answers a forged SYN within a connection by a challenge ACK, not by a SYN-ACK: the
// connection's state stays.
TEST_F(AttackTest, GuessedSynsAreChallenged) {
  establish();
  play(kConnections, [&](unsigned n, Frame& f) {
    Connection guess = connections_[n];
    guess.client_next = random();
    from_client(guess, f, kSyn);
  });
  play(kConnections, [&](unsigned n, Frame& f) { from_server(connections_[n], f, kAck); });
  EXPECT_EQ(states(), (States{{"established", kConnections}}));
  play(kConnections, [&](unsigned n, Frame& f) { from_client(connections_[n], f, kRst); });
  EXPECT_EQ(states(), (States{{"closed", kConnections}}));
}

TEST_F(AttackTest, EndsThatBeginAgainAreFollowed) {
  for (const bool is_random : {false, true}) {
    make();
    establish();
    for (Connection& c : connections_) {
      c.client_next = is_random ? random() : c.client_next + 3'000'000'000U;
      c.server_next = random();
      play(1, [&](unsigned, Frame& f) { from_client(c, f, kSyn); });
      ASSERT_EQ(states()["established"], kConnections)
          << "the state must stay until the new SYN is answered";
      ++c.client_next;
      play(1, [&](unsigned, Frame& f) { from_server(c, f, kSyn | kAck); });
      ASSERT_EQ(states()["syn_received"], 1U);
      ++c.server_next;
      play(1, [&](unsigned, Frame& f) { from_client(c, f, kAck); });
      ASSERT_EQ(states()["established"], kConnections);
    }
    play(kConnections, [&](unsigned n, Frame& f) { from_client(connections_[n], f, kRst); });
    EXPECT_EQ(states(), (States{{"closed", kConnections}}));
  }
}

TEST_F(AttackTest, AGapWithinTheWindowIsFollowedWhereWhatIsAcknowledgedFits) {
  constexpr std::uint32_t kGap = 100'000'000;
  for (const auto scale : std::array<std::uint8_t, 2>{0, 14}) {
    SCOPED_TRACE("windows scaled by " + std::to_string(scale));
    scale_ = scale;
    make();
    establish();
    for (Connection& c : connections_) c.client_next += kGap;
    for (const unsigned flags : {kAck, kRst})
      play(kConnections, [&](unsigned n, Frame& f) { from_client(connections_[n], f, flags); });
    EXPECT_EQ(states(), (States{{scale == 0 ? "established" : "closed", kConnections}}));
  }
}

TEST_F(AttackTest, DataOfABackendShowsThatItHasAnswered) {
  send_syns();
  for (Connection& c : connections_) ++c.server_next;
  play(kConnections, [&](unsigned n, Frame& f) { from_client(connections_[n], f, kAck); });
  play(kConnections, [&](unsigned n, Frame& f) { from_server(connections_[n], f, kAck); });
  EXPECT_EQ(states(), (States{{"syn_sent", kConnections}}))
      << "a bare ACK may be a challenge ACK: it proves nothing";
  play(kConnections, [&](unsigned n, Frame& f) { from_server(connections_[n], f, kFin | kAck); });
  EXPECT_EQ(states(), (States{{"fin_wait", kConnections}}));
}

TEST_F(AttackTest, AnAnswerThatNobodySawIsFollowedAcrossAGap) {
  send_syns();
  for (Connection& c : connections_) {
    c.client_next += 30'000'000;
    c.server_next += 1000;
  }
  const auto both_send = [&] {
    for (Connection& c : connections_) ++c.server_next;
    play(kConnections, [&](unsigned n, Frame& f) { from_server(connections_[n], f, kFin | kAck); });
    play(kConnections, [&](unsigned n, Frame& f) { from_client(connections_[n], f, kAck); });
  };
  both_send();
  EXPECT_EQ(states(), (States{{"syn_sent", kConnections}}));
  both_send();
  EXPECT_EQ(states(), (States{{"close_wait", kConnections}}));
}

TEST_F(AttackTest, WhoMovesWithOlderNumbersIsStillKnownByThem) {
  establish();
  const auto both_send = [&](std::uint32_t bytes) {
    for (Connection& c : connections_) {
      c.client_next += 1000;
      c.server_next += bytes;
    }
    play(2 * kConnections, [&](unsigned n, Frame& f) {
      n % 2 == 0 ? from_client(connections_[n / 2], f, kAck)
                 : from_server(connections_[n / 2], f, kAck);
    });
  };
  constexpr std::uint32_t kStep = 512 << 10;
  ASSERT_EQ(carry().size(), kConnections);
  both_send(kStep);
  const auto carried = carry();
  ASSERT_EQ(carried.size(), kConnections);
  both_send(kStep / 4);
  EXPECT_LT(carry().size(), kConnections / 2)
      << "after a small step, less than half of the connections may be carried again";
  make();
  for (const Carried& one : carried) {
    const std::byte* const image = one.image.data();
    ASSERT_NE(line_->resume(one.connection, {&image, 1}, 0), ConnId::none);
  }
  play(kGuesses, guesses({kRst, kRst | kAck, kFin | kAck, kAck}));
  ASSERT_EQ(states(), (States{{"established", kConnections}}));
  both_send(1000);
  play(kConnections, [&](unsigned n, Frame& f) { from_server(connections_[n], f, kRst); });
  EXPECT_EQ(states(), (States{{"closed", kConnections}}));
}

TEST_F(AttackTest, WhoHasNotSeenTheAnswerProvesNothing) {
  send_syns();
  answer_syns();
  ASSERT_EQ(states(), (States{{"syn_received", kConnections}}));
  play(kConnections, [&](unsigned n, Frame& f) {
    Connection spoofed = connections_[n];
    spoofed.server_next = random();
    from_client(spoofed, f, kAck);
  });
  EXPECT_EQ(states(), (States{{"syn_received", kConnections}}));
  play(kConnections, [&](unsigned n, Frame& f) {
    Connection spoofed = connections_[n];
    spoofed.server_next = random();
    from_client(spoofed, f, kFin | kAck);
  });
  EXPECT_EQ(states(), (States{{"syn_received", kConnections}}));
}

// A connection from a client that has never seen a reply stays in the budget of half-open
// connections, even if a second packet pretends to end the connection.
TEST_F(AttackTest, WhoMakesUpAnEndStaysInTheBudget) {
  constexpr unsigned kPairs = 20 * kConnections;
  constexpr unsigned kBudget = 10 * kConnections / 4;
  for (const auto& [first, second] : {std::pair{kAck, kFin | kAck}, std::pair{kSyn, int{kRst}}}) {
    play(2 * kPairs, [&](unsigned n, Frame& f) {
      const unsigned pair = n / 2;
      const auto subnet = static_cast<std::uint8_t>(first == kAck ? 18 : 19);
      const End client{
          {198, subnet, static_cast<std::uint8_t>(pair >> 8), static_cast<std::uint8_t>(pair)},
          4000};
      const bool is_first = n % 2 == 0;
      const unsigned sequence = 1000U - (is_first && first == kSyn);
      f.tcp(client, kService, static_cast<std::uint8_t>(is_first ? first : second), sequence, 7);
    });
    EXPECT_GT(line_->counters().over_budget.value(), 0U);
    EXPECT_LE(line_->report_v4().live, kBudget + 64) << int{first};
  }
}

TEST_F(AttackTest, IcmpErrorsNeitherCloseNorRefresh) {
  establish();
  play(kGuesses, [&](unsigned n, Frame& f) {
    const Connection& c = connections_[random() % kConnections];
    const End anywhere{{198, 51, 100, static_cast<std::uint8_t>(random())}, 0};
    const auto code = static_cast<std::uint8_t>(n % 16);
    switch (n % 4) {
      case 0:  // cases 0 and 1: about packets that the line receives, and never sends
        return f.icmp_error(anywhere, c.client, kService, code);
      case 1:
        return f.icmp_error(anywhere, c.backend, c.client, code);
      case 2:  // cases 2 and 3: about packets that the line sends
        return f.icmp_error(anywhere, kService, c.client, code);
      default:
        return f.icmp_error(anywhere, c.client, c.backend, code);
    }
  });
  for (const Verdict verdict : {Verdict::icmp_error, Verdict::related})
    EXPECT_EQ(line_->counters().verdict[static_cast<std::size_t>(verdict)].value(), kGuesses / 2);
  EXPECT_EQ(states(), (States{{"established", kConnections}}));
  const unsigned timeout_ms =
      TimeoutSeconds().timeouts().of(ConnectionState::established, kProtocolTcp);
  now_ = now_ + (timeout_ms - kGuesses / 32);
  play(32, [&](unsigned, Frame& f) {
    f.icmp_error({{198, 51, 100, 1}, 0}, connections_[0].client, connections_[0].backend, 1);
  });
  EXPECT_EQ(states(), (States{}));
}

}  // namespace
}  // namespace millrace
