// Tests lines of two servers that each have a copy of all shards: what one opens, changes and ends,
// the other has, whatever is lost on the way.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "conntrack/state.h"
#include "core/test_seed.h"
#include "line_fixture.h"
#include "replicate/copy.h"

namespace millrace::test {
namespace {

constexpr unsigned kShards = 128;
constexpr std::uint32_t kTimeout = 10'000;

KeyV4 key_of(const Endpoint& from, const Endpoint& to) {
  return {{from.address}, {to.address}, from.port, to.port, 6};
}

/// A port that says which shard a client's packets belong to.
class ShardedPort final : public Port {
 public:
  explicit ShardedPort(TestPort& port) : port_(port) {}
  LinkType link_type() const override { return port_.link_type(); }
  bool receive(Burst& burst) override {
    if (!port_.receive(burst)) return false;
    const Endpoint from = source_of(burst.data[0]);
    const Endpoint client = from.address[0] == 10 ? destination_of(burst.data[0]) : from;
    burst.shard[0] = static_cast<std::uint16_t>(client.port % kShards);
    return true;
  }
  void send(const Burst& burst, std::uint64_t forward) override { port_.send(burst, forward); }

 private:
  TestPort& port_;
};

class CopiedTest : public LineTest {
 protected:
  struct Sent {
    Member to;
    MessageHead head;
    std::vector<std::byte> payload;
  };
  /// A server: a line, and its copies of all shards.
  struct Server final : ShardCopy::Outbox {
    Server(Made with, Member is) : made(std::move(with)), self(is) {
      for (unsigned shard = 0; shard < kShards; ++shard)
        copies.push_back(std::make_unique<ShardCopy>(shard, made.line->copied(shard)));
    }
    void send(Member to, const MessageHead& head, std::span<const std::byte> payload) override {
      sent.push_back({to, head, {payload.begin(), payload.end()}});
    }
    void assign(Epoch epoch, CopyRole role, Member other, Tick now) {
      for (unsigned shard = 0; shard < kShards; ++shard) {
        copies[shard]->assign({epoch, role, other, true}, now);
        made.line->assign(shard, role);
      }
    }
    /// Serves a packet; returns what leaves.
    std::vector<Bytes> serve(const Bytes& packet, std::uint32_t at) {
      TestPort port;
      port.add(packet, at);
      ShardedPort sharded(port);
      made.line->run(sharded);
      return port.sent;
    }
    /// A packet that concerns nothing, so that time passes.
    void let_pass(std::uint32_t at) {
      serve(packet({{172, 16, 0, 1}, 9}, {{172, 16, 0, 2}, 9}, kAck | kFin), at);
    }
    bool has(unsigned n) const {
      return made.line->find(AnyKey(key_of(client(n), kVirtual))).has_value();
    }
    /// Returns the connections that have been answered, as text.
    std::map<std::string, std::string> all() const {
      std::map<std::string, std::string> found;
      for (LineCursor at; at.at != LineCursor::At::end;) {
        at = made.line->visit(at, [&](const ListedConnection& is) {
          if (is_half_open(is.state)) return Visit::leave;
          const auto& key = std::get<KeyV4>(is.key);
          const auto& to = std::get<KeyV4>(is.translated);
          found[std::to_string(key.source_port)] = std::to_string(to.destination.bytes[3]) + " " +
                                                   std::to_string(static_cast<int>(is.state));
          return Visit::leave;
        });
      }
      return found;
    }
    Made made;
    Member self;
    std::vector<std::unique_ptr<ShardCopy>> copies;
    std::vector<Sent> sent;
  };

  static std::unique_ptr<Server> server(std::uint64_t number, std::size_t capacity = 1000) {
    BalanceConfig config;
    config.services = {.v4 = {service(kVirtual, {1, 2, 3, 4, 5})}};
    LineConfig line = small(capacity);
    line.timeouts = Timeouts::all(kTimeout);
    line.shards_that_move = kShards;
    line.copies = true;
    return std::make_unique<Server>(make(config, line), Member{number});
  }
  static void check(const Server& server) {
    const WorkerCounters& c = server.made.line->counters();
    EXPECT_EQ(c.opened.value() + c.taken_over.value() - c.ended(),
              server.made.line->report_v4().live);
    for (const auto& ok :
         {server.made.line->check_invariants(), server.made.balance->check_invariants()}) {
      EXPECT_TRUE(ok.has_value()) << ok.error().message;
    }
  }

  /// Returns a master, and a slave that has its connections 1 and 2, at tick 20.
  std::pair<std::unique_ptr<Server>, std::unique_ptr<Server>> with_two_connections() {
    auto one = server(1);
    auto other = server(2);
    one->assign(1, CopyRole::master, other->self, Tick{1});
    other->assign(1, CopyRole::slave, one->self, Tick{1});
    exchange(*one, *other, 1);
    connect(*one, 1, 10);
    connect(*one, 2, 10);
    exchange(*one, *other, 12);
    return {std::move(one), std::move(other)};
  }

  /// Lets the servers tell each other what there is to tell; of 100 messages `lost` are lost.
  void exchange(Server& one, Server& other, std::uint32_t at, unsigned lost = 0,
                unsigned rounds = 8) {
    for (unsigned n = 0; n < rounds; ++n) {
      for (Server* const from : {&one, &other}) {
        Server& to = from == &one ? other : one;
        from->made.line->allow_copying(1000);
        for (const auto& copy : from->copies) copy->send(*from, Tick{at + n});
        for (const Sent& message : std::exchange(from->sent, {})) {
          if (message.to != to.self || random_() % 100 < lost) continue;
          to.copies[message.head.shard]->receive(from->self, {message.head, message.payload},
                                                 Tick{at + n});
        }
      }
    }
  }
  /// Lets a client's TCP connection begin: three packets.
  static void connect(Server& at, unsigned n, std::uint32_t ms) {
    const auto there = at.serve(packet(client(n), kVirtual), ms);
    ASSERT_EQ(there.size(), 1U);
    at.serve(packet(destination_of(there[0]), client(n), kSyn | kAck), ms);
    at.serve(packet(client(n), kVirtual, kAck), ms);
  }

  std::mt19937_64 random_{seed()};
};

INSTANTIATE_TEST_SUITE_P(AllSchemes, CopiedTest, testing::ValuesIn(all_schemes()), name_of);

TEST_P(CopiedTest, TheSlaveHasWhatTheMasterHas) {
  const auto master = server(1);
  const auto slave = server(2);
  for (unsigned n = 0; n < 50; ++n) connect(*master, n, 1);  // before there is a copy
  master->serve(packet(client(99), kVirtual), 1);            // which nothing proves
  master->assign(1, CopyRole::master, slave->self, Tick{1});
  slave->assign(1, CopyRole::slave, master->self, Tick{1});
  exchange(*master, *slave, 2);
  for (unsigned n = 50; n < 80; ++n) connect(*master, n, 10);
  exchange(*master, *slave, 11);
  const auto there = master->all();
  EXPECT_EQ(there.size(), 80U);
  EXPECT_EQ(slave->made.line->live().v4, 80U);
  EXPECT_EQ(slave->all(), there);
  for (unsigned shard = 0; shard < kShards; ++shard) {
    EXPECT_TRUE(slave->copies[shard]->is_in_sync());
    EXPECT_TRUE(master->copies[shard]->is_in_sync());
  }
  check(*master);
  check(*slave);

  // The slave ends nothing by itself; the master does, and tells it.
  slave->let_pass(3 * kTimeout);
  EXPECT_EQ(slave->all(), there);
  if (GetParam().ageing == "none") return;
  for (std::uint32_t at = 0; at <= 3 * kTimeout; at += 1000) {
    master->serve(packet(client(7), kVirtual, kAck), 20 + at);
    exchange(*master, *slave, 21 + at);
  }
  EXPECT_EQ(slave->all(), master->all());
  EXPECT_TRUE(slave->all().contains(std::to_string(client(7).port)));
  check(*master);
  check(*slave);
}

TEST_P(CopiedTest, APromotedSlaveGoesOn) {
  const auto master = server(1);
  const auto slave = server(2);
  master->assign(1, CopyRole::master, slave->self, Tick{1});
  slave->assign(1, CopyRole::slave, master->self, Tick{1});
  exchange(*master, *slave, 1);
  std::map<unsigned, Endpoint> backends;
  for (unsigned n = 0; n < 40; ++n) {
    connect(*master, n, 10);
    backends[n] = destination_of(master->serve(packet(client(n), kVirtual, kAck), 11).at(0));
  }
  exchange(*master, *slave, 12);
  constexpr std::uint32_t kPromoted = 5 * kTimeout;
  slave->let_pass(kPromoted);
  slave->assign(2, CopyRole::master, Member::none, Tick{kPromoted});
  for (unsigned n = 0; n < 20; ++n) {
    const auto sent = slave->serve(packet(client(n), kVirtual, kAck), kPromoted + kTimeout / 2);
    ASSERT_EQ(sent.size(), 1U);
    EXPECT_TRUE(destination_of(sent[0]) == backends[n]) << n;
  }
  EXPECT_EQ(slave->all().size(), 40U);  // all count as seen when the slave was promoted
  if (GetParam().ageing == "none") return;
  slave->let_pass(kPromoted + kTimeout + 100);
  slave->let_pass(kPromoted + kTimeout + 1200);
  EXPECT_EQ(slave->made.line->counters().opened.value(), 0U);
  if (GetParam().ageing == "lazy") return;  // expired connections stay until their place is needed
  EXPECT_EQ(slave->all().size(), 20U);
  check(*slave);
}

TEST_P(CopiedTest, WhatASlaveOpensIsTheMastersToo) {
  const auto master = server(1);
  const auto slave = server(2);
  master->assign(1, CopyRole::master, slave->self, Tick{1});
  slave->assign(1, CopyRole::slave, master->self, Tick{1});
  exchange(*master, *slave, 1);
  connect(*master, 1, 10);
  connect(*slave, 2, 10);
  exchange(*master, *slave, 12);
  EXPECT_EQ(master->all(), slave->all());
  EXPECT_EQ(master->all().size(), 2U);

  // Both begin anew: what only the slave has stays, what the master no longer has goes.
  connect(*slave, 3, 20);
  slave->assign(2, CopyRole::slave, master->self, Tick{30});
  if (GetParam().ageing == "wheel") {
    for (unsigned at = 0; at < 12; ++at)
      master->serve(packet(client(2), kVirtual, kAck), 1000 * at);
    EXPECT_FALSE(master->all().contains(std::to_string(client(1).port)));
  }
  master->assign(2, CopyRole::master, slave->self, Tick{12'000});
  exchange(*master, *slave, 12'001);
  EXPECT_EQ(master->all(), slave->all());
  EXPECT_TRUE(slave->all().contains(std::to_string(client(3).port)));
  EXPECT_TRUE(slave->all().contains(std::to_string(client(2).port)));
  check(*master);
  check(*slave);
}

TEST_P(CopiedTest, AMasterKeepsTheConnectionsThatWentOnWhileItWasAlone) {
  if (GetParam().ageing != "wheel") GTEST_SKIP() << "only the wheel lets all expire in time";
  const auto [one, other] = with_two_connections();
  one->assign(3, CopyRole::master, Member::none, Tick{20});
  other->assign(2, CopyRole::master, Member::none, Tick{20});
  std::uint32_t at = 20;
  for (; at < 20 + 3 * kTimeout; at += 1000) {
    one->serve(packet(client(1), kVirtual, kAck), at);
    other->let_pass(at);
  }
  EXPECT_EQ(one->all().size(), 1U);
  EXPECT_TRUE(other->all().empty());
  other->assign(4, CopyRole::master, one->self, Tick{at});
  one->assign(4, CopyRole::slave, other->self, Tick{at});
  exchange(*one, *other, at);
  EXPECT_TRUE(one->all().contains(std::to_string(client(1).port)));
  EXPECT_EQ(one->all(), other->all());
  check(*one);
  check(*other);
}

TEST_P(CopiedTest, WhatEndsAtTheNextMasterDoesNotComeBack) {
  if (GetParam().ageing != "wheel") GTEST_SKIP() << "only the wheel lets all expire in time";
  const auto [one, other] = with_two_connections();
  one->assign(2, CopyRole::slave, other->self, Tick{20});
  other->assign(2, CopyRole::master, one->self, Tick{20});
  exchange(*one, *other, 20);
  std::uint32_t at = 20;
  for (; at < 20 + 3 * kTimeout; at += 1000) {
    other->serve(packet(client(2), kVirtual, kAck), at);
    one->let_pass(at);
  }
  EXPECT_EQ(other->all().size(), 1U);
  for (const auto& copy : other->copies) copy->begin_anew();
  exchange(*one, *other, at);
  EXPECT_EQ(other->all().size(), 1U);
  EXPECT_EQ(one->all(), other->all());
  check(*one);
  check(*other);
}

TEST_P(CopiedTest, TheSlaveHasAllThatUsesGrantsItMayGet) {
  const auto master = server(1);
  const auto slave = server(2);
  master->assign(1, CopyRole::master, slave->self, Tick{1});
  slave->assign(1, CopyRole::slave, master->self, Tick{1});
  exchange(*master, *slave, 1);
  master->serve(packet(client(1), kVirtual, kSyn), 2);
  connect(*master, 2, 2);
  exchange(*master, *slave, 3);
  EXPECT_FALSE(slave->has(1)) << "no packet has proved it";
  const unsigned shard = client(1).port % kShards;
  master->copies[shard]->grant(7);
  master->copies[shard]->hand_back(7);
  EXPECT_TRUE(master->copies[shard]->handed_back().empty());
  exchange(*master, *slave, 4);
  EXPECT_TRUE(slave->has(1));
  EXPECT_TRUE(slave->has(2));
  EXPECT_EQ(master->copies[shard]->handed_back().size(), 1U);
  check(*master);
  check(*slave);
}

TEST_P(CopiedTest, ACopyThatIsGivenUpHasNoConnections) {
  const auto master = server(1);
  const auto slave = server(2);
  master->assign(1, CopyRole::master, slave->self, Tick{1});
  slave->assign(1, CopyRole::slave, master->self, Tick{1});
  for (unsigned n = 0; n < 50; ++n) connect(*master, n, 1);
  exchange(*master, *slave, 2);
  EXPECT_EQ(slave->all().size(), 50U);
  for (unsigned shard = 0; shard < kShards; ++shard) {
    slave->copies[shard]->give_up(Tick{10});
    slave->made.line->assign(shard, CopyRole::none);
    while (!slave->made.line->give_up(shard, 3)) {
    }
    EXPECT_FALSE(slave->copies[shard]->assign({1, CopyRole::slave, master->self, true}, Tick{10}));
  }
  EXPECT_TRUE(slave->all().empty());
  check(*slave);
  exchange(*master, *slave, 11);
  EXPECT_TRUE(slave->all().empty());
  master->assign(2, CopyRole::master, slave->self, Tick{20});
  slave->assign(2, CopyRole::slave, master->self, Tick{20});
  exchange(*master, *slave, 21);
  EXPECT_EQ(slave->all(), master->all());
  check(*slave);
}

TEST_P(CopiedTest, RandomTrafficLossAndChangesOfRoles) {
  SCOPED_TRACE(repeat());
  const auto one = server(1, 4000);
  const auto other = server(2, 4000);
  std::uint32_t now = 1;
  Epoch epoch = 0;
  const auto swap = [&](Server& master, Server& slave) {
    ++epoch;
    master.assign(epoch, CopyRole::master, slave.self, Tick{now});
    slave.assign(epoch, CopyRole::slave, master.self, Tick{now});
  };
  Server* master = one.get();
  Server* slave = other.get();
  std::set<std::string> differ;  // clients of which the slave has seen packets by itself
  swap(*master, *slave);
  for (unsigned step = 0; step < 1500; ++step) {
    const auto n = static_cast<unsigned>(random_() % 400);
    Server& at = random_() % 20 == 0 ? *slave : *master;
    // The state of the master's connection is what the master has seen.
    if (&at == slave && at.has(n)) differ.insert(std::to_string(client(n).port));
    // Only what a reply has proved ends: what nothing has proved is told to nobody, in any state.
    const bool goes_on = at.all().contains(std::to_string(client(n).port));
    const std::uint8_t flags = !goes_on ? kSyn : random_() % 3 == 0 ? kAck | kFin : kAck;
    const auto sent = at.serve(packet(client(n), kVirtual, flags), now);
    if (!sent.empty() && random_() % 4 != 0) {
      const std::uint8_t reply = !goes_on ? kSyn | kAck : random_() % 3 == 0 ? kAck | kFin : kAck;
      at.serve(packet(destination_of(sent[0]), client(n), reply), now);
    }
    at.serve(packet(client(n), kVirtual, kAck), now);
    now += static_cast<std::uint32_t>(random_() % 40);
    if (random_() % 3 == 0) exchange(*one, *other, now, 20, 1);
    if (random_() % 100 == 0) {
      std::swap(master, slave);
      swap(*master, *slave);
    }
  }
  for (unsigned n = 0; n < 30; ++n) exchange(*one, *other, now += 1000);
  auto masters = master->all();
  auto slaves = slave->all();
  for (const std::string& client : differ) {
    masters.erase(client);
    slaves.erase(client);
  }
  std::string wrong;
  for (auto* const of : {&masters, &slaves}) {
    for (const auto& [client, is] : *of) {
      const std::string here = masters.contains(client) ? masters[client] : "none";
      const std::string there = slaves.contains(client) ? slaves[client] : "none";
      if (here != there) wrong += client + ": " + here + ", at the slave " + there + "\n";
    }
  }
  EXPECT_EQ(wrong, "");
  EXPECT_GT(masters.size(), 50U);
  check(*one);
  check(*other);
}

}  // namespace
}  // namespace millrace::test
