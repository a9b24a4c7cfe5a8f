// Tests the part of a configuration that `millrace run` needs: ports, routes, the host.
#include "config/ports.h"

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "config/test_settings.h"
#include "core/address.h"

namespace millrace {
namespace {

Result<Config> parsed(const std::string& text) {
  return parse_config(text, "f.toml", {{"race", "std"}, {"sharded"}, {"wheel"}});
}

/// Returns the problems of a configuration; "" if there are none.
std::string message(const std::string& text) {
  const auto config = parsed(text);
  return config ? std::string() : config.error().message;
}

/// Expects that the configuration's problems contain this text.
void has(const std::string& text, const std::string& part) {
  EXPECT_TRUE(message(text).contains(part)) << message(text);
}

const std::string kTwoPorts = R"([[port]]
name = "outside"
device = "af_packet:eth0"
addresses = ["198.51.100.2/24", "2001:db8::2/64"]
[[port]]
name = "inside"
device = "tap:mr0"
addresses = ["10.0.0.254/24"]
mtu = 9000
rpf = "strict"
)";

/// Returns the sharing scheme of a configuration with this text before `kTwoPorts`.
std::string sharing_with(const std::string& text) {
  return sharing_of(parsed(text + kTwoPorts).value());
}

TEST(LiveConfig, WorkersShareWhatTheKernelBrings) {
  EXPECT_EQ(sharing_with(""), "sharded");
  EXPECT_EQ(sharing_with("workers = 2\n"), "lock-free-race");
  EXPECT_EQ(sharing_with("workers = 2\nsharing = \"sharded\"\n"), "sharded");
  EXPECT_EQ(sharing_with("workers = 2\ntable = { scheme = \"std\" }\n"), "sharded");
  EXPECT_EQ(sharing_of(parsed("workers = 2\n").value()), "sharded");
}

TEST(LiveConfig, SaysWhatTheKernelDoesNotGet) {
  const auto doubts_of = [](const std::string& service) {
    const auto config = parsed(R"(
[[port]]
name = "card"
device = "af_packet:eth0"
kernel = "mr0"
addresses = ["198.51.100.2/24"]
[[service]]
backends = [{ address = "198.51.100.1" }]
)" + service);
    return config.has_value() ? doubts(*config) : std::vector{config.error().message};
  };
  EXPECT_TRUE(doubts_of("address = \"198.51.100.2\"\nport = 80").empty());
  EXPECT_TRUE(doubts_of("address = \"198.51.100.2\"\nprotocol = \"udp\"").empty());
  EXPECT_TRUE(doubts_of("address = \"198.51.101.0/24\"").empty());
  for (const std::string address : {"198.51.100.2", "198.51.100.0/24", "0.0.0.0/0"}) {
    const auto said = doubts_of("address = \"" + address + "\"");
    ASSERT_EQ(said.size(), 1U) << address;
    EXPECT_TRUE(said[0].contains("198.51.100.2, also those of ssh")) << said[0];
  }
}

TEST(LiveConfig, SaysWhatCannotBeReached) {
  const auto config = parsed(kTwoPorts + R"(
[[port]]
name = "twin"
device = "af_packet:eth1"
addresses = ["10.0.0.253/24"]
[[route]]
prefix = "192.0.2.0/24"
via = "198.51.100.1"
[[service]]
address = "203.0.113.1"
port = 80
backends = [{ address = "10.9.9.9" }, { address = "192.0.2.7" }, { address = "10.0.0.7" }]
[[service]]
address = "203.0.113.2"
port = 80
backends = [{ address = "10.9.9.9" }]
[[service]]
address = "198.51.100.1"
port = 80
backends = [{ address = "10.0.0.7" }]
)");
  ASSERT_TRUE(config.has_value()) << config.error().message;
  const auto said = doubts(*config);
  ASSERT_EQ(said.size(), 3U);
  EXPECT_TRUE(said[0].starts_with("no route leads to the backend 10.9.9.9 of 203.0.113.1:80"));
  EXPECT_TRUE(said[1].starts_with("service 198.51.100.1:80 has the address of a router"));
  EXPECT_TRUE(said[2].starts_with("the ports inside and twin have the same network 10.0.0.0/24"));
}

TEST(LiveConfig, HintsAtWhatOthersWrite) {
  const auto service = [](const std::string& address, const std::string& backend) {
    return "[[service]]\naddress = \"" + address + "\"\nbackends = [{ address = \"" + backend +
           "\" }]\n";
  };
  has(service("203.0.113.1:80", "10.0.0.1"), "give address = \"203.0.113.1\" and port = 80");
  has(service("[2001:db8::1]:80", "fd00::1"), "give address = \"2001:db8::1\" and port = 80");
  has(service("203.0.113.1", "10.0.0.1:8080"), "give address = \"10.0.0.1\" and port = 8080");
  has(service("203.0.113.1", "10.0.0.1:http"), "is no address");
  has(service("203.0.113.1", "10.0.0.1:99999"), "is no address");
  has("[service]\naddress = \"203.0.113.1\"\n[service]\naddress = \"203.0.113.2\"\n",
      "write [[service]] each time");
  has("workers = \xe2\x80\x9c"
      "four\xe2\x80\x9d\n",
      "straight quotes");
  has("[[port]]\nname = \"a\"\ndevice = \"eth1\"\nkernel = \"mr0\"\n", "port.device: ");
  EXPECT_FALSE(message("[[port]]\nname = \"a\"\ndevice = \"eth1\"\nkernel = \"mr0\"\n")
                   .contains("port.kernel"));
}

TEST(LiveConfig, NamesMayBeInCapitals) {
  const auto config = parsed(R"(
[[service]]
address = "203.0.113.1"
port = 80
protocol = "TCP"
scheduler = "Round-Robin"
forward = "DSR"
backends = [{ address = "198.51.100.1" }]
)" + kTwoPorts);
  ASSERT_TRUE(config.has_value()) << config.error().message;
  const ServiceSpec<AddressV4>& service = settings_in(*config).services.v4.at(0);
  EXPECT_EQ(service.protocol, kProtocolTcp);
  EXPECT_EQ(service.scheduler, "round-robin");
  EXPECT_EQ(service.forward, Forward::dsr);
}

TEST(LiveConfig, AnInterfaceHasOneUse) {
  const std::string card = "[[port]]\nname = \"a\"\ndevice = \"af_packet:eth0\"\nkernel = \"";
  const std::string other = "\"\n[[port]]\nname = \"b\"\ndevice = \"af_packet:eth1\"\n";
  const auto said = [&](const std::string& text) {
    const auto config = parsed(text);
    return config.has_value() ? "" : config.error().message;
  };
  EXPECT_EQ(said(card + "mr0" + other + "kernel = \"mr1\""), "");
  EXPECT_EQ(said(card + "eth1" + other),
            "f.toml:7: port.device: \"eth1\" is there already, on line 4: give each port its own");
  EXPECT_EQ(said(card + "mr0" + other + "kernel = \"mr0\""),
            "f.toml:8: port.kernel: \"mr0\" is there already, on line 4: give each port its own");
  for (const std::string name : {"", "all", "default", "..", "a b", "a/b", "mr%d", "a\\u0000b"})
    EXPECT_TRUE(said(card + name + other).contains("is no name of an interface")) << name;
}

/// Returns ports that have the devices, and further keys, given.
std::string ports_with(const std::vector<std::string>& devices_and_keys) {
  std::string text;
  for (const std::string& one : devices_and_keys)
    text += "[[port]]\nname = \"" + std::to_string(text.size()) + "\"\ndevice = " + one + "\n";
  return text;
}

TEST(LiveConfig, PortsShareADeviceByVlans) {
  const std::string eth0 = "\"af_packet:eth0\"";
  const auto config = parsed(ports_with({eth0, eth0 + "\nvlan = 1", eth0 + "\nvlan = 4094",
                                         "\"null\"", "\"null\"", "\"tap:mr0\"\nvlan = 1"}));
  ASSERT_TRUE(config.has_value()) << config.error().message;
  std::vector<unsigned> vlans;
  for (const Config::Port& port : config->live.ports) vlans.push_back(port.vlan);
  EXPECT_EQ(vlans, (std::vector{0U, 1U, 4094U, 0U, 0U, 1U}));

  EXPECT_EQ(message(ports_with({eth0, eth0})),
            "f.toml:6: port.device: \"eth0\" has a port without vlan already, on line 3: give one "
            "of the two ports a vlan, or another device");
  EXPECT_EQ(message(ports_with({eth0, eth0 + "\nvlan = 7", eth0 + "\nvlan = 7"})),
            "f.toml:11: port.vlan: 7 is the VLAN of another port of \"eth0\", on line 7: give each "
            "port its own");
  const std::string memif = "\"memif:/run/m.sock,id=1\"";
  EXPECT_EQ(message(ports_with({memif, memif})),
            "f.toml:6: port.device: \"memif:/run/m.sock,id=1\" has a port without vlan already, on "
            "line 3: give one of the two ports a vlan, or another device");
  EXPECT_EQ(message(ports_with({"\"0000:3b:00.0\"", "\"3b:00.0\""})),
            "f.toml:6: port.device: \"0000:3b:00.0\" has a port without vlan already, on line 3: "
            "give one of the two ports a vlan, or another device");
  EXPECT_EQ(message(ports_with({"\"af_packet:eth0\"\nvlan = 1", "\"af_xdp:eth0\"\nvlan = 2"})),
            "f.toml:7: port.device: \"eth0\" is there already, as \"af_packet:eth0\", on line 3: "
            "give the same device and another vlan, or another interface");
  EXPECT_EQ(
      message(ports_with({eth0 + "\nvlan = 0", eth0 + "\nvlan = 4095", eth0 + "\nvlan = \"1\""})),
      "f.toml:4: port.vlan: 0 is out of range: give 1 to 4094 or leave vlan out if frames "
      "have no tag\n"
      "f.toml:8: port.vlan: 4095 is out of range: give 1 to 4094 or leave vlan out if frames "
      "have no tag\n"
      "f.toml:12: port.vlan: is a string: give 1 to 4094 or leave vlan out if frames have no "
      "tag");
}

TEST(LiveConfig, ThereMayBe254Ports) {
  std::vector<std::string> ports;
  for (unsigned vlan = 1; vlan <= 254; ++vlan)
    ports.push_back("\"af_packet:eth0\"\nvlan = " + std::to_string(vlan));
  EXPECT_EQ(message(ports_with(ports)), "");
  ports.insert(ports.end(), 2, "\"null\"");
  EXPECT_EQ(message(ports_with(ports)), "f.toml:1017: port: is one too many: give at most 254");
}

TEST(LiveConfig, EverySettingArrives) {
  const auto config = parsed(kTwoPorts + R"(
[[route]]
prefix = "0.0.0.0/0"
via = "198.51.100.1"
[[route]]
prefix = "::/0"
via = "fe80::1"
port = "outside"
[[route]]
prefix = "192.0.2.0/24"
port = "inside"
[host]
unreachable = false
idle = "spin"
[[port]]
name = "lab"
device = "memif:/run/lab.sock"
neighbours = [
  { address = "192.0.2.1", mac = "02:00:00:00:00:0a" },
  { address = "fe80::1", mac = "2:0:0:0:0:B" },
]
)");
  ASSERT_TRUE(config.has_value()) << config.error().message;
  const Config::Live& live = config->live;
  ASSERT_EQ(live.ports.size(), 3U);
  EXPECT_EQ(live.ports[0].name, "outside");
  EXPECT_EQ(to_string(live.ports[1].device), "tap:mr0");
  EXPECT_EQ(live.ports[0].mtu, 0U);
  EXPECT_EQ(live.ports[1].mtu, 9000U);
  EXPECT_EQ(live.ports[0].reverse_path, ReversePath::off);
  EXPECT_EQ(live.ports[1].reverse_path, ReversePath::strict);
  ASSERT_EQ(live.v4.own.size(), 2U);
  EXPECT_EQ(to_string(live.v4.own[1].address), "10.0.0.254");
  EXPECT_EQ(live.v4.own[1].bits, 24U);
  EXPECT_EQ(live.v4.own[1].link, 1U);
  ASSERT_EQ(live.v6.own.size(), 1U);
  ASSERT_EQ(live.v4.routes.size(), 2U);
  EXPECT_EQ(live.v4.routes[0].link, 0U);
  EXPECT_EQ(to_string(*live.v4.routes[0].via), "198.51.100.1");
  EXPECT_EQ(live.v4.routes[1].link, 1U);
  EXPECT_FALSE(live.v4.routes[1].via.has_value());
  ASSERT_EQ(live.v6.routes.size(), 1U);
  EXPECT_EQ(live.v6.routes[0].link, 0U);
  ASSERT_EQ(live.v4.neighbours.size(), 1U);
  EXPECT_EQ(to_string(live.v4.neighbours[0].address), "192.0.2.1");
  EXPECT_EQ(live.v4.neighbours[0].link, 2U);
  EXPECT_EQ(live.v4.neighbours[0].mac, (Mac{{2, 0, 0, 0, 0, 10}}));
  ASSERT_EQ(live.v6.neighbours.size(), 1U);
  EXPECT_EQ(live.v6.neighbours[0].mac, (Mac{{2, 0, 0, 0, 0, 11}}));
  EXPECT_FALSE(live.tells_unreachable);
  EXPECT_EQ(live.idle, Config::Idle::spin);
}

struct WrongPorts {
  std::string text;  ///< text before the two ports
  std::string message;
};
void PrintTo(const WrongPorts& wrong, std::ostream* out) { *out << wrong.text; }

class LiveConfigErrors : public testing::TestWithParam<WrongPorts> {};

TEST_P(LiveConfigErrors, SayWhatIsWrongAndWhatWouldBeRight) {
  const auto config = parsed(GetParam().text + "\n" + kTwoPorts);
  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(config.error().message, "f.toml:1: " + GetParam().message);
  EXPECT_EQ(config.error().kind, Error::Kind::usage);
}

#define PORT(keys) "port = [{ name = \"x\", device = \"null\", " keys " }]"

INSTANTIATE_TEST_SUITE_P(
    Keys, LiveConfigErrors,
    testing::Values(
        WrongPorts{"route = [{ via = \"198.51.100.1\" }]", "route.prefix: is missing: give it"},
        WrongPorts{
            "route = [{ prefix = \"0.0.0.0/0\" }]",
            "route: has no next hop: give via, or give port if the prefix is on a port's link"},
        WrongPorts{"route = [{ prefix = \"0.0.0.0/33\", via = \"198.51.100.1\" }]",
                   "route.prefix: \"33\" is no prefix length: give 0 to 32"},
        WrongPorts{"route = [{ prefix = \"10.1.2.3/8\", via = \"198.51.100.1\" }]",
                   "route.prefix: 10.1.2.3/8 has bits set behind its prefix: give 10.0.0.0/8"},
        WrongPorts{"route = [{ prefix = \"default\", via = \"198.51.100.1\" }]",
                   "route.prefix: \"default\" is no prefix: give one like 0.0.0.0/0, ::/0"},
        WrongPorts{
            "route = [{ prefix = \"::/0\", via = \"198.51.100.1\" }]",
            "route.via: \"198.51.100.1\" is no IPv6 address, as the route's prefix is: give one"},
        WrongPorts{
            "route = [{ prefix = \"0.0.0.0/0\", via = \"192.0.2.1\" }]",
            "route.via: 192.0.2.1 is in no port's network: give port, too, or give a port an "
            "address of "
            "that network"},
        WrongPorts{"route = [{ prefix = \"0.0.0.0/0\", via = \"192.0.2.1\", port = \"otside\" }]",
                   "route.port: no port is called \"otside\": give one of \"outside\", \"inside\""},
        WrongPorts{"service = [{ address = \"203.0.113.1\", backends = [{ address = "
                   "\"198.51.100.255\" }] }]",
                   "service.backends.address: 198.51.100.255 is no address of one machine: give "
                   "the backend's"},
        WrongPorts{"service = [{ address = \"198.51.100.255\", backends = [{ address = "
                   "\"10.0.0.7\" }] }]",
                   "service.address: 198.51.100.255 is the broadcast address of a port's network: "
                   "give another"},
        WrongPorts{"host = { idle = \"nap\" }",
                   "host.idle: \"nap\" is not known: give \"sleep\" or \"spin\""}));

class PortErrors : public testing::TestWithParam<WrongPorts> {};

TEST_P(PortErrors, SayWhatIsWrongAndWhatWouldBeRight) {
  const auto config = parsed(GetParam().text);
  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(config.error().message, "f.toml:1: " + GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Keys, PortErrors,
    testing::Values(
        WrongPorts{"port = [{ device = \"null\" }]", "port.name: is missing: give it"},
        WrongPorts{"port = [{ name = \"x\" }]", "port.device: is missing: give it"},
        WrongPorts{
            "port = [{ name = \"x\", device = \"eth0\" }]",
            "port.device: \"eth0\" is no device: give af_packet:INTERFACE, af_xdp:INTERFACE, "
            "tap:NAME, "
            "memif:SOCKET, pcap:FILE, null, ring, or a PCI address such as 0000:3b:00.0"},
        WrongPorts{
            PORT("addresses = \"10.0.0.1/24\""),
            "port.addresses: is a string: give an array as [\"192.0.2.1/24\", \"2001:db8::1/64\"]"},
        WrongPorts{
            PORT("addresses = [\"10.0.0.1\"]"),
            "port.addresses: 10.0.0.1 has no prefix length, which says what else is on the link: "
            "give "
            "10.0.0.1/24, or the prefix length of the link"},
        WrongPorts{PORT("addresses = [\"10.0.0.x/24\"]"),
                   "port.addresses: \"10.0.0.x/24\" is no address: give one like 192.0.2.1/24, "
                   "2001:db8::1/64"},
        WrongPorts{PORT("neighbours = [{ address = \"10.0.0.1\" }]"),
                   "port.neighbours.mac: is missing: give it"},
        WrongPorts{PORT("neighbours = [{ address = \"10.0.0\", mac = \"02:00:00:00:00:01\" }]"),
                   "port.neighbours.address: \"10.0.0\" is no address: give one like 192.0.2.1, "
                   "2001:db8::1"},
        WrongPorts{
            PORT("neighbours = [{ address = \"10.0.0.1\", mac = \"02:00:00:00:00:011\" }]"),
            "port.neighbours.mac: \"02:00:00:00:00:011\" is no MAC address of one station: give "
            "one like 02:00:00:00:00:01"},
        WrongPorts{
            PORT("neighbours = [{ address = \"10.0.0.1\", mac = \"01:00:5e:00:00:01\" }]"),
            "port.neighbours.mac: \"01:00:5e:00:00:01\" is no MAC address of one station: give "
            "one like 02:00:00:00:00:01"},
        WrongPorts{PORT("neighbours = [{ address = \"10.0.0.1\", mac = \"02:00:00:00:00:01\" }, "
                        "{ address = \"10.0.0.1\", mac = \"02:00:00:00:00:02\" }]"),
                   "port.neighbours.address: \"10.0.0.1\" is there already: leave one out"},
        WrongPorts{PORT("mtu = 20"), "port.mtu: 20 is out of range: give 68 to 9600 bytes"},
        WrongPorts{PORT("mss = 20"), "port.mss: 20 is out of range: give 88 to 9540 bytes"},
        WrongPorts{PORT("mss = \"full\""),
                   "port.mss: \"full\" is no number of bytes: give one, or \"auto\""},
        WrongPorts{
            "port = [{ name = \"x\", device = \"tap:a\" }, { name = \"x\", device = \"tap:b\" }]",
            "port.name: \"x\" is there already, on line 1: give each port its own"},
        WrongPorts{
            "port = [{ name = \"x\", device = \"tap:a\" }, { name = \"y\", device = \"tap:a\" }]",
            "port.device: \"a\" has a port without vlan already, on line 1: give one of the two "
            "ports a vlan, or another device"},
        WrongPorts{"port = [{ name = \"x\", device = \"tap:a\" }, "
                   "{ name = \"y\", device = \"tap:a,mac=fixed\" }]",
                   "port.device: \"a\" is there already, as \"tap:a\", on line 1: give the same "
                   "device and another vlan, or another interface"},
        WrongPorts{"port = [{ name = \"x\", device = \"af_packet:a,x=1\" }, "
                   "{ name = \"y\", device = \"af_xdp:a\" }]",
                   "port.device: \"a\" is there already, as \"af_packet:a,x=1\", on line 1: give "
                   "the same device and another vlan, or another interface"}));

/// Returns a service with that health check.
std::string with_health(const std::string& health, const std::string& port = "port = 80") {
  return "[[service]]\naddress = \"203.0.113.10\"\n" + port + "\nhealth = { " + health +
         " }\nbackends = [{ address = \"10.0.0.1\" }]\n";
}

TEST(HealthConfig, EverySettingArrives) {
  const auto config =
      parsed(with_health("check = \"http\", path = \"/up\", host = \"www.example.com\", port = 81, "
                         "interval_ms = 10, timeout_ms = 2, "
                         "rise = 4, fall = 5, move_udp = false"));
  ASSERT_TRUE(config.has_value()) << config.error().message;
  const auto& health = settings_in(*config).services.v4.at(0).health;
  ASSERT_TRUE(health.has_value());
  EXPECT_EQ(health->kind, HealthCheck::Kind::http);
  EXPECT_EQ(health->path, "/up");
  EXPECT_EQ(health->host, "www.example.com");
  EXPECT_EQ(health->port, 81U);
  EXPECT_EQ(health->interval_ms, 10U);
  EXPECT_EQ(health->timeout_ms, 2U);
  EXPECT_EQ(health->rise, 4U);
  EXPECT_EQ(health->fall, 5U);
  EXPECT_FALSE(settings_in(*config).services.v4.at(0).move_udp);
}

TEST(HealthConfig, ProblemsSayWhatWouldBeRight) {
  has(with_health("path = \"/\""), "check: is missing");
  has(with_health("check = \"ping\""), "give \"tcp\" or \"http\" or \"icmp\"");
  has(with_health("check = \"http\", path = \"up\""), "begins with /");
  has(with_health("check = \"http\", path = \"/a b\""), "%20");
  has(with_health("check = \"http\", host = \"a\\r\\nb\""), "is no host");
  has(with_health("check = \"tcp\", interval_ms = 1"), "10 to 3600000");
  has(with_health("check = \"tcp\"", ""), "give port");
  EXPECT_EQ(message(with_health("check = \"icmp\"", "")), "");
  EXPECT_EQ(message(with_health("check = \"tcp\", move_udp = true", "port = 1\nmove_udp = true")),
            "");
  has(with_health("check = \"tcp\", move_udp = true", "port = 1\nmove_udp = false"), "contradicts");
}

}  // namespace
}  // namespace millrace
