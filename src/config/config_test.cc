#include "config/config.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "config/test_settings.h"
#include "core/address.h"
#include "toml/keys.h"

namespace millrace {
namespace {

const SchemeNames kSchemes{{"race", "std"}, {"sharded", "mutex"}, {"none", "wheel"}};

Result<Config> parse(std::string_view text) { return parse_config(text, "f.toml", kSchemes); }

Config good(std::string_view text) {
  const auto config = parse(text);
  EXPECT_TRUE(config.has_value()) << config.error().message;
  return config.value_or(Config{});
}

std::string wrong(std::string_view text) {
  const auto config = parse(text);
  if (config) return "(nothing is wrong)";
  EXPECT_EQ(config.error().kind, Error::Kind::usage);
  return config.error().message;
}

TEST(Config, NothingMeansTheDefaults) {
  const Config config = good("");
  EXPECT_EQ(config.table.scheme, "race");
  EXPECT_FALSE(settings_in(config).services_given);
  ASSERT_EQ(settings_in(config).services.v4.size(), 1U);
  EXPECT_EQ(to_string(settings_in(config).services.v4[0]), "0.0.0.0/0");
  EXPECT_EQ(settings_in(config).services.v4[0].backends.size(), 10U);
  EXPECT_EQ(to_string(settings_in(config).services.v6[0]), "::/0");
  const LineConfig line = line_config(config);
  EXPECT_EQ(line.capacity, 1'000'000U);
  EXPECT_EQ(line.capacity_v6, 125'000U);
  EXPECT_EQ(line.source_limit.most, 0U);
  EXPECT_TRUE(line.pass_unmatched);
}

constexpr std::string_view kEverything = R"(
function = "balance"
workers = 3
sharing = "sharded"

[spread]
scheme = "toeplitz-symmetric"
entries = 128
level = true
level_interval_ms = 7

[table]
scheme = "std"
capacity = 1_000
capacity_v6 = 7
when_full = "drop"

[ageing]
scheme = "none"
interval_ms = 1000
[ageing.timeout_s]
tcp_established = 1
udp = 2
sctp_established = 3
icmp = 4
other = 5

[limits]
per_source = 16
source_prefix_v4 = 24
source_prefix_v6 = 128

[balance]
stateful = true
unmatched = "drop"
key = "000102030405060708090a0b0c0D0E0F"
maglev_table_size = 251

[[service]]
address = "203.0.113.10"
port = 443
protocol = "tcp"
scheduler = "least-connections"
max_connections = 99
backends = [
  { address = "10.0.0.1", port = 8443, weight = 2 },
  { address = "10.0.0.2" },
]
[[service]]
address = "2001:db8::/32"
[[service.backends]]
address = "fd00::1"
)";

TEST(Config, EverySettingArrives) {
  const Config config = good(kEverything);
  EXPECT_TRUE(settings_in(config).services_given);
  EXPECT_EQ(config.workers, 3U);
  EXPECT_EQ(config.spread.scheme, "toeplitz-symmetric");
  EXPECT_EQ(config.spread.entries, 128U);
  EXPECT_TRUE(config.spread.level);
  EXPECT_EQ(config.spread.level_interval_ms, 7U);
  const LineConfig line = line_config(config);
  EXPECT_EQ(line.table, "std");
  EXPECT_EQ(line.ageing, "none");
  EXPECT_EQ(line.capacity, 1000U);
  EXPECT_EQ(line.capacity_v6, 7U);
  EXPECT_EQ(line.interval_ms, 1000U);
  EXPECT_FALSE(line.pass_unmatched);
  using enum ConnectionState;
  const std::vector<std::pair<ConnectionState, std::uint32_t>> timeouts{
      {established, 1000}, {udp, 2000},   {udp_stream, 300'000}, {sctp_established, 3000},
      {icmp, 4000},        {other, 5000}, {closed, 10'000},      {other_unreplied, 5000}};
  for (const auto& [state, ms] : timeouts) EXPECT_EQ(line.timeouts.of(state, 0), ms);
  EXPECT_EQ(line.source_limit.most, 16U);
  EXPECT_EQ(line.source_limit.prefix_v4, 24U);
  EXPECT_EQ(line.source_limit.prefix_v6, 128U);
  const BalanceConfig balance = balance_config(config);
  EXPECT_TRUE(balance.stateful);
  EXPECT_FALSE(balance.stateless_when_full);
  EXPECT_EQ(balance.maglev_table_size, 251U);
  for (std::uint8_t i = 0; i < 16; ++i) EXPECT_EQ(balance.key[i], i);
  ASSERT_EQ(balance.services.v4.size(), 1U);
  const auto& service = balance.services.v4[0];
  EXPECT_EQ(to_string(service), "203.0.113.10:443/tcp");
  EXPECT_EQ(service.scheduler, "least-connections");
  EXPECT_EQ(service.max_connections, 99U);
  ASSERT_EQ(service.backends.size(), 2U);
  EXPECT_EQ(with_port(service.backends[0].address, service.backends[0].port), "10.0.0.1:8443");
  EXPECT_EQ(service.backends[0].weight, 2U);
  EXPECT_EQ(service.backends[1].port, 0U);
  EXPECT_EQ(service.backends[1].weight, 1U);
  ASSERT_EQ(balance.services.v6.size(), 1U);
  EXPECT_EQ(to_string(balance.services.v6[0]), "2001:db8::/32");
  EXPECT_EQ(balance.services.v6[0].scheduler, "maglev");
  EXPECT_EQ(balance.services.v6[0].max_connections, 0U);
  EXPECT_TRUE(Balance::create(balance).has_value());
}

// Only a spread by the client's end brings a connection's requests and replies to the same worker
// if functions rewrite them.
TEST(Config, RefusesToTearConnectionsApart) {
  const std::string symmetric = "spread.scheme = \"toeplitz-symmetric\"\n";
  const std::string two_way =
      "service = [{ address = \"10.0.0.9\", backends = [{ address = \"10.0.0.1\" }] }]";
  EXPECT_TRUE(check_spread(good(symmetric + "workers = 2")).has_value());
  EXPECT_TRUE(check_spread(good(symmetric + two_way)).has_value());
  EXPECT_TRUE(check_spread(good("workers = 2\n" + two_way)).has_value());
  const std::string one_way =
      "service = [{ address = \"10.0.0.9\", forward = \"dsr\", backends = [{ address = "
      "\"10.0.0.1\" }] }]";
  EXPECT_TRUE(check_spread(good(symmetric + "workers = 2\n" + one_way)).has_value());
  const auto torn = check_spread(good(symmetric + "workers = 2\n" + two_way));
  ASSERT_FALSE(torn.has_value());
  EXPECT_EQ(torn.error().kind, Error::Kind::usage);
}

TEST(Config, ATinyCapacityStillHasPlaceForIpv6) {
  EXPECT_EQ(line_config(good("table.capacity = 1")).capacity_v6, 1U);
}

struct Wrong {
  const char* text;
  const char* message;
};
void PrintTo(const Wrong& wrong, std::ostream* out) { *out << wrong.text; }

class ConfigErrors : public testing::TestWithParam<Wrong> {};

TEST_P(ConfigErrors, SayWhatIsWrongAndWhatWouldBeRight) {
  EXPECT_EQ(wrong(GetParam().text), GetParam().message);
}

// Writes a service on one line, so that all messages about it name that line.
#define SERVICE(keys) "service = [{ " keys " }]"
#define BACKENDS(list) SERVICE("address = \"10.0.0.9\", backends = [" list "]")

INSTANTIATE_TEST_SUITE_P(
    Keys, ConfigErrors,
    testing::Values(
        Wrong{"\n[table]\ncapacty = 1",
              "f.toml:3: table.capacty: unknown key: the nearest known is \"capacity\""},
        Wrong{"tabel = 1", "f.toml:1: tabel: unknown key: the nearest known is \"table\""},
        Wrong{"workers = \"many\"",
              "f.toml:1: workers: \"many\" is no number: give one, or \"auto\""},
        Wrong{"workers = 129", "f.toml:1: workers: 129 is out of range: give 1 to 128 threads"},
        Wrong{"[spread]\nscheme = \"rss\"",
              "f.toml:2: spread.scheme: \"rss\" is not known: give \"keyed\" or \"toeplitz\" or "
              "\"toeplitz-symmetric\""},
        Wrong{"[spread]\nentries = 300",
              "f.toml:2: spread.entries: 300 is no power of two: give 128, 256 or 512"},
        Wrong{"sharing = \"lock\"",
              "f.toml:1: sharing: \"lock\" is not known: give \"sharded\" or \"mutex\""},
        Wrong{"table = 1", "f.toml:1: table: is an integer: give a table"},
        Wrong{"table.scheme = \"cuckoo\"",
              "f.toml:1: table.scheme: \"cuckoo\" is not known: give \"race\" or \"std\""},
        Wrong{"table.capacity = 0",
              "f.toml:1: table.capacity: 0 is out of range: give 1 to 1800000000 connections"},
        Wrong{"table.capacity = 4294967296",
              "f.toml:1: table.capacity: 4294967296 is out of range: give 1 to 1800000000 "
              "connections"},
        Wrong{"table.capacity = -1",
              "f.toml:1: table.capacity: -1 is out of range: give 1 to 1800000000 connections"},
        Wrong{"table.capacity = \"many\"",
              "f.toml:1: table.capacity: is a string: give 1 to 1800000000 connections"},
        Wrong{"table.capacity = 1e6",
              "f.toml:1: table.capacity: is a floating-point number: give 1 to 1800000000 "
              "connections"},
        Wrong{"table.when_full = \"evicts\"",
              "f.toml:1: table.when_full: \"evicts\" is not known: give \"evict\" or \"stateless\" "
              "or \"drop\""},
        Wrong{"ageing.scheme = \"lazy\"",
              "f.toml:1: ageing.scheme: \"lazy\" is not known: give \"none\" or \"wheel\""},
        Wrong{"ageing.interval_ms = 1001",
              "f.toml:1: ageing.interval_ms: 1001 is out of range: give 1 to 1000 milliseconds"},
        Wrong{"ageing.timeout_s.udp = 0",
              "f.toml:1: ageing.timeout_s.udp: 0 is out of range: give 1 to 2000000 seconds"},
        Wrong{"balance.stateful = \"yes\"",
              "f.toml:1: balance.stateful: is a string: give true or false"},
        Wrong{"balance.unmatched = true",
              "f.toml:1: balance.unmatched: is a boolean: give \"pass\" or \"drop\""},
        Wrong{"balance.key = \"secret\"",
              "f.toml:1: balance.key: \"secret\" is no key: give 32 hexadecimal digits"},
        Wrong{"balance.key = \"0 0102030405060708090a0b0c0d0e0f\"",
              "f.toml:1: balance.key: \"0 0102030405060708090a0b0c0d0e0f\" is no key: give 32 "
              "hexadecimal digits"},
        Wrong{"balance.maglev_table_size = 65536",
              "f.toml:1: balance.maglev_table_size: 65536 is no prime: give 65537"},
        Wrong{"balance.maglev_table_size = 1",
              "f.toml:1: balance.maglev_table_size: 1 is out of range: give 2 to 16777213 "
              "entries"}));

INSTANTIATE_TEST_SUITE_P(
    Services, ConfigErrors,
    testing::Values(
        Wrong{"[[service]]\nport = 80",
              "f.toml:1: service.address: is missing: give it\n"
              "f.toml:1: service.backends: is missing: give it"},
        Wrong{
            "service = 1",
            "f.toml:1: service: is an integer: give one [[service]] for each, in double brackets"},
        Wrong{"[service]\naddress = \"10.0.0.9\"",
              "f.toml:1: service: is a table: give one [[service]] for each, in double brackets"},
        Wrong{"service = [1]", "f.toml:1: service: is an integer: give a table"},
        Wrong{BACKENDS(""), "f.toml:1: service.backends: is empty: give one backend at least"},
        Wrong{BACKENDS("\"10.0.0.1\""),
              "f.toml:1: service.backends: is a string: give { address = \"10.0.0.1\" }"},
        Wrong{BACKENDS("{ address = \"127.0.0.1\" }, { address = \"224.0.0.9\" }"),
              "f.toml:1: service.backends.address: 127.0.0.1 is no address of one machine: give "
              "the backend's\n"
              "f.toml:1: service.backends.address: 224.0.0.9 is no address of one machine: give "
              "the backend's"},
        Wrong{BACKENDS("{ port = 80 }"), "f.toml:1: service.backends.address: is missing: give it"},
        Wrong{BACKENDS("{ address = 10 }"),
              "f.toml:1: service.backends.address: is an integer: give a string"},
        Wrong{BACKENDS("{ address = \"10.0.0\" }"),
              "f.toml:1: service.backends.address: \"10.0.0\" is no address: give one of IPv4"},
        Wrong{BACKENDS("{ address = \"\" }"),
              "f.toml:1: service.backends.address: \"\" is no address: give one of IPv4"},
        Wrong{BACKENDS("{ address = \"fd00::1\" }"),
              "f.toml:1: service.backends.address: fd00::1 is not of the service's family: give "
              "an IPv4 address"},
        Wrong{BACKENDS("{ address = \"10.0.0.1\", port = 0 }"),
              "f.toml:1: service.backends.port: 0 is out of range: give 1 to 65535"},
        Wrong{BACKENDS("{ address = \"10.0.0.1\", weight = -1 }"),
              "f.toml:1: service.backends.weight: -1 is out of range: give 0 to 65535"},
        Wrong{BACKENDS("{ address = \"10.0.0.1\", wieght = 1 }"),
              "f.toml:1: service.backends.wieght: unknown key: the nearest known is \"weight\""},
        Wrong{
            BACKENDS("{ address = \"10.0.0.1\", port = 1 }, { address = \"10.0.0.1\", port = 1 }"),
            "f.toml:1: service.backends.address: 10.0.0.1:1 is in the list already: leave it "
            "out, or give the first a weight"},
        Wrong{SERVICE("address = \"10.0.0.256\", backends = [{ address = \"10.0.0.1\" }]"),
              "f.toml:1: service.address: \"10.0.0.256\" is no address: give one like "
              "203.0.113.10, 2001:db8::1, 10.0.0.0/8"},
        Wrong{SERVICE("address = \"10.0.0.1/8\", backends = [{ address = \"10.0.0.1\" }]"),
              "f.toml:1: service.address: 10.0.0.1/8 has bits set behind its prefix: give "
              "10.0.0.0/8"},
        Wrong{SERVICE("address = \"10.0.0.0/33\", backends = [{ address = \"10.0.0.1\" }]"),
              "f.toml:1: service.address: \"33\" is no prefix length: give 0 to 32"},
        Wrong{SERVICE("address = \"fd00::/\", backends = [{ address = \"fd00::1\" }]"),
              "f.toml:1: service.address: \"\" is no prefix length: give 0 to 128"},
        Wrong{SERVICE("address = \"10.0.0.9\", protocol = \"ospf\", backends = [{ address = "
                      "\"10.0.0.1\" }]"),
              "f.toml:1: service.protocol: \"ospf\" is not known: give \"tcp\" or \"udp\" or "
              "\"sctp\" or \"icmp\" or \"icmpv6\" or \"udplite\" or \"dccp\" or \"gre\" or "
              "\"esp\" or \"ah\""},
        Wrong{SERVICE("address = \"10.0.0.9\", protocol = \"icmp\", port = 7, backends = [{ "
                      "address = \"10.0.0.1\", port = 7 }]"),
              "f.toml:1: service.port: icmp has no ports: leave it out\n"
              "f.toml:1: service.backends.port: icmp has no ports: leave it out"},
        Wrong{SERVICE("address = \"fd00::9\", protocol = \"icmp\", backends = [{ address = "
                      "\"fd00::1\" }]"),
              "f.toml:1: service.protocol: icmp is not of IPv6: give \"icmpv6\""},
        Wrong{
            "balance.stateful = false\n" SERVICE(
                "address = \"10.0.0.9\", backends = [{ address = \"10.0.0.1\" }]"),
            "f.toml:2: service.forward: \"nat\" needs balance.stateful = true, since replies are "
            "known by entries: give \"dsr\", where backends have the service's address and answer "
            "clients themselves"},
        Wrong{
            SERVICE("address = \"10.0.0.9\", port = 80, forward = \"dsr\", backends = [{ address "
                    "= \"10.0.0.1\", port = 80 }, { address = \"10.0.0.2\", port = 81 }]"),
            "f.toml:1: service.backends.port: must be the service's with forward = \"dsr\", which "
            "rewrites nothing: leave it out"},
        Wrong{
            "port = [{ name = \"p\", device = \"null\", addresses = [\"10.0.0.1/24\"] }]\n" SERVICE(
                "address = \"10.0.0.9\", backends = [{ address = \"10.0.0.1\" }]"),
            "f.toml:2: service.backends.address: 10.0.0.1 is the address of a port, which has no "
            "server: give another machine's"},
        Wrong{SERVICE("address = \"10.0.0.9\", backends = [{ address = \"10.0.0.9\" }]"),
              "f.toml:1: service.backends.address: 10.0.0.9 is the service's own address: "
              "give the backend's"},
        Wrong{"port = [{ name = \"p\", device = \"null\", addresses = [\"10.0.0.1/24\"] }]\n"
              "route = [{ prefix = \"10.1.0.0/16\", port = \"p\" }, "
              "{ prefix = \"10.1.2.0/24\", via = \"10.0.0.2\" }]\n" SERVICE(
                  "address = \"10.9.0.1\", forward = \"dsr\", backends = [{ address = "
                  "\"10.0.0.3\" }, { address = \"10.1.1.1\" }, { address = \"10.1.2.1\" }]"),
              "f.toml:3: service.backends.address: 10.1.2.1 is on the link of no port, and "
              "forward = \"dsr\" reaches a backend by its MAC only: give a port an address in the "
              "backend's network"},
        Wrong{"balance.stateful = false\n" SERVICE("address = \"10.0.0.9\", forward = \"dsr\", "
                                                   "scheduler = \"hash\", backends = [{ address = "
                                                   "\"10.0.0.1\" }]"),
              "f.toml:2: service.scheduler: \"hash\" needs balance.stateful = true: give "
              "\"maglev\""},
        Wrong{"limits = 3", "f.toml:1: limits: is an integer: give a table"},
        Wrong{"[limits]\nper_source = 0\nsource_prefix_v4 = 33",
              "f.toml:2: limits.per_source: 0 is out of range: give 1 to 16000000 connections\n"
              "f.toml:3: limits.source_prefix_v4: 33 is out of range: give 1 to 32 bits"},
        Wrong{"limits.source_prefix_v6 = 48",
              "f.toml:1: limits.source_prefix_v6: does nothing by itself: give limits.per_source, "
              "too"},
        Wrong{"[balance]\nstateful = false\n[limits]\nper_source = 1",
              "f.toml:3: limits: needs balance.stateful = true: otherwise "
              "balance keeps no connections"},
        Wrong{SERVICE("address = \"10.0.0.9\", max_connections = 0, backends = [{ address = "
                      "\"10.0.0.1\" }]"),
              "f.toml:1: service.max_connections: 0 is out of range: give 1 to 1800000000 "
              "connections"},
        Wrong{"balance.stateful = false\n" SERVICE("address = \"10.0.0.9\", forward = \"dsr\", "
                                                   "max_connections = 1, backends = [{ address = "
                                                   "\"10.0.0.1\" }]"),
              "f.toml:2: service.max_connections: needs balance.stateful = true: otherwise "
              "balance keeps no connections"},
        Wrong{"balance.maglev_table_size = 2\n" BACKENDS(
                  "{ address = \"10.0.0.1\" }, { address = \"10.0.0.2\" }, { address = "
                  "\"10.0.0.3\" }"),
              "f.toml:2: service.backends: has 3 backends, more than the Maglev table takes: "
              "enlarge balance.maglev_table_size"},
        Wrong{"[[service]]\naddress = \"10.0.0.9\"\nbackends = [{ address = \"10.0.0.1\" }]\n"
              "[[service]]\naddress = \"10.0.0.9/32\"\nbackends = [{ address = \"10.0.0.2\" }]",
              "f.toml:4: service: 10.0.0.9 is there already, on line 1: give it another address, "
              "port or protocol"}));

TEST(Config, ReportsAllProblemsInTheOrderOfTheFile) {
  EXPECT_EQ(
      wrong("workers = 0\n"
            "[table]\n"
            "when_full = 1\n"
            "capacity = 0\n"
            "[[service]]\n"
            "address = \"10.0.0.9\"\n"
            "backends = [\n"
            "  { address = \"10.0.0.1\" },\n"
            "  { address = \"nowhere\" },\n"
            "  { address = \"10.0.0.1\" },\n"
            "]\n"),
      "f.toml:1: workers: 0 is out of range: give 1 to 128 threads\n"
      "f.toml:3: table.when_full: is an integer: give \"evict\" or \"stateless\" or \"drop\"\n"
      "f.toml:4: table.capacity: 0 is out of range: give 1 to 1800000000 connections\n"
      "f.toml:9: service.backends.address: \"nowhere\" is no address: give one of IPv4\n"
      "f.toml:10: service.backends.address: 10.0.0.1 is in the list already: leave it out, "
      "or give the first a weight");
}

TEST(Config, SyntaxErrorsHaveTheirLine) {
  for (const char* text : {"a = 1\nb = [", "a = 1\n[table", "x = 1\nx = 2"}) {
    const std::string message = wrong(text);
    EXPECT_TRUE(message.starts_with("f.toml:2: ")) << message;
    EXPECT_EQ(message.find('\n'), message.npos) << message;
  }
}

TEST(Config, BytesThatAreNoTextAreRefused) {
  EXPECT_EQ(wrong("\xff\xfe").find('\n'), std::string::npos);
  EXPECT_NE(wrong(std::string_view("a = \0", 5)), "(nothing is wrong)");
}

class ConfigFile : public testing::Test {
 protected:
  ConfigFile() : folder_(testing::TempDir() + "config_test." + std::to_string(::getpid())) {
    std::filesystem::create_directory(folder_);
  }
  ~ConfigFile() override { std::filesystem::remove_all(folder_); }

  std::string write(std::string_view text) {
    const std::string path = folder_ + "/f.toml";
    std::ofstream(path) << text;
    return path;
  }
  static std::string unreadable(const std::string& path) {
    const auto config = read_config(path, kSchemes);
    if (config) return "(was read)";
    EXPECT_EQ(config.error().kind, Error::Kind::unreadable);
    return config.error().message;
  }

  std::string folder_;
};

TEST_F(ConfigFile, IsRead) {
  const std::string path = write(kEverything);
  const auto config = read_config(path, kSchemes);
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(config->table.capacity, 1000U);
  const auto wrong = read_config(write("x = 1"), kSchemes);
  ASSERT_FALSE(wrong.has_value());
  EXPECT_TRUE(wrong.error().message.starts_with(path + ":1: x: ")) << wrong.error().message;
}

TEST(Config, AKeyOfTooManyPartsIsRefused) {
  const auto key = [](unsigned parts) {
    std::string text = "a";
    for (unsigned i = 1; i < parts; ++i) text += ".a";
    return text;
  };
  const auto problem = [](const std::string& text) {
    const auto config = parse_config(text, "f", kSchemes);
    return config ? std::string() : config.error().message;
  };
  for (const char* around : {"{}=1", "[{}]", "[[{}]]", "x={{{}=1}}"}) {
    const std::string text = "\n" + fmt::format(fmt::runtime(around), key(1'000'000)) + "\n";
    EXPECT_EQ(problem(text), "f:2: a key has more than 256 parts: give it fewer") << around;
  }
  // In quotes, dots and the characters that otherwise end a key belong to a part's name.
  for (const char* before :
       {"", "x = \"\"\"\na\"\"\"\"\n", "x = '''\n\"'''\n", "'\\' = 1 # \"\n"}) {
    for (const char* part : {"\"=\"", "'\"#='", "\"\\\"=\""}) {
      std::string text = std::string(before) + part;
      for (unsigned i = 1; i < 1'000'000; ++i) text.append(".").append(part);
      EXPECT_TRUE(problem(text + " = 1").contains("256 parts")) << before << part;
    }
  }
  const std::string dots(1000, '.');
  EXPECT_EQ(problem("# " + dots + "\n"), "");
  EXPECT_EQ(problem("x = \"" + dots + "\"\ny = '" + dots + "'").find("parts"), std::string::npos);
  std::string addresses;
  for (unsigned i = 0; i < 100; ++i) addresses += "\"10.0.0.1\", ";
  EXPECT_EQ(problem("x = [" + addresses + "]").find("parts"), std::string::npos);
}

TEST_F(ConfigFile, ThatCannotBeReadSaysWhy) {
  EXPECT_EQ(unreadable(folder_ + "/none.toml"),
            folder_ + "/none.toml: No such file or directory: give a readable TOML file");
  EXPECT_EQ(unreadable(folder_), folder_ + ": Is a directory: give a readable TOML file");
  EXPECT_EQ(unreadable("/dev/zero"), "/dev/zero: is larger than 16 MiB: give a readable TOML file");
  if (::getuid() != 0) {
    const std::string path = write("");
    ::chmod(path.c_str(), 0);
    EXPECT_EQ(unreadable(path), path + ": Permission denied: give a readable TOML file");
  }
}

// The shipped examples must be valid; ctest passes their folder in MILLRACE_EXAMPLES.
TEST(Config, ExamplesAreGood) {
  const char* const folder = std::getenv("MILLRACE_EXAMPLES");
  if (folder == nullptr) GTEST_SKIP() << "MILLRACE_EXAMPLES names no folder";
  unsigned examples = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".toml") continue;
    ++examples;
    const auto config = read_config(entry.path(), kSchemes);
    ASSERT_TRUE(config.has_value()) << config.error().message;
    EXPECT_TRUE(config->function->kind().deploy(config->function, function_run(*config)));
  }
  EXPECT_GE(examples, 2U);
}

}  // namespace
}  // namespace millrace
