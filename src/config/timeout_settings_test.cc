#include "config/timeout_settings.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include "config/config.h"
#include "config/test_settings.h"
#include "core/protocol.h"

namespace millrace {
namespace {

const SchemeNames kFewSchemes{{"race"}, {"sharded"}, {"none", "wheel"}};

Config config_of(std::string_view text) {
  auto config = parse_config(text, "f.toml", kFewSchemes);
  if (!config) ADD_FAILURE() << config.error().message;
  return config ? std::move(*config) : Config();
}

TEST(Timeouts, EveryStateOfEveryProtocolHasOne) {
  std::uint64_t all = 0;
  for (const TimeoutSetting& setting : kTimeoutSettings) {
    EXPECT_EQ(all & setting.places, 0U) << setting.name;
    all |= setting.places;
  }
  EXPECT_EQ(all, (std::uint64_t{1} << Timeouts::kCount) - 1);
}

TEST(Timeouts, ProtocolsThatShareStatesHaveTheirOwn) {
  using enum ConnectionState;
  const Timeouts timeouts =
      line_config(
          config_of("[ageing.timeout_s]\ngre_unreplied = 6\nah = 7\nother = 5\nsctp_init = 8"))
          .timeouts;
  EXPECT_EQ(timeouts.of(other, kProtocolGre), 180'000U);
  EXPECT_EQ(timeouts.of(other_unreplied, kProtocolGre), 6000U);
  EXPECT_EQ(timeouts.of(other, kProtocolAuthentication), 7000U);
  EXPECT_EQ(timeouts.of(other_unreplied, kProtocolAuthentication), 7000U);
  EXPECT_EQ(timeouts.of(other, kProtocolEsp), 600'000U);
  EXPECT_EQ(timeouts.of(other_unreplied, kProtocolUdpLite), 120'000U);
  EXPECT_EQ(timeouts.of(other_unreplied, kProtocolDccp), 240'000U);
  for (const std::uint8_t protocol : std::to_array<std::uint8_t>({2, 41, 89, 255})) {
    EXPECT_EQ(timeouts.of(other, protocol), 5000U);
    EXPECT_EQ(timeouts.of(other_unreplied, protocol), 5000U);
  }
  EXPECT_EQ(timeouts.of(established, kProtocolTcp), 7'440'000U);
  EXPECT_EQ(timeouts.of(sctp_cookie_echoed, kProtocolSctp), 8000U);
  EXPECT_EQ(timeouts.of(sctp_aborted, kProtocolSctp), 10'000U);
}

TEST(Timeouts, TheFormerTimeoutOfSctpNamesItsSuccessors) {
  const auto config = parse_config("ageing.timeout_s.sctp = 210", "f.toml", kFewSchemes);
  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(config.error().message,
            "f.toml:1: ageing.timeout_s.sctp: give sctp_established, and sctp_init, "
            "sctp_shutdown, sctp_closed or sctp_midstream for other states");
}

TEST(Timeouts, QuietLastsAsLongAsTheLongestTimeoutOfWhatMayBegin) {
  EXPECT_EQ(balance_config(config_of("")).quiet_ms, 600'000U);
  EXPECT_EQ(balance_config(
                config_of("[ageing.timeout_s]\nother = 1\nsctp_established = 1\nudp_stream = 1\n"
                          "udplite = 1\ndccp_unreplied = 1\ndccp = 1\ngre = 1\nesp = 1\nah = 1"))
                .quiet_ms,
            128'000U);
  EXPECT_EQ(balance_config(config_of("ageing.scheme = \"none\"")).quiet_ms, 0xffffffffU);
}

}  // namespace
}  // namespace millrace
