// Tests the port blocks of two servers that have each other's sessions: no public port has two
// customers at a time, rest included, whatever the two know of each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <tuple>
#include <vector>

#include "core/address_numbers.h"
#include "core/protocol.h"
#include "core/test_seed.h"
#include "function/nat/port_blocks.h"

namespace millrace {
namespace {

constexpr std::uint32_t kBlocksOfAddress = 6;

NatPool shared_pool() {
  return {.name = "p",
          .prefixes = {{address_with(0xc6336400), 31}},
          .first_port = 1024,
          .last_port = 1024 + kBlocksOfAddress * 64 - 1,
          .block_size = 64,
          .blocks_per_customer = 2,
          .sessions_per_customer = 200};
}

/// Returns the server that gives that port.
unsigned giver_of(const EndpointV4& outside) { return (outside.port - 1024U) / 64 % 2; }

class SharedPorts : public testing::Test {
 protected:
  using Public = std::tuple<std::uint32_t, std::uint16_t, std::uint8_t>;
  struct Session {
    PortBlocks::Wanted wanted;
    std::array<std::optional<PortBlocks::Taken>, 2> at;  // by server
    unsigned owner = 0;
  };
  struct Told {
    std::size_t session;
    bool is_there;
  };

  SharedPorts() {
    for (unsigned n = 0; n < 2; ++n) {
      auto made = PortBlocks::create(std::array{shared_pool()}, Secret::from_seed(7), {n, 2});
      servers_[n] = std::move(*made);
    }
  }
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }
  static Public name_of(const Session& session, const EndpointV4& outside) {
    return {number_of(outside.address), outside.port, session.wanted.protocol};
  }
  void note(bool is_sure) {
    for (const auto& server : servers_) server->note_copies({true, true, is_sure}, {now_});
  }
  PortBlocks::Wanted some() {
    const std::uint32_t customer = 0x0a000001 + (first_customer_ + below(4)) % 16;
    return {.inside = {address_with(customer), static_cast<std::uint16_t>(below(100))},
            .remote = {address_with(0xc0000201 + below(4)), 80},
            .customer = customer,
            .protocol = below(2) == 0 ? kProtocolTcp : kProtocolUdp,
            .pool = 0,
            .now = {now_}};
  }
  void begin(unsigned server) {
    Session session{.wanted = some(), .at = {}, .owner = server};
    for (const Session& other : sessions_) {
      const bool is_same = other.wanted.inside == session.wanted.inside &&
                           other.wanted.remote == session.wanted.remote &&
                           other.wanted.protocol == session.wanted.protocol;
      if (is_same && (other.at[0] || other.at[1])) return;
    }
    const auto taken = servers_[server]->take(session.wanted);
    if (!taken) return;
    ++begun_;
    const Public port = name_of(session, taken->outside);
    const auto last = used_.find(port);
    if (last != used_.end() && last->second.customer != session.wanted.customer) {
      ++given_on_;
      ASSERT_EQ(last->second.live, 0) << "a port has two customers";
      ASSERT_GE(now_ - last->second.at, PortBlocks::kRestMs) << "a port has not rested";
    }
    session.at[server] = *taken;
    use(port, session.wanted.customer, 1);
    sessions_.push_back(session);
    to_tell_[server].push_back({sessions_.size() - 1, true});
  }
  void end(std::size_t n) {
    Session& session = sessions_[n];
    if (!session.at[session.owner]) return;
    release(session, session.owner);
    to_tell_[session.owner].push_back({n, false});
  }
  void release(Session& session, unsigned server) {
    const PortBlocks::Taken taken = *session.at[server];
    servers_[server]->release(taken.ref, session.wanted.protocol, session.wanted.remote.address,
                              {now_});
    session.at[server].reset();
    use(name_of(session, taken.outside), session.wanted.customer, -1);
  }
  void use(const Public& port, std::uint32_t customer, int more) {
    Used& is = used_[port];
    is = {customer, is.live + more, now_};
  }
  void tell(unsigned from) {
    const unsigned to = 1 - from;
    for (; !to_tell_[from].empty(); to_tell_[from].pop_front()) {
      const auto [n, is_there] = to_tell_[from].front();
      Session& session = sessions_[n];
      if (!is_there) {
        if (session.at[to]) release(session, to);
        continue;
      }
      if (!session.at[from]) continue;  // it has ended meanwhile
      session.wanted.now = {now_};
      const auto outside = session.at[from]->outside;
      const auto taken = servers_[to]->take_again(session.wanted, outside,
                                                  servers_[to]->ends_of(session.wanted), true);
      if (!taken) {
        ++refused_;
        continue;
      }
      session.at[to] = *taken;
      use(name_of(session, outside), session.wanted.customer, 1);
    }
  }

  struct Used {
    std::uint32_t customer = 0;
    int live = 0;
    std::uint32_t at = 0;
  };
  std::mt19937_64 random_{test::seed()};
  std::array<std::unique_ptr<PortBlocks>, 2> servers_;
  std::vector<Session> sessions_;
  std::array<std::deque<Told>, 2> to_tell_;  // by the server that tells
  std::map<Public, Used> used_;
  std::uint32_t now_ = 1000;
  std::uint32_t first_customer_ = 0;  // of those that begin sessions now
  std::size_t ended_ = 0;             // sessions before this one have ended
  unsigned begun_ = 0;
  unsigned given_on_ = 0;
  unsigned refused_ = 0;
};

TEST_F(SharedPorts, HaveOneCustomerAtATime) {
  SCOPED_TRACE(test::repeat());
  bool is_cut = false;
  note(true);
  for (unsigned step = 0; step < 40'000 && !HasFatalFailure(); ++step) {
    now_ += below(1500);
    if (below(400) == 0) is_cut = !is_cut;
    note(!is_cut);
    const bool opens = below(100) < (step / 3000 % 2 == 0 ? 60U : 30U);
    if (opens) {
      begin(below(2));
    } else if (!sessions_.empty()) {
      // One of the last 300: all others have ended.
      const auto count = static_cast<std::uint32_t>(sessions_.size());
      end(count - 1 - below(std::min(count, 300U)));
    }
    for (; ended_ + 300 < sessions_.size(); ++ended_) end(ended_);
    if (step % 300 == 0) ++first_customer_;
    if (is_cut) continue;
    tell(0);
    tell(1);
  }
  EXPECT_GT(begun_, 5000U);
  EXPECT_GT(given_on_, 20U) << "no port went from one customer to another";
  EXPECT_LT(refused_, begun_ / 10);
}

TEST_F(SharedPorts, EachServerGivesItsHalf) {
  note(true);
  for (unsigned n = 0; n < 200; ++n) {
    for (unsigned server = 0; server < 2; ++server) {
      const auto taken = servers_[server]->take(some());
      if (taken) {
        EXPECT_EQ(giver_of(taken->outside), server);
      }
    }
  }
}

TEST_F(SharedPorts, NothingIsGivenBeforeItIsKnownWhatWas) {
  EXPECT_FALSE(servers_[0]->take(some()).has_value());
  servers_[0]->note_copies({.has_settled = true, .both_are_new = false}, {now_});
  EXPECT_FALSE(servers_[0]->may_give());
  EXPECT_FALSE(servers_[0]->take(some()).has_value());
  now_ += PortBlocks::kRestMs;
  servers_[0]->note_copies({.has_settled = true, .both_are_new = false}, {now_});
  EXPECT_TRUE(servers_[0]->may_give());
  EXPECT_TRUE(servers_[0]->take(some()).has_value());
}

}  // namespace
}  // namespace millrace
