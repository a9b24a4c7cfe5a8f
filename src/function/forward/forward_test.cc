// Tests `forward` on a line of its own. tests/chain_test.cc tests it in chains and within budgets.
#include "function/forward/forward.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "function/test_line.h"

namespace millrace {
namespace {

template <class K>
class ForwardTest : public testing::Test {
 public:
  using Line = TestLine<K>;
  static constexpr std::uint8_t kAck = Line::kAck;
  static constexpr std::uint8_t kSynAck = Line::kSyn | Line::kAck;
  static constexpr std::uint8_t kRst = Line::kRst;

  /// Sends a packet, which leaves as it came. Returns its verdict.
  std::string_view send(const std::string& from, const std::string& to,
                        std::uint8_t flags = Line::kSyn) {
    const auto sent = line.send({from, to, Line::kTcp, flags});
    EXPECT_EQ(sent.from + " " + sent.to + sent.by, from + " " + to);
    return to_string(sent.verdict);
  }

  Forwarder forward{FunctionRun{}};
  Line line{forward};
};
using Families = testing::Types<KeyV4, KeyV6>;
TYPED_TEST_SUITE(ForwardTest, Families);

// A SYN and ACK begins nothing: it is tracked only where its connection has an entry.
TYPED_TEST(ForwardTest, TracksBothDirectionsToTheEnd) {
  EXPECT_EQ(this->send("b:80", "a:1", TestFixture::kSynAck), "stateless");
  EXPECT_EQ(this->send("a:1", "b:80"), "tracked");
  EXPECT_EQ(this->send("b:80", "a:1", TestFixture::kSynAck), "tracked");
  EXPECT_EQ(this->line.live(), 1U);
  this->line.close({"a:1", "b:80"});
  EXPECT_EQ(this->send("b:80", "a:1", TestFixture::kSynAck), "stateless");
}

TYPED_TEST(ForwardTest, TakesConnectionsUpInTheirMidst) {
  EXPECT_EQ(this->send("a:1", "b:80", TestFixture::kRst), "stateless");
  EXPECT_EQ(this->line.live(), 0U);
  EXPECT_EQ(this->send("a:1", "b:80", TestFixture::kAck), "tracked");
  EXPECT_EQ(this->send("b:80", "a:1", TestFixture::kRst), "tracked");
}

// A packet that a sender sends to itself has the same key as its reply, so the reply's key is
// taken. `forward` has no other reply key.
TYPED_TEST(ForwardTest, PassesOnWhatCollides) {
  EXPECT_EQ(this->send("a:1", "a:1"), "passed");
  EXPECT_EQ(this->line.live(), 0U);
}

TYPED_TEST(ForwardTest, AFullTableForwardsOrDrops) {
  EXPECT_EQ(this->send("a:1", "b:80"), "tracked");
  this->line.full = true;
  EXPECT_EQ(this->send("a:2", "b:80"), "stateless");
  EXPECT_EQ(this->send("b:80", "a:1", TestFixture::kSynAck), "tracked");
  Forwarder drops({.stateless_when_full = false});
  typename TestFixture::Line other(drops);
  other.replies_full = true;
  EXPECT_EQ(other.send({"a:1", "b:80"}).verdict, Verdict::table_full);
}

TYPED_TEST(ForwardTest, ConnectionsGoOnInAnotherProcess) {
  EXPECT_EQ(this->send("a:1", "b:80"), "tracked");
  Forwarder other(FunctionRun{});
  typename TestFixture::Line next(other);
  EXPECT_EQ(next.take_over(this->line), 1U);
  const auto answer = next.send({"b:80", "a:1", TestFixture::Line::kTcp, TestFixture::kSynAck});
  EXPECT_EQ(answer.verdict, Verdict::tracked);
}

}  // namespace
}  // namespace millrace
