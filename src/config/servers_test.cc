// Tests the part of a configuration that names other servers, and the file with the key of all.
#include "config/servers.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <variant>

#include "core/address.h"

namespace millrace {
namespace {

Result<Config> with_pair(const std::string& pair, const std::string& top = "") {
  return parse_config(top + R"([[port]]
name = "outside"
device = "af_packet:eth0"
addresses = ["198.51.100.2/24", "2001:db8::2/64"]
[[port]]
name = "sync"
device = "af_packet:eth1"
addresses = ["10.9.0.1/24"]
[pair]
)" + pair,
                      "f.toml", {{"race", "std"}, {"sharded", "lock-free-race"}, {"wheel"}});
}

constexpr const char* kGood = R"(number = 1
other = "10.9.0.2"
key_file = "/etc/millrace/pair.key"
addresses = ["198.51.100.1", "2001:db8::1"]
)";

void is_wrong(const std::string& pair, const std::string& part, const std::string& top = "") {
  const auto config = with_pair(pair, top);
  ASSERT_FALSE(config.has_value()) << part;
  EXPECT_TRUE(config.error().message.contains(part)) << config.error().message;
}

std::string replaced(std::string text, const std::string& was, const std::string& is) {
  return text.replace(text.find(was), was.size(), is);
}

TEST(ServersConfig, NamesBothServers) {
  const auto config = with_pair(kGood, "workers = 2\n");
  ASSERT_TRUE(config.has_value()) << config.error().message;
  ASSERT_TRUE(config->servers.has_value());
  EXPECT_EQ(config->servers->number, 1U);
  const auto& ends = std::get<KeyV4>(config->servers->ends);
  EXPECT_EQ(to_string(ends.source), "10.9.0.1");
  EXPECT_EQ(to_string(ends.destination), "10.9.0.2");
  EXPECT_EQ(ends.source_port, 7471);
  EXPECT_EQ(ends.destination_port, 7471);
  ASSERT_EQ(config->live.v4.virtual_addresses.size(), 1U);
  EXPECT_EQ(to_string(config->live.v4.virtual_addresses[0]), "198.51.100.1");
  ASSERT_EQ(config->live.v6.virtual_addresses.size(), 1U);
  EXPECT_EQ(sharing_of(*config), "sharded");
  EXPECT_EQ(function_run(*config).share.of, 2U);
  EXPECT_EQ(function_run(*config).share.number, 0U);
}

TEST(ServersConfig, SaysWhatIsWrong) {
  is_wrong("number = 1\n", "pair.other: is missing");
  is_wrong(replaced(kGood, "number = 1", "number = 3"), "give 1 to 2");
  is_wrong(replaced(kGood, "10.9.0.2", "10.8.0.2"), "is in no network of a port");
  is_wrong(replaced(kGood, "10.9.0.2", "10.9.0.1"), "is this server's own");
  is_wrong(replaced(kGood, "10.9.0.2", "other"), "is no address");
  is_wrong(replaced(kGood, "198.51.100.1", "198.51.100.2"), "is an address of a port");
  is_wrong(replaced(kGood, "198.51.100.1", "192.0.2.1"), "is in no network of a port");
  is_wrong(replaced(kGood, "10.9.0.2", "10.9.0.255"), "all stations");
  is_wrong(replaced(kGood, "198.51.100.1", "10.9.0.2"), "which move");
  is_wrong(kGood, "does not go with spread.level", "workers = \"auto\"\n");
  is_wrong(kGood, "needs sharing = \"sharded\"", "sharing = \"lock-free-race\"\n");
}

constexpr const char* kCluster = R"(server = 7
address = "10.9.0.1"
key_file = "/etc/millrace/cluster.key"
addresses = ["192.0.2.1"]
)";

Result<Config> with_cluster(const std::string& cluster) {
  return parse_config(R"([[port]]
name = "sync"
device = "af_packet:eth1"
addresses = ["10.9.0.1/24"]
[cluster]
)" + cluster,
                      "f.toml", {{"race", "std"}, {"sharded", "lock-free-race"}, {"wheel"}});
}

TEST(ServersConfig, NamesAServerOfACluster) {
  const auto config = with_cluster(kCluster);
  ASSERT_TRUE(config.has_value()) << config.error().message;
  ASSERT_TRUE(config->servers && config->servers->is_cluster);
  EXPECT_EQ(config->servers->number, 7U);
  EXPECT_EQ(to_string(std::get<KeyV4>(config->servers->ends).source), "10.9.0.1");
  EXPECT_EQ(config->live.v4.virtual_addresses.size(), 1U);
  EXPECT_EQ(function_run(*config).share.of, 1U);
  EXPECT_EQ(sharing_of(*config), "sharded");
  for (const auto& [was, is, part] :
       {std::array{"server = 7", "server = 256", "give 1 to 255"},
        std::array{"address = \"10.9.0.1\"", "address = \"10.9.0.2\"", "is no port's"},
        std::array{"192.0.2.1", "10.9.0.1", "that all servers have"},
        std::array{"192.0.2.1", "192.0.2.1/32", "give the address alone"},
        std::array{"192.0.2.1\"", "192.0.2.1\", \"192.0.2.1\"", "twice"},
        std::array{"/etc/", "etc/", "the whole path"},
        std::array{"addresses", "[pair]\naddresses", "[pair] and [cluster]"}}) {
    const auto wrong = with_cluster(replaced(kCluster, was, is));
    ASSERT_FALSE(wrong.has_value()) << is;
    EXPECT_TRUE(wrong.error().message.contains(part)) << wrong.error().message;
  }
}

class ServersKeyFile : public testing::Test {
 protected:
  void write(const std::string& text, mode_t mode) {
    std::ofstream(path_) << text;
    ASSERT_EQ(::chmod(path_.c_str(), mode), 0);
  }
  void TearDown() override { std::filesystem::remove(path_); }
  std::string path_ = testing::TempDir() + "pair_key_" + std::to_string(::getpid());
};

TEST_F(ServersKeyFile, HasTheKeyForItselfAlone) {
  const std::string digits = "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F";
  write(digits + "\n", 0600);
  const auto key = read_servers_key({.key_file = path_});
  ASSERT_TRUE(key.has_value()) << key.error().message;
  for (unsigned n = 0; n < key->size(); ++n) EXPECT_EQ((*key)[n], std::byte(n));
  const auto fails = [&](const std::string& part) {
    const auto read = read_servers_key({.key_file = path_});
    ASSERT_FALSE(read.has_value());
    EXPECT_TRUE(read.error().message.contains(part)) << read.error().message;
  };
  write(digits, 0640);
  fails("chmod 600");
  write(digits.substr(1), 0600);
  fails("64 hexadecimal digits");
  write("x" + digits.substr(1), 0600);
  fails("64 hexadecimal digits");
  std::filesystem::remove(path_);
  fails("cannot be read");
}

}  // namespace
}  // namespace millrace
