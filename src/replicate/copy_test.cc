#include "replicate/copy.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <set>
#include <vector>

namespace millrace {
namespace {

constexpr Member kOne{1};
constexpr Member kTwo{2};
constexpr Member kThree{3};

/// A copy with connections that are numbers.
class Side final : public ShardCopy::Records, public ShardCopy::Outbox {
 public:
  explicit Side(Member member) : core(7, *this), member_(member) {}

  bool tell(ShardCopy& copy, Tick now) override {
    while (!changed.empty() && copy.has_room()) {
      const std::uint32_t key = *changed.begin();
      changed.erase(key);
      const std::array<std::uint32_t, 2> record{key, connections.contains(key) ? 1U : 0U};
      copy.tell(std::as_bytes(std::span(record)), now);
      ++told;
    }
    return changed.empty();
  }
  void tell_all() override {
    changed = core.role() == CopyRole::master ? connections : std::set<std::uint32_t>{};
  }
  void tell_unproved() override { changed.insert(unproved.begin(), unproved.end()); }
  void goes_on() override {}
  void begin_all() override { stale = connections; }
  void end_all() override {
    for (const std::uint32_t key : stale) connections.erase(key);
    stale.clear();
  }
  Applied apply(std::span<const std::byte> bytes) override {
    std::array<std::uint32_t, 2> record{};
    if (bytes.size() != sizeof(record)) return Applied::malformed;
    std::memcpy(record.data(), bytes.data(), sizeof(record));
    stale.erase(record[0]);
    if (record[1] != 0) {
      connections.insert(record[0]);
    } else {
      connections.erase(record[0]);
    }
    return Applied::done;
  }
  void send(Member to, const MessageHead& head, std::span<const std::byte> payload) override {
    sent.push_back({to, head, {payload.begin(), payload.end()}});
  }
  /// Sends what there is to those of `others` that it is for.
  void exchange(std::vector<Side*> others, Tick now) {
    core.send(*this, now);
    for (const auto& [to, head, payload] : std::exchange(sent, {})) {
      for (Side* const other : others) {
        if (other->member_ == to) other->core.receive(member_, {head, payload}, now);
      }
    }
  }
  void open(std::uint32_t key) {
    connections.insert(key);
    changed.insert(key);
  }

  ShardCopy core;
  std::set<std::uint32_t> connections;
  std::set<std::uint32_t> changed;
  std::set<std::uint32_t> stale;
  std::set<std::uint32_t> unproved;
  unsigned told = 0;
  struct Sent {
    Member to;
    MessageHead head;
    std::vector<std::byte> payload;
  };
  std::vector<Sent> sent;

 private:
  Member member_;
};

class Copies : public testing::Test {
 protected:
  void run(std::uint32_t from, std::uint32_t until) {
    for (std::uint32_t ms = from; ms < until; ++ms) {
      one.exchange({&two, &three}, Tick{ms});
      two.exchange({&one, &three}, Tick{ms});
      three.exchange({&one, &two}, Tick{ms});
    }
  }
  void begin() {
    one.connections = {1, 2, 3};
    two.connections = {9};
    one.core.assign({1, CopyRole::master, kTwo}, Tick{0});
    two.core.assign({1, CopyRole::slave, kOne}, Tick{0});
    run(0, 10);
  }
  Side one{kOne};
  Side two{kTwo};
  Side three{kThree};
};

TEST_F(Copies, TheSlaveHasWhatTheMasterHas) {
  begin();
  EXPECT_EQ(two.connections, (std::set<std::uint32_t>{1, 2, 3})) << "9 is gone";
  EXPECT_TRUE(one.core.is_in_sync());
  EXPECT_TRUE(two.core.is_in_sync());
  one.open(4);
  one.connections.erase(1);
  one.changed.insert(1);
  run(10, 12);
  EXPECT_EQ(two.connections, (std::set<std::uint32_t>{2, 3, 4}));
  EXPECT_TRUE(one.core.is_known(one.core.next() - 1));
  EXPECT_FALSE(one.core.is_known(one.core.next()));
}

TEST_F(Copies, RolesChangeWithoutEverythingToldAnew) {
  begin();
  two.told = 0;
  one.core.assign({2, CopyRole::slave, kTwo}, Tick{10});
  two.core.assign({2, CopyRole::master, kOne}, Tick{10});
  EXPECT_FALSE(one.core.is_in_sync()) << "until the new master says what it has";
  run(10, 14);
  EXPECT_TRUE(one.core.is_in_sync());
  EXPECT_TRUE(two.core.is_in_sync());
  EXPECT_EQ(two.told, 0U);
  EXPECT_EQ(two.core.counters().agreed, 1U);
  two.open(5);
  run(14, 16);
  EXPECT_EQ(one.connections, (std::set<std::uint32_t>{1, 2, 3, 5}));
}

TEST_F(Copies, EverythingIsToldIfTheOldMasterHadSomethingLeftToTell) {
  begin();
  one.open(6);
  one.core.assign({2, CopyRole::slave, kTwo}, Tick{10});
  two.core.assign({2, CopyRole::master, kOne}, Tick{10});
  run(10, 14);
  EXPECT_TRUE(one.core.is_in_sync());
  EXPECT_TRUE(two.core.is_in_sync());
  EXPECT_EQ(two.core.counters().agreed, 0U);
  EXPECT_EQ(one.connections, two.connections);
}

TEST_F(Copies, AMessageOfAnOlderEpochChangesNothingAndDeposesItsSender) {
  begin();
  two.core.assign({2, CopyRole::master, kThree}, Tick{10});
  three.core.assign({2, CopyRole::slave, kTwo}, Tick{10});
  one.open(8);
  run(10, 40);
  EXPECT_FALSE(two.connections.contains(8));
  EXPECT_TRUE(one.core.is_deposed());
  EXPECT_GT(two.core.counters().old_epoch, 0U);
  EXPECT_TRUE(three.core.is_in_sync());
  EXPECT_FALSE(one.core.assign({1, CopyRole::master, kTwo}, Tick{40})) << "an old assignment";
  EXPECT_FALSE(one.core.assign({0, CopyRole::none, Member::none}, Tick{40}));
}

TEST_F(Copies, AStrangerIsNotHeard) {
  begin();
  three.core.assign({1, CopyRole::master, kTwo}, Tick{10});
  three.open(7);
  run(10, 40);
  EXPECT_FALSE(two.connections.contains(7));
  EXPECT_GT(two.core.counters().stranger, 0U);
}

TEST_F(Copies, ASilentSlaveIsToldEverythingOnceItAnswers) {
  begin();
  for (std::uint32_t ms = 10; ms < 1100; ++ms) {
    if (ms == 20) one.open(4);
    one.exchange({}, Tick{ms});
  }
  EXPECT_FALSE(one.core.is_in_sync());
  EXPECT_EQ(one.core.counters().anew, 1U);
  EXPECT_TRUE(two.core.is_in_sync()) << "it has all that it was told before the silence";
  run(1100, 2000);
  EXPECT_TRUE(one.core.is_in_sync());
  EXPECT_EQ(two.connections, one.connections);
}

TEST_F(Copies, ASlaveThatTellsItsOwnAnewHasWhatItHadBeenTold) {
  begin();
  for (std::uint32_t ms = 10; ms < 1100; ++ms) {
    if (ms == 20) two.open(4);
    two.exchange({}, Tick{ms});
  }
  EXPECT_EQ(two.core.counters().anew, 1U);
  run(1100, 1200);
  EXPECT_TRUE(two.core.is_in_sync()) << "the master has nothing new, and does not begin anew";
  EXPECT_TRUE(one.core.is_in_sync());
}

TEST_F(Copies, AGrantIsUsedOnceTheOtherCopyHasItOnRecord) {
  begin();
  one.core.grant(11);
  EXPECT_FALSE(one.core.may_use(11));
  one.exchange({&two}, Tick{10});
  EXPECT_EQ(two.core.grants_of_other(), std::set<std::uint32_t>{11});
  EXPECT_FALSE(one.core.may_use(11)) << "the slave has not said so yet";
  two.exchange({&one}, Tick{11});
  EXPECT_TRUE(one.core.may_use(11));
  two.core.grant(12);
  run(12, 15);
  EXPECT_TRUE(two.core.may_use(12)) << "a slave's grants are for packets that come to it";
  one.core.withdraw(11);
  EXPECT_FALSE(one.core.may_use(11));
  run(15, 18);
  EXPECT_TRUE(two.core.grants_of_other().empty());
}

TEST_F(Copies, AGrantIsHandedBackOnceTheOtherCopyKnowsItsConnections) {
  begin();
  one.core.grant(11);
  one.core.grant(12);
  run(10, 13);
  one.connections.insert(5);
  one.unproved.insert(5);
  one.core.hand_back(11);
  EXPECT_FALSE(one.core.may_use(11));
  EXPECT_TRUE(one.core.may_use(12));
  one.exchange({&two}, Tick{13});
  EXPECT_TRUE(one.core.handed_back().empty()) << "the slave has not said yet that it has them";
  run(14, 17);
  EXPECT_TRUE(two.connections.contains(5)) << "connections are told that would not be otherwise";
  ASSERT_EQ(one.core.handed_back().size(), 1U);
  EXPECT_EQ(one.core.handed_back().front(), 11U);
  one.core.grant(11);
  EXPECT_FALSE(one.core.has(11)) << "the store has not heard of it yet";
  one.core.withdraw(11);
  EXPECT_TRUE(one.core.handed_back().empty());
  one.core.grant(11);
  EXPECT_TRUE(one.core.has(11)) << "the store gives it anew";
}

TEST_F(Copies, ANewSlaveIsToldWhatUsesGrantsThatLeave) {
  begin();
  one.core.grant(11);
  run(10, 13);
  one.core.hand_back(11);
  one.core.assign({2, CopyRole::master, kThree}, Tick{13});
  EXPECT_FALSE(one.core.leaves(11)) << "the new slave knows nothing yet: all begins anew";
  one.core.grant(11);
  EXPECT_TRUE(one.core.has(11));
}

TEST_F(Copies, ACopyAloneUsesItsGrantsAtOnce) {
  one.core.assign({1, CopyRole::master, Member::none}, Tick{0});
  one.core.grant(11);
  EXPECT_TRUE(one.core.may_use(11));
  one.core.assign({2, CopyRole::none, Member::none}, Tick{1});
  EXPECT_FALSE(one.core.may_use(11));
}

}  // namespace
}  // namespace millrace
