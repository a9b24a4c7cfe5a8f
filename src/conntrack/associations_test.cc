// Tests which packets of an SCTP association change its state: those whose verification tags show
// that an end has sent them.
#include <gtest/gtest.h>

#include <cstdint>
#include <tuple>

#include "conntrack/schemes.h"
#include "conntrack/test_support.h"
#include "conntrack/tracker.h"

namespace millrace {
namespace {

struct NoLimits {
  Proof take(ConnId) { return Proof::service; }
  void give_back(ConnId, Proof) {}
};

constexpr std::uint32_t kClients = 0xc11e0001;  // the tag that the client has chosen
constexpr std::uint32_t kServers = 0x5e12f002;

template <class K>
class AssociationTest : public testing::Test {
 protected:
  using Tracked = Tracker<Race, Sharded::Guards, K>;
  using Followed = typename Tracked::Followed;
  using State = ConnectionState;

  AssociationTest() { open(); }
  void TearDown() override {
    const auto ok = tracker_.check_invariants();
    EXPECT_TRUE(ok.has_value()) << ok.error().message;
  }

  void open() {
    const K key = test::nth_key<K>(1, kProtocolSctp);
    const auto none = [](ConnId) { FAIL() << "an eviction"; };
    client_ = tracker_.open(key, tracker_.hasher()(key), now_, none).id;
    server_ = tracker_.link(reversed(key), now_, {}, none).id;
    tracker_.confirm(client_, server_);
  }

  Followed send(Side from, Signal signal, Tags tags) {
    now_ = now_ + 1;
    const ConnId id = from == Side::originator ? client_ : server_;
    if (!tracker_.concerns(from, id, signal, now_)) return Followed::passed;
    return tracker_.follow(from, id, signal, tags, now_, limits_);
  }
  /// Sends a packet of the client with `tag`, which should be the server's tag.
  Followed client(Signal signal, std::uint32_t tag, std::uint32_t initiate = 0) {
    return send(Side::originator, signal, {.tag = tag, .initiate = initiate, .is_whole = true});
  }
  Followed server(Signal signal, std::uint32_t tag, std::uint32_t initiate = 0) {
    return send(Side::reply, signal, {.tag = tag, .initiate = initiate, .is_whole = true});
  }
  Followed reflected(Side from, Signal signal, std::uint32_t tag) {
    return send(from, signal, {.tag = tag, .reflects = true, .is_whole = true});
  }
  void establish() {
    client(Signal::sctp_init, 0, kClients);
    server(Signal::sctp_init_ack, kClients, kServers);
    client(Signal::sctp_cookie_echo, kServers);
    server(Signal::sctp_cookie_ack, kClients);
    ASSERT_EQ(state(), State::sctp_established);
  }
  State state() const {
    EXPECT_EQ(tracker_.state_of(Side::reply, server_),
              tracker_.state_of(Side::originator, client_));
    return tracker_.state_of(Side::originator, client_);
  }
  bool is_proved() const { return tracker_.proof_of(client_) != Proof::none; }

  Tick now_{100};
  Tracked tracker_ = *Tracked::create({.capacity = 10,
                                       .reply_state_bytes = 0,
                                       .follows = true,
                                       .timeouts = Timeouts::all(1000),
                                       .ageing = &Wheel::create,
                                       .pages = Pages::small});
  ConnId client_{};
  ConnId server_{};
  NoLimits limits_;
};
using Families = testing::Types<KeyV4, KeyV6>;
TYPED_TEST_SUITE(AssociationTest, Families);

TYPED_TEST(AssociationTest, AHandshakeIsFollowedByItsTags) {
  using enum ConnectionState;
  this->client(Signal::sctp_init, 0, kClients);
  EXPECT_EQ(this->state(), sctp_cookie_wait);
  this->client(Signal::sctp_cookie_echo, kServers);
  EXPECT_EQ(this->state(), sctp_cookie_wait) << "no INIT ACK was seen";
  this->server(Signal::sctp_init_ack, kClients + 1, kServers);
  EXPECT_EQ(this->state(), sctp_cookie_wait);
  this->server(Signal::sctp_init_ack, kClients, kServers);
  EXPECT_EQ(this->state(), sctp_cookie_sent);
  EXPECT_FALSE(this->is_proved());
  this->client(Signal::sctp_cookie_echo, kServers + 1);
  EXPECT_EQ(this->state(), sctp_cookie_sent);
  this->client(Signal::sctp_cookie_echo, kServers);
  EXPECT_EQ(this->state(), sctp_cookie_echoed);
  EXPECT_TRUE(this->is_proved()) << "the client has received the server's tag";
  this->server(Signal::sctp_cookie_ack, kClients + 1);
  EXPECT_EQ(this->state(), sctp_cookie_echoed);
  this->server(Signal::sctp_cookie_ack, kClients);
  EXPECT_EQ(this->state(), sctp_established);
}

TYPED_TEST(AssociationTest, OnlyAnEndMayEndIt) {
  using enum ConnectionState;
  using T = TestFixture;
  for (const auto& [side, own, others] : {std::tuple(Side::originator, kServers, kClients),
                                          std::tuple(Side::reply, kClients, kServers)}) {
    for (const bool reflects : {false, true}) {
      const std::uint32_t right = reflects ? others : own;
      const std::uint32_t wrong = reflects ? own : others;
      const auto abort = [&](std::uint32_t tag) {
        return this->send(side, Signal::sctp_abort,
                          {.tag = tag, .reflects = reflects, .is_whole = true});
      };
      this->establish();
      for (const std::uint32_t tag : {wrong, 0U, right + 1})
        EXPECT_EQ(abort(tag), T::Followed::reset_ignored);
      EXPECT_EQ(this->send(side, Signal::sctp_abort, {}), T::Followed::reset_ignored);
      EXPECT_EQ(this->state(), sctp_established);
      EXPECT_EQ(abort(right), T::Followed::passed);
      EXPECT_EQ(this->state(), sctp_aborted);
      this->tracker_.close(this->client_);
      this->tracker_.reclaim();
      this->open();
    }
  }
}

TYPED_TEST(AssociationTest, AShutdownNeedsTheTagsOfBoth) {
  using enum ConnectionState;
  this->establish();
  this->client(Signal::sctp_shutdown, kServers + 1);
  EXPECT_EQ(this->state(), sctp_established);
  this->client(Signal::sctp_shutdown, kServers);
  EXPECT_EQ(this->state(), sctp_shutdown_sent);
  this->server(Signal::sctp_shutdown_ack, kServers);
  EXPECT_EQ(this->state(), sctp_shutdown_sent);
  this->server(Signal::sctp_shutdown_ack, kClients);
  EXPECT_EQ(this->state(), sctp_shutdown_ack_sent);
  this->client(Signal::sctp_shutdown_complete, kClients);
  EXPECT_EQ(this->state(), sctp_shutdown_ack_sent);
  this->reflected(Side::originator, Signal::sctp_shutdown_complete, kServers);
  EXPECT_EQ(this->state(), sctp_shutdown_ack_sent);
  this->reflected(Side::originator, Signal::sctp_shutdown_complete, kClients);
  EXPECT_EQ(this->state(), sctp_closed) << "the client has forgotten the association";
  EXPECT_TRUE(this->tracker_.begins_anew(this->client_, Signal::sctp_init));
  EXPECT_FALSE(this->tracker_.begins_anew(this->client_, Signal::sctp_data));
}

TYPED_TEST(AssociationTest, AnInitThatNobodyAnswersIsAborted) {
  this->client(Signal::sctp_init, 0, kClients);
  this->server(Signal::sctp_abort, kClients + 1);
  EXPECT_EQ(this->state(), ConnectionState::sctp_cookie_wait);
  this->server(Signal::sctp_abort, kClients);
  EXPECT_EQ(this->state(), ConnectionState::sctp_aborted);
}

// An end that restarts with the same ports has forgotten the association (RFC 9260, 5.2.2): fixed
// ports at both ends are the rule in telephony.
TYPED_TEST(AssociationTest, AnEndThatForgotBeginsAgain) {
  using enum ConnectionState;
  for (const bool is_client : {true, false}) {
    this->establish();
    const Side side = is_client ? Side::originator : Side::reply;
    const Side other = is_client ? Side::reply : Side::originator;
    const auto send = [&](Side from, Signal signal, std::uint32_t tag, std::uint32_t initiate = 0) {
      this->send(from, signal, {.tag = tag, .initiate = initiate, .is_whole = true});
    };
    const std::uint32_t old = is_client ? kServers : kClients;
    send(side, Signal::sctp_init, 0, 70);
    send(other, Signal::sctp_init_ack, 70, 80);
    EXPECT_EQ(this->state(), sctp_established);
    send(side, Signal::sctp_shutdown, 80);
    EXPECT_EQ(this->state(), sctp_established) << "not before the cookie is echoed";
    send(side, Signal::sctp_cookie_echo, 80);
    EXPECT_EQ(this->state(), sctp_cookie_echoed);
    EXPECT_TRUE(this->is_proved());
    send(other, Signal::sctp_cookie_ack, 70);
    EXPECT_EQ(this->state(), sctp_established);
    send(side, Signal::sctp_abort, old);
    EXPECT_EQ(this->state(), sctp_established) << "the old tag";
    send(other, Signal::sctp_abort, 70);
    EXPECT_EQ(this->state(), sctp_aborted);
    this->tracker_.close(this->client_);
    this->tracker_.reclaim();
    this->open();
  }
}

TYPED_TEST(AssociationTest, AForgedInitChangesNothing) {
  using enum ConnectionState;
  this->establish();
  this->client(Signal::sctp_init, 0, 70);
  this->client(Signal::sctp_cookie_echo, 70);
  this->client(Signal::sctp_init_ack, 70, 82);
  this->server(Signal::sctp_cookie_echo, 82);
  EXPECT_EQ(this->state(), sctp_established) << "the forger has told these tags itself";
  this->server(Signal::sctp_init_ack, 70, 80);  // the server answers the client, which is surprised
  this->client(Signal::sctp_cookie_echo, 81);
  EXPECT_EQ(this->state(), sctp_established);
  this->server(Signal::sctp_init_ack, 71, 81);
  this->client(Signal::sctp_cookie_echo, 81);
  EXPECT_EQ(this->state(), sctp_established) << "an INIT ACK that answers no INIT";
  this->client(Signal::sctp_shutdown, kServers);
  EXPECT_EQ(this->state(), sctp_shutdown_sent) << "the tags are the old ones";
  this->server(Signal::sctp_abort, kClients);
  EXPECT_EQ(this->state(), sctp_aborted);
}

// A forger's INIT may arrive before the INIT ACK of the true one.
TYPED_TEST(AssociationTest, AHandshakeSurvivesAForgedInit) {
  using enum ConnectionState;
  this->client(Signal::sctp_init, 0, kClients);
  this->client(Signal::sctp_init, 0, 70);
  this->server(Signal::sctp_init_ack, kClients, kServers);
  this->server(Signal::sctp_init_ack, 70, 80);
  this->client(Signal::sctp_cookie_echo, kServers);
  EXPECT_EQ(this->state(), sctp_cookie_echoed);
  this->server(Signal::sctp_cookie_ack, kClients);
  EXPECT_EQ(this->state(), sctp_established);
}

TYPED_TEST(AssociationTest, AClientMayChangeItsMindBeforeItIsAnswered) {
  using enum ConnectionState;
  this->client(Signal::sctp_init, 0, kClients);
  this->client(Signal::sctp_init, 0, 70);
  this->server(Signal::sctp_init_ack, 70, 80);
  EXPECT_EQ(this->state(), sctp_cookie_wait);
  this->client(Signal::sctp_cookie_echo, 80);
  EXPECT_EQ(this->state(), sctp_cookie_echoed);
  this->server(Signal::sctp_cookie_ack, 70);
  EXPECT_EQ(this->state(), sctp_established);
}

TYPED_TEST(AssociationTest, BothMayBeginAtOnce) {
  using enum ConnectionState;
  this->client(Signal::sctp_init, 0, kClients);
  this->server(Signal::sctp_init, 0, kServers);
  this->client(Signal::sctp_init_ack, kServers, kClients);
  this->server(Signal::sctp_cookie_echo, kClients);
  EXPECT_EQ(this->state(), sctp_cookie_echoed);
  this->client(Signal::sctp_cookie_ack, kServers);
  EXPECT_EQ(this->state(), sctp_established);
  this->server(Signal::sctp_shutdown, kClients);
  EXPECT_EQ(this->state(), sctp_shutdown_received);
}

// The INIT was repeated, and the client has answered the first of two INIT ACKs.
TYPED_TEST(AssociationTest, AnEarlierInitAckMayBeAnswered) {
  using enum ConnectionState;
  this->client(Signal::sctp_init, 0, kClients);
  this->server(Signal::sctp_init_ack, kClients, kServers);
  this->server(Signal::sctp_init_ack, kClients, 80);
  this->client(Signal::sctp_cookie_echo, kServers);
  EXPECT_EQ(this->state(), sctp_cookie_sent);
  this->server(Signal::sctp_cookie_ack, kClients);
  EXPECT_EQ(this->state(), sctp_established);
  this->client(Signal::sctp_shutdown, kServers);
  EXPECT_EQ(this->state(), sctp_shutdown_sent);
}

TYPED_TEST(AssociationTest, APathThatWasNotSeenFromItsBeginningLearnsItsTags) {
  using enum ConnectionState;
  this->client(Signal::sctp_heartbeat, kServers);
  EXPECT_EQ(this->state(), sctp_midstream);
  EXPECT_FALSE(this->is_proved());
  this->server(Signal::sctp_data, kClients);
  EXPECT_EQ(this->state(), sctp_established);
  EXPECT_TRUE(this->is_proved());
  this->server(Signal::sctp_abort, kClients + 1);
  this->client(Signal::sctp_abort, kServers + 1);
  EXPECT_EQ(this->state(), sctp_established);
  this->client(Signal::sctp_abort, kServers);
  EXPECT_EQ(this->state(), sctp_aborted);
}

TYPED_TEST(AssociationTest, ItsTagsMoveWithIt) {
  using T = TestFixture;
  this->establish();
  const LifeImage image = this->tracker_.image(this->client_, this->now_);
  EXPECT_EQ(image.mark, kServers);
  EXPECT_EQ(image.reply_mark, kClients);
  const auto before = this->tracker_.fingerprint(this->client_, this->now_);
  const TypeParam key = this->tracker_.originators().header(this->client_).key;
  this->tracker_.close(this->client_);
  this->tracker_.reclaim();
  this->now_ = this->now_ + 77;
  this->client_ = this->tracker_.restore(
      {.key = key, .state = {}, .reply_key = reversed(key), .reply_state = {}}, image, this->now_,
      0, T::Tracked::Newcomer::proved, [](ConnId) {});
  this->server_ = peer_of(this->tracker_.originators().header(this->client_));
  EXPECT_EQ(this->tracker_.fingerprint(this->client_, this->now_), before);
  EXPECT_EQ(this->server(Signal::sctp_abort, kServers), T::Followed::reset_ignored);
  EXPECT_EQ(this->server(Signal::sctp_abort, kClients), T::Followed::passed);
  EXPECT_EQ(this->state(), ConnectionState::sctp_aborted);
}

// If the replies do not pass here, no tag can be checked; a later packet shows that an ABORT was
// forged.
TYPED_TEST(AssociationTest, OneDirectionIsBelieved) {
  using enum ConnectionState;
  this->tracker_.close(this->client_);
  this->tracker_.reclaim();
  const auto key = test::nth_key<TypeParam>(2, kProtocolSctp);
  this->client_ =
      this->tracker_.open(key, this->tracker_.hasher()(key), this->now_, [](ConnId) {}).id;
  this->tracker_.confirm(this->client_);
  const auto state = [&] { return this->tracker_.state_of(Side::originator, this->client_); };
  this->client(Signal::sctp_init, 0, kClients);
  this->client(Signal::sctp_cookie_echo, kServers);
  EXPECT_EQ(state(), sctp_cookie_echoed);
  this->client(Signal::sctp_abort, 1);
  EXPECT_EQ(state(), sctp_aborted);
  this->client(Signal::sctp_data, kServers);
  EXPECT_EQ(state(), sctp_established);
}

}  // namespace
}  // namespace millrace
