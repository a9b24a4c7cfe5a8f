// Tests a whole line with ICMP errors about packets that the line has sent.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <variant>

#include "line_fixture.h"
#include "port/replay_port.h"

namespace millrace::test {
namespace {

/// The source and destination of an error, and the ends of the packet that it quotes.
struct Told {
  std::array<std::uint8_t, 4> from, to;
  Endpoint quoted_from, quoted_to;
  friend bool operator==(const Told&, const Told&) = default;
};
Told told_by(const Bytes& error) {
  const Bytes quoted = quoted_by(error);
  return {source_of(error).address, destination_of(error).address, source_of(quoted),
          destination_of(quoted)};
}

constexpr Endpoint kRouter{{198, 51, 100, 1}, 0};

class LineErrorsTest : public LineTest {};
INSTANTIATE_TEST_SUITE_P(AllSchemes, LineErrorsTest, testing::ValuesIn(all_schemes()), name_of);

// An error about a backend's packet goes to the backend, one about a client's packet to the client.
// This holds, too, if the service serves every port: then only the originator's entry has the port
// that the client used.
TEST_P(LineErrorsTest, IcmpErrorsGoWhereTheirConnectionsGo) {
  for (const bool any_port : {false, true}) {
    BalanceConfig config;
    config.services = {.v4 = {service(kVirtual, {1, 2, 3})}};
    if (any_port) config.services.v4[0].port = 0;
    auto made = make(config, small());
    TestPort there;
    for (unsigned n = 0; n < 20; ++n) there.add(packet(client(n), kVirtual), n);
    made.line->run(there);
    ASSERT_EQ(there.sent.size(), 20U);
    TestPort errors;
    for (unsigned n = 0; n < 20; ++n) {
      errors.add(error_about(there.sent[n], kRouter), 30);
      errors.add(error_about(packet(kVirtual, client(n)), kRouter), 30);
    }
    made.line->run(errors);
    ASSERT_EQ(errors.sent.size(), 40U);
    for (unsigned n = 0; n < 20; ++n) {
      const Endpoint backend = destination_of(there.sent[n]);
      EXPECT_TRUE((told_by(errors.sent[2 * n]) ==
                   Told{kVirtual.address, client(n).address, client(n), kVirtual}));
      EXPECT_TRUE((told_by(errors.sent[2 * n + 1]) ==
                   Told{kRouter.address, backend.address, backend, client(n)}));
    }
    EXPECT_EQ(count(made, Verdict::related), 40U);
    EXPECT_EQ(made.line->counters().opened.value(), 20U);
    check(made);
  }
}

// ICMP errors in every millisecond do not keep a connection alive.
TEST_P(LineErrorsTest, IcmpErrorsRefreshNothing) {
  BalanceConfig config;
  config.services = {.v4 = {service(kVirtual, {1, 2, 3})}};
  auto made = make(config, small());
  TestPort port;
  const Endpoint backend{{10, 0, 0, 1}, 8080};
  port.add(packet(client(7), kVirtual), 0);
  port.add(packet(client(8), kVirtual), 0);
  for (unsigned ms = 1; ms <= 1500; ++ms) {
    port.add(error_about(packet(client(7), backend), kRouter), ms);
    port.add(error_about(packet(kVirtual, client(7)), kRouter), ms);
    if (ms % 500 == 0) port.add(packet(client(8), kVirtual, kAck), ms);
  }
  made.line->run(port);
  std::map<std::uint16_t, std::uint32_t> idle_ms;
  const auto note = [&](const ListedConnection& connection) {
    idle_ms[std::get<KeyV4>(connection.key).source_port] = connection.idle_ms;
    return Visit::leave;
  };
  for (LineCursor at; at.at != LineCursor::At::end;) at = made.line->visit(at, note);
  if (idle_ms.contains(client(7).port)) {  // the connection has not been removed yet
    EXPECT_NE(GetParam().ageing, "wheel");
    EXPECT_EQ(idle_ms[client(7).port], 1500U);
  }
  EXPECT_EQ(idle_ms[client(8).port], 0U);
  // After the connection has ended, an error about a packet from the service goes to the backend
  // that Maglev chooses. An error about a packet to a backend has the verdict `related` only if
  // Maglev chooses that backend.
  EXPECT_GE(count(made, Verdict::related), 2'000U);
  check(made);
}

// A capture may hold a connection's first packet and an error about it a few packets apart.
TEST_P(LineErrorsTest, AnErrorInTheBurstThatOpensItsConnectionIsFound) {
  BalanceConfig config;
  config.services = {.v4 = {service(kVirtual, {1, 2, 3})}};
  auto made = make(config, small());
  Capture capture(CaptureFormat{});
  for (unsigned n = 0; n < 20; ++n) {
    const Endpoint backend{{10, 0, 0, static_cast<std::uint8_t>(n % 3 + 1)}, 8080};
    for (const Bytes& p :
         {packet(client(n), kVirtual), error_about(packet(client(n), backend), kRouter)})
      ASSERT_TRUE(capture.append(0, static_cast<std::uint32_t>(p.size()), p).has_value());
  }
  auto port = ReplayPort::create(capture, {.burst = 64});
  made.line->run(*port);
  EXPECT_EQ(count(made, Verdict::tracked), 20U);
  EXPECT_EQ(count(made, Verdict::related), 20U);
  check(made);
}

TEST_P(LineErrorsTest, IcmpErrorsWithoutAnEntryGoByMaglev) {
  BalanceConfig config;
  config.services = {.v4 = {service(kVirtual, {1, 2, 3})}};
  auto made = make(config, small());
  TestPort there;
  there.add(packet(client(7), kVirtual, kAck | kFin), 0);  // begins no connection
  made.line->run(there);
  const Endpoint backend = destination_of(there.sent[0]);
  TestPort errors;
  errors.add(error_about(packet(kVirtual, client(7)), kRouter), 1);
  for (const std::uint8_t last : std::array<std::uint8_t, 3>{1, 2, 3})
    errors.add(error_about(packet(client(7), {{10, 0, 0, last}, 8080}), kRouter), 1);
  made.line->run(errors);
  EXPECT_TRUE(
      (told_by(errors.sent[0]) == Told{kRouter.address, backend.address, backend, client(7)}));
  EXPECT_TRUE((told_by(errors.sent[backend.address[3]]) ==
               Told{kVirtual.address, client(7).address, client(7), kVirtual}));
  EXPECT_EQ(count(made, Verdict::related), 2U);
  EXPECT_EQ(count(made, Verdict::icmp_error), 2U);
  EXPECT_EQ(made.line->counters().opened.value(), 0U);
  check(made);
}

}  // namespace
}  // namespace millrace::test
