// Tests a service's limit of connections in the load balancer alone; tests/limits_test.cc tests the
// limit on lines.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "function/balance/balance.h"
#include "function/balance/test_line.h"

namespace millrace {
namespace {

template <class K>
class ServiceLimitTest : public TestServices<K> {
 public:
  using Line = BalanceLine<K>;
  using Spec = TestServices<K>::Spec;

  static Spec service(std::uint32_t most, char name = 'v', const std::string& backends = "ab") {
    Spec spec{.address = Line::host(name), .port = 80, .max_connections = most, .backends = {}};
    for (const char backend : backends) spec.backends.push_back({.address = Line::host(backend)});
    return spec;
  }
  static typename Line::Packet from(int port, const std::string& to = "v:80") {
    return {"x:" + std::to_string(port), to};
  }
  static ServiceStatistics statistics(Line& line, std::size_t service = 0) {
    return line.balance().statistics()[service];
  }
};
using Families = testing::Types<KeyV4, KeyV6>;
TYPED_TEST_SUITE(ServiceLimitTest, Families);

TYPED_TEST(ServiceLimitTest, CountsWhatIsProvedAndNothingElse) {
  typename TestFixture::Line line(TestFixture::config({TestFixture::service(2)}));
  for (int port = 1; port <= 5; ++port)
    EXPECT_EQ(line.send(TestFixture::from(port)).verdict, Verdict::tracked);
  EXPECT_EQ(line.prove(TestFixture::from(1)), Verdict::tracked);
  EXPECT_EQ(line.prove(TestFixture::from(2)), Verdict::tracked);
  EXPECT_EQ(line.prove(TestFixture::from(3)), Verdict::service_limit);
  EXPECT_EQ(line.send(TestFixture::from(6)).verdict, Verdict::service_limit);
  EXPECT_EQ(line.send(TestFixture::from(1)).verdict, Verdict::tracked)
      << "this connection was opened before";
  auto service = TestFixture::statistics(line);
  EXPECT_EQ(service.established, 2U);
  EXPECT_EQ(service.max_connections, 2U);
  EXPECT_EQ(service.limited, 2U);
  EXPECT_EQ(service.refused, 0U);
  line.close(TestFixture::from(4));  // this connection was never proved
  EXPECT_EQ(line.prove(TestFixture::from(3)), Verdict::service_limit);
  line.close(TestFixture::from(1));
  EXPECT_EQ(line.prove(TestFixture::from(3)), Verdict::tracked);
  line.function().event(Event::unproved, line.key_of(TestFixture::from(3)),
                        line.state(TestFixture::from(3)), true);
  EXPECT_EQ(line.send(TestFixture::from(7)).verdict, Verdict::tracked);
}

TYPED_TEST(ServiceLimitTest, HoldsForItsServiceAlone) {
  typename TestFixture::Line line(
      TestFixture::config({TestFixture::service(1), TestFixture::service(0, 'w')}));
  line.send(TestFixture::from(1));
  EXPECT_EQ(line.prove(TestFixture::from(1)), Verdict::tracked);
  EXPECT_EQ(line.send(TestFixture::from(2)).verdict, Verdict::service_limit);
  for (int port = 2; port < 6; ++port) {
    const auto packet = TestFixture::from(port, "w:80");
    EXPECT_EQ(line.send(packet).verdict, Verdict::tracked);
    EXPECT_EQ(line.prove(packet), Verdict::tracked);
  }
  EXPECT_EQ(TestFixture::statistics(line, 1).established, 4U);
  EXPECT_EQ(TestFixture::statistics(line, 1).limited, 0U);
}

// Neither a full table nor packets in mid-connection evade the limit.
TYPED_TEST(ServiceLimitTest, IsNotEvadedWithoutAnEntry) {
  typename TestFixture::Line line(TestFixture::config({TestFixture::service(1)}));
  line.send(TestFixture::from(1));
  line.full = true;
  EXPECT_EQ(line.send(TestFixture::from(2)).verdict, Verdict::stateless);
  EXPECT_EQ(line.prove(TestFixture::from(1)), Verdict::tracked);
  EXPECT_EQ(line.send(TestFixture::from(2)).verdict, Verdict::service_limit);
  auto middle = TestFixture::from(3);
  middle.flags = TestFixture::Line::kAck;
  EXPECT_EQ(line.send(middle).verdict, Verdict::service_limit);
  EXPECT_EQ(TestFixture::statistics(line).stateless, 1U);
}

TYPED_TEST(ServiceLimitTest, ForbidsRepliesThatWouldProve) {
  typename TestFixture::Line line(TestFixture::config({TestFixture::service(1, 'v', "a")}));
  const auto reply = [&] {
    TypeParam key{.source = TestFixture::Line::host('a'),
                  .destination = TestFixture::Line::host('x'),
                  .source_port = 80,
                  .destination_port = 9,
                  .protocol = TestFixture::Line::kTcp};
    TypeParam asked;
    line.burst().signal[0] = Signal::ack;
    return line.function().recognise_reply(line.burst(), 0, key, asked);
  };
  EXPECT_EQ(reply(), Verdict::tracked);
  line.send(TestFixture::from(1));
  line.prove(TestFixture::from(1));
  EXPECT_EQ(reply(), Verdict::service_limit);
  line.close(TestFixture::from(1));
  EXPECT_EQ(reply(), Verdict::tracked);
}

TYPED_TEST(ServiceLimitTest, IsKeptThroughUpdates) {
  typename TestFixture::Line line(TestFixture::config({TestFixture::service(0)}));
  for (int port = 1; port <= 3; ++port) {
    line.send(TestFixture::from(port));
    line.prove(TestFixture::from(port));
  }
  line.update(TestFixture::only({TestFixture::service(3, 'v', "c")}));
  EXPECT_EQ(TestFixture::statistics(line).established, 3U);
  EXPECT_EQ(line.send(TestFixture::from(4)).verdict, Verdict::service_limit);
  line.update(TestFixture::only({}));  // the service drains
  line.update(TestFixture::only({TestFixture::service(3)}));
  EXPECT_EQ(line.send(TestFixture::from(4)).verdict, Verdict::service_limit);
  line.close(TestFixture::from(1));
  EXPECT_EQ(line.send(TestFixture::from(4)).verdict, Verdict::tracked);
  line.update(TestFixture::only({TestFixture::service(4)}));
  EXPECT_EQ(line.prove(TestFixture::from(4)), Verdict::tracked);
}

// The limit holds, too, if one worker proves a connection that another worker opened, and if
// connections move.
TYPED_TEST(ServiceLimitTest, IsOneForAllWorkers) {
  auto config = TestFixture::config({TestFixture::service(2)});
  const auto plan = *Balance::plan(config, 2);
  typename TestFixture::Line first(std::make_unique<Balance>(config, plan, 0));
  typename TestFixture::Line second(std::make_unique<Balance>(config, plan, 1));
  first.send(TestFixture::from(1));
  first.send(TestFixture::from(2));
  EXPECT_EQ(second.function().event(Event::proved, first.key_of(TestFixture::from(1)),
                                    first.state(TestFixture::from(1)), false),
            Verdict::tracked);
  EXPECT_EQ(first.prove(TestFixture::from(2)), Verdict::tracked);
  EXPECT_EQ(second.send(TestFixture::from(3)).verdict, Verdict::service_limit);
  first.function().event(Event::closed, first.key_of(TestFixture::from(1)),
                         first.state(TestFixture::from(1)), true);
  EXPECT_EQ(TestFixture::statistics(second).established, 1U);
  second.function().event(Event::adopted, first.key_of(TestFixture::from(2)),
                          first.state(TestFixture::from(2)), true);
  first.close(TestFixture::from(2));
  EXPECT_EQ(TestFixture::statistics(first).established, 1U);
  EXPECT_EQ(second.send(TestFixture::from(3)).verdict, Verdict::tracked);
  EXPECT_EQ(second.prove(TestFixture::from(3)), Verdict::tracked);
  EXPECT_EQ(first.send(TestFixture::from(5)).verdict, Verdict::service_limit);
}

}  // namespace
}  // namespace millrace
