// Tests of proofs while another worker changes the connection. One thread runs the other worker's
// steps from within `limits.take`, so that each order of the steps is tested.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "conntrack/schemes.h"
#include "conntrack/test_support.h"
#include "conntrack/tracker.h"
#include "core/test_sanitizers.h"

namespace millrace {
namespace {

/// Limits whose `take` first runs another worker's steps (`meanwhile`), then returns `says`.
struct Limits {
  Proof says = Proof::service_and_source;
  std::function<void()> meanwhile = [] {};
  int out = 0;  ///< number of proofs that were taken and not given back

  Proof take(ConnId) {
    std::exchange(meanwhile, [] {})();
    out += says != Proof::none;
    return says;
  }
  void give_back(ConnId, Proof proof) {
    EXPECT_EQ(proof, says);
    --out;
  }
};

template <class K>
class ProofTest : public testing::Test {
 protected:
  using Tracked = Tracker<SharedRace, LockFreeRace::Guards, K>;
  using Followed = typename Tracked::Followed;

  ProofTest()
      : trackers_(*Tracked::create({.capacity = 100,
                                    .follows = true,
                                    .timeouts = Timeouts::all(1000),
                                    .ageing = &Wheel::create,
                                    .pages = Pages::small},
                                   LockFreeRace::create(), 2)) {
    for (Tracked& tracker : trackers_) tracker.begin();
    const K key = test::nth_key<K>(1);
    id_ =
        owner().open(key, owner().hasher()(key), now_, [](ConnId) { FAIL() << "an eviction"; }).id;
    owner().confirm(id_);
    EXPECT_EQ(packet(owner(), owners_), Followed::passed);
    EXPECT_EQ(owners_.out, 0) << "one datagram proves nothing";
  }
  void TearDown() override {
    for (Tracked& tracker : trackers_) {
      const auto ok = tracker.check_invariants();
      EXPECT_TRUE(ok.has_value()) << ok.error().message;
      tracker.end();
    }
  }

  Tracked& owner() { return trackers_[0]; }
  Tracked& other() { return trackers_[1]; }
  Followed packet(Tracked& tracker, Limits& limits) {
    return tracker.follow(Side::originator, id_, Signal::packet, Segment{}, now_, limits);
  }
  /// Ends the connection, and keeps the proof that is to be given back.
  void end() {
    owner().close(id_, [this](ConnId id) {
      left_ = owner().proof_of(id);
      EXPECT_TRUE(owner().key_of(id) == test::nth_key<K>(1));
    });
  }

  Tick now_{100};
  std::vector<Tracked> trackers_;
  ConnId id_{};
  Limits owners_;
  Limits others_;
  Proof left_ = Proof::none;
};
using Families = testing::Types<KeyV4, KeyV6>;
TYPED_TEST_SUITE(ProofTest, Families);

TYPED_TEST(ProofTest, IsTakenOnceAndLeftToTheEnd) {
  EXPECT_EQ(this->packet(this->other(), this->others_), TestFixture::Followed::passed);
  EXPECT_EQ(this->packet(this->owner(), this->owners_), TestFixture::Followed::passed);
  EXPECT_EQ(this->others_.out + this->owners_.out, 1);
  this->end();
  EXPECT_EQ(this->left_, Proof::service_and_source);
}

TYPED_TEST(ProofTest, WhoComesSecondGivesItsOwnBack) {
  this->others_.meanwhile = [this] { this->packet(this->owner(), this->owners_); };
  EXPECT_EQ(this->packet(this->other(), this->others_), TestFixture::Followed::passed);
  EXPECT_EQ(this->owners_.out, 1);
  EXPECT_EQ(this->others_.out, 0);
  this->end();
  EXPECT_EQ(this->left_, Proof::service_and_source);
}

TYPED_TEST(ProofTest, WhatEndsMeanwhileIsNotProved) {
  this->others_.meanwhile = [this] { this->end(); };
  EXPECT_EQ(this->packet(this->other(), this->others_), TestFixture::Followed::passed);
  EXPECT_EQ(this->left_, Proof::none);
  EXPECT_EQ(this->others_.out, 0);
}

TYPED_TEST(ProofTest, WhatIsProvedMeanwhileIsNotRefused) {
  this->others_.says = Proof::none;
  this->others_.meanwhile = [this] { this->packet(this->owner(), this->owners_); };
  EXPECT_EQ(this->packet(this->other(), this->others_), TestFixture::Followed::passed);
  EXPECT_EQ(this->owners_.out, 1);
  this->end();
}

TYPED_TEST(ProofTest, WhatIsRefusedStaysAsItIs) {
  this->others_.says = Proof::none;
  EXPECT_EQ(this->packet(this->other(), this->others_), TestFixture::Followed::not_proved);
  EXPECT_EQ(this->owner().state_of(Side::originator, this->id_), ConnectionState::udp_unreplied);
  this->others_.says = Proof::service;
  EXPECT_EQ(this->packet(this->other(), this->others_), TestFixture::Followed::passed);
  this->end();
  EXPECT_EQ(this->left_, Proof::service);
}

// A connection without a reply's entry takes one id instead of two, so workers that share tables
// may open many more connections than promised: ageing has room for all of them.
TEST(SharedTracker, HasRoomForAsManyAsThereAreIds) {
  using Tracked = Tracker<SharedRace, LockFreeRace::Guards, KeyV4>;
  constexpr std::size_t kCapacity = kSanitized ? 10'000 : 1'000'000;
  auto trackers = *Tracked::create({.capacity = kCapacity,
                                    .reply_state_bytes = 2,
                                    .follows = true,
                                    .timeouts = Timeouts::all(1000),
                                    .ageing = &Wheel::create,
                                    .pages = Pages::small},
                                   LockFreeRace::create(), 2);
  for (Tracked& tracker : trackers) tracker.begin();
  std::size_t opened = 0;
  std::uint64_t n = 0;
  for (Tracked& tracker : {std::ref(trackers[0]), std::ref(trackers[1])}) {
    for (unsigned refused = 0; refused < 1000; ++n) {
      const KeyV4 key = test::nth_key<KeyV4>(n);
      const auto in = tracker.open(key, tracker.hasher()(key), Tick{100}, [](ConnId) {});
      refused += in.outcome == Insertion::Outcome::full;
      if (in.outcome != Insertion::Outcome::inserted) continue;
      tracker.confirm(in.id);
      ++opened;
    }
  }
  EXPECT_GT(opened, kCapacity);
  for (Tracked& tracker : trackers) {
    EXPECT_TRUE(tracker.check_invariants().has_value());
    tracker.end();
  }
}

}  // namespace
}  // namespace millrace
