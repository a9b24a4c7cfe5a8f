// Tests two servers without a store, from outside: the active one becomes the master, a process
// that has nothing is not copied, and two masters agree again.
#include "replicate/pair.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/test_seed.h"

namespace millrace {
namespace {

/// Two servers, and the link between them.
class Pairs : public testing::Test {
 protected:
  struct Server {
    unsigned number = 1;
    std::uint64_t starts = 0;
    std::unique_ptr<Pair> pair;
    Epoch copied = 0;     // the epoch of the copy that it has whole
    bool has_it = false;  // it has all connections
  };

  Pairs() {
    start(one_);
    start(two_);
  }

  void start(Server& server) {
    server.number = &server == &one_ ? 1 : 2;
    ++server.starts;
    server.pair = std::make_unique<Pair>(PairSettings{.number = server.number,
                                                      .self = member(server),
                                                      .version = 5,
                                                      .shards = 128,
                                                      .agreement = 7});
    server.has_it = false;
    server.copied = 0;
  }
  static Member member(const Server& server) {
    return Member{(server.number + 2 * server.starts) * kWorkersOfMember};
  }

  /// Lets time pass; hellos arrive if `is_linked`.
  void run(std::uint32_t ms, bool is_linked = true) {
    for (const Pair::Ms until = now_ + ms; now_ < until; now_ += 50) {
      if (is_linked) {
        tell(one_, two_);
        tell(two_, one_);
      }
      one_.pair->tick(now_);
      two_.pair->tick(now_);
      if (is_linked) copy();
    }
  }
  void tell(const Server& from, Server& to) {
    to.pair->hear(member(from), from.pair->assignment().epoch, from.pair->hello(), {}, now_);
  }
  /// Does what the copies do: a slave of the other one's epoch gets what the master has.
  void copy() {
    const Assignment& a = one_.pair->assignment();
    const Assignment& b = two_.pair->assignment();
    const bool fits = a.epoch == b.epoch && a.role != b.role && a.other == member(two_) &&
                      b.other == member(one_);
    if (!fits || a.role == CopyRole::none || b.role == CopyRole::none) return;
    Server& master = a.role == CopyRole::master ? one_ : two_;
    Server& slave = a.role == CopyRole::master ? two_ : one_;
    if (slave.has_it && !master.has_it) FAIL() << "a process that has nothing is copied";
    slave.has_it = master.has_it;
    one_.pair->set_in_sync(true, now_);
    two_.pair->set_in_sync(true, now_);
  }
  static CopyRole role(const Server& server) { return server.pair->assignment().role; }

  Pair::Ms now_ = Pair::Ms{30} * 24 * 3600 * 1000;  // later than ticks can be compared
  Server one_;
  Server two_;
};

TEST_F(Pairs, TheActiveOneBecomesTheMaster) {
  run(1000);
  EXPECT_EQ(role(one_), CopyRole::master) << "nobody is active: the lower number";
  EXPECT_EQ(role(two_), CopyRole::slave);
  EXPECT_TRUE(one_.pair->both_are_new());
  EXPECT_TRUE(two_.pair->both_are_new());
  one_.has_it = true;
  run(200);
  two_.pair->set_active(true, now_);
  run(500);
  EXPECT_EQ(role(two_), CopyRole::master);
  EXPECT_EQ(role(one_), CopyRole::slave);
  EXPECT_TRUE(two_.pair->assignment().is_settled);
  EXPECT_TRUE(two_.has_it);
}

TEST_F(Pairs, AProcessThatBeginsGetsTheCopyFirst) {
  run(500);
  one_.has_it = true;
  one_.pair->set_active(true, now_);
  run(500);
  start(one_);  // keepalived makes it active at once
  one_.pair->set_active(true, now_);
  EXPECT_FALSE(one_.pair->has_settled());
  run(1000);
  EXPECT_TRUE(one_.has_it);
  EXPECT_TRUE(two_.has_it);
  EXPECT_EQ(role(one_), CopyRole::master);
  EXPECT_TRUE(one_.pair->has_settled());
  EXPECT_FALSE(one_.pair->both_are_new());
}

TEST_F(Pairs, ALostServerIsAwaited) {
  run(500);
  one_.has_it = true;
  run(200);
  two_.pair->set_active(true, now_);
  run(3500, false);
  EXPECT_EQ(role(two_), CopyRole::master);
  EXPECT_FALSE(two_.pair->assignment().is_settled);
  EXPECT_TRUE(two_.pair->has_settled()) << "it knows what was before";
  EXPECT_TRUE(two_.pair->set_gone(now_));
  EXPECT_TRUE(two_.pair->assignment().is_settled);
  run(200);
  EXPECT_FALSE(two_.pair->set_gone(now_)) << "the other one is there";
}

TEST_F(Pairs, TwoMastersAgreeAgain) {
  run(500);
  one_.has_it = true;
  run(200);
  one_.pair->set_active(true, now_);
  two_.pair->set_active(true, now_);
  run(2000, false);
  EXPECT_EQ(role(one_), CopyRole::master);
  EXPECT_EQ(role(two_), CopyRole::master);
  run(1000);
  EXPECT_NE(role(one_), role(two_));
  const bool one_leads = role(one_) == CopyRole::master;
  (one_leads ? one_ : two_).pair->set_active(false, now_);
  run(1000);
  EXPECT_EQ(role(one_), one_leads ? CopyRole::slave : CopyRole::master);
}

TEST_F(Pairs, WhatDiffersIsSaid) {
  const Hello right = two_.pair->hello();
  const auto said = [&](Hello hello) {
    one_.pair->hear(member(two_), 0, hello, {}, now_);
    return one_.pair->disagreement(now_);
  };
  EXPECT_EQ(said(right), "");
  Hello wrong = right;
  wrong.number = 1;
  EXPECT_NE(said(wrong).find("same number"), std::string::npos);
  wrong = right;
  wrong.shards = 512;
  EXPECT_NE(said(wrong).find("shards"), std::string::npos);
  wrong = right;
  wrong.agreement = 8;
  EXPECT_NE(said(wrong).find("functions"), std::string::npos);
  wrong = right;
  wrong.version = 6;
  EXPECT_NE(said(wrong).find("format"), std::string::npos);
  EXPECT_EQ(said(right), "");
  const auto why = "records of another version";
  one_.pair->hear(member(two_), 0, right, why, now_);
  EXPECT_EQ(one_.pair->disagreement(now_), why);
  EXPECT_FALSE(one_.pair->agrees());
  one_.pair->set_agreement(right.agreement);
  EXPECT_FALSE(one_.pair->agrees()) << "a reload changes nothing about its records";
}

TEST(PairsHello, IsReadByItsKnownBytes) {
  const Hello hello{.version = 5, .number = 2, .parts = 2, .shards = 128, .layout = 9};
  const auto payload = [&](std::size_t more, std::size_t parts) {
    std::vector<std::byte> all(sizeof(hello) + more + parts, std::byte{1});
    std::memcpy(all.data(), &hello, sizeof(hello));
    return all;
  };
  for (const std::size_t more : {0U, 1U, 40U}) {
    const auto bytes = payload(more, 2 * kPartBytes);
    const auto told = read_hello(bytes);
    ASSERT_TRUE(told.has_value());
    EXPECT_EQ(told->hello.shards, 128U);
    EXPECT_EQ(told->hello.layout, 9U);
    EXPECT_EQ(told->parts.size(), 2 * kPartBytes);
    EXPECT_EQ(told->parts.data(), bytes.data() + sizeof(hello) + more);
  }
  EXPECT_FALSE(read_hello(payload(0, 2 * kPartBytes - 1)).has_value());
  EXPECT_FALSE(read_hello(std::vector<std::byte>(kLeastHello - 1)).has_value());
  EXPECT_FALSE(read_hello({}).has_value());
}

TEST_F(Pairs, NothingIsTakenWhileTheyDiffer) {
  run(500);
  one_.has_it = true;
  run(500);
  EXPECT_TRUE(two_.pair->agrees());
  const Epoch before = one_.pair->assignment().epoch;
  one_.pair->set_agreement(8);
  EXPECT_FALSE(one_.pair->agrees());
  run(200);
  EXPECT_FALSE(two_.pair->agrees());
  two_.pair->set_agreement(8);
  run(500);
  EXPECT_TRUE(one_.pair->agrees());
  EXPECT_TRUE(two_.pair->agrees());
  EXPECT_GT(one_.pair->assignment().epoch, before) << "all must be told anew";
  EXPECT_EQ(one_.pair->assignment().epoch, two_.pair->assignment().epoch);
}

TEST_F(Pairs, StoredHellosOfAnEarlierProcessChangeNothing) {
  run(500);
  one_.has_it = true;
  run(500);
  const Member earlier = member(two_);
  const Hello stored = two_.pair->hello();
  const Epoch epoch = two_.pair->assignment().epoch;
  start(two_);
  run(1000);
  EXPECT_TRUE(two_.has_it);
  const Epoch before = one_.pair->assignment().epoch;
  one_.pair->hear(earlier, epoch, stored, {}, now_);
  one_.pair->hear(member(two_), UINT64_MAX, two_.pair->hello(), {}, now_);
  run(1000);
  EXPECT_EQ(role(one_), CopyRole::master);
  EXPECT_EQ(role(two_), CopyRole::slave);
  EXPECT_EQ(one_.pair->assignment().epoch, before);
}

/// A server that takes a hello for that of a new process has no role, and gets one again.
TEST_F(Pairs, AServerThatLostItsRoleGetsOne) {
  run(500);
  one_.has_it = true;
  run(500);
  two_.pair->hear(Member{77 * kWorkersOfMember}, 0, one_.pair->hello(), {}, now_);
  start(one_);  // no earlier process of either server is heard again
  one_.has_it = true;
  run(1500);
  EXPECT_NE(role(one_), CopyRole::none);
  EXPECT_NE(role(two_), CopyRole::none);
  EXPECT_NE(role(one_), role(two_));
}

TEST_F(Pairs, RandomEvents) {
  SCOPED_TRACE(test::repeat());
  std::mt19937_64 random(test::seed());
  run(500);
  one_.has_it = two_.has_it = true;
  for (unsigned n = 0; n < 3000 && !HasFailure(); ++n) {
    Server& some = random() % 2 == 0 ? one_ : two_;
    Server& other = &some == &one_ ? two_ : one_;
    switch (random() % 6) {
      case 0:
        some.pair->set_active(true, now_);
        break;
      case 1:
        some.pair->set_active(false, now_);
        break;
      case 2:
        run(static_cast<std::uint32_t>(random() % 2000), false);
        break;
      case 3:
        if (some.has_it && other.has_it && random() % 3 == 0) start(some);
        break;
      default:
        run(static_cast<std::uint32_t>(random() % 1500));
    }
  }
  one_.pair->set_active(true, now_);
  two_.pair->set_active(false, now_);
  run(3000);
  EXPECT_EQ(role(one_), CopyRole::master);
  EXPECT_EQ(role(two_), CopyRole::slave);
  EXPECT_EQ(one_.pair->assignment().epoch, two_.pair->assignment().epoch);
  EXPECT_TRUE(one_.has_it);
  EXPECT_TRUE(two_.has_it);
  EXPECT_TRUE(one_.pair->assignment().is_settled);
}

}  // namespace
}  // namespace millrace
