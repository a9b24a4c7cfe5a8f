// Tests to which customers packets belong: which worker has them, and which sources share ports.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "core/protocol.h"
#include "function/command_done.h"
#include "function/nat/test_nat.h"

namespace millrace {
namespace {

TEST_F(NatTest, SteersByTheCustomer) {
  use("filtering = \"endpoint-independent\"");
  const std::string a = public_end("a:5000", "z:80");
  const std::string b = public_end("b:5000", "z:80");
  const auto key = [](const std::string& from, const std::string& to) {
    return KeyV4{.source = Line::host(from[0]),
                 .destination = Line::host(to[0]),
                 .source_port = static_cast<std::uint16_t>(std::stoi(from.substr(2))),
                 .destination_port = static_cast<std::uint16_t>(std::stoi(to.substr(2))),
                 .protocol = kProtocolUdp};
  };
  const std::array keys{key("a:5000", "z:80"), key("z:80", a),    key("a:7", b), key(b, a),
                        key("z:1", "y:1"),     key("z:80", "p:1")};
  const Steered steered = line_->function().steer(keys, {});
  const std::array of_gre{key("a:0", "z:0"), key("z:0", "p:0")};
  auto gre = of_gre;
  for (KeyV4& one : gre) one.protocol = 47;
  EXPECT_EQ(line_->function().steer(gre, {}).by_destination, 0b01U);
  EXPECT_EQ(line_->function().steer(gre, {}).by_source, 0b10U);
  EXPECT_EQ(steered.by_owner, 0b10'1111U) << "a free port belongs to its address";
  for (unsigned i = 0; i < 4; ++i) EXPECT_EQ(steered.owner[i], Line::host('a')) << i;
}

// A protocol without ports has no port that says whether a packet to the host's own address is for
// the host: replies have the worker of what they answer, the remote end's.
TEST_F(NatTest, SteersProtocolsWithoutPortsByTheRemoteEnd) {
  v4_.own = {{Line::host('p'), 8, 0}};
  use();
  const KeyV4 out{.source = Line::host('a'), .destination = Line::host('z'), .protocol = 47};
  const KeyV4 reply{.source = Line::host('z'), .destination = Line::host('p'), .protocol = 47};
  EXPECT_EQ(line_->function().steer({&out, 1}, {}).by_destination, 1U);
  EXPECT_EQ(line_->function().steer({&reply, 1}, {}).by_source, 1U);
}

// A function before NAT in a chain, as the load balancer, may rewrite the end that it does not
// name.
TEST_F(NatTest, SteersByTheEndThatNoFunctionBeforeItRewrites) {
  use("", "source_groups = 1000\n");
  const KeyV4 to_service{.source = Line::host('b'),
                         .destination = Line::host('a'),
                         .source_port = 5000,
                         .destination_port = 80,
                         .protocol = kProtocolUdp};
  const KeyV4 untranslated = reversed(to_service);
  const auto owner = [this](const KeyV4& key, const Steered& before) {
    const Steered steered = line_->function().steer({&key, 1}, before);
    EXPECT_EQ(steered.by_owner, 1U);
    return steered.owner[0];
  };
  Steered by_source;
  by_source.by_source = 1;
  Steered by_destination;
  by_destination.by_destination = 1;
  const AddressV4 client = owner(to_service, by_source);
  EXPECT_NE(client, owner(to_service, by_destination)) << "the groups differ";
  EXPECT_EQ(owner(untranslated, by_destination), client);
  const std::string end = public_end("b:5000", "z:80");
  const KeyV4 reply{.source = Line::host('a'),
                    .destination = Line::host(end[0]),
                    .source_port = 80,
                    .destination_port = static_cast<std::uint16_t>(std::stoi(port(end))),
                    .protocol = kProtocolUdp};
  EXPECT_EQ(owner(reply, by_destination), client);
}

TEST_F(NatTest, SourcesOfAGroupShareItsPorts) {
  use("blocks_per_customer = 1\nblock_size = 64\n", "source_groups = 2\n");
  std::map<std::string, int> ends;
  for (int n = 0; n < 200; ++n)
    ++ends[public_end(
        std::string(1, static_cast<char>('a' + n % 14)) + ":" + std::to_string(5000 + n), "z:80")];
  EXPECT_EQ(ends["no_port"], 200 - 2 * 64);
  EXPECT_EQ(count("customers"), 2U);
  EXPECT_EQ(count("sessions"), 128U);
  const std::pair<std::string, std::string> group{"customer", "p/1"};
  const auto held = deployment_->command("/nat/customer", {&group, 1}, {});
  ASSERT_TRUE(held.has_value());
  ASSERT_EQ(held->result["blocks"].size(), 1U);
  EXPECT_EQ(held->result["blocks"][0]["mappings"], 64);
}

TEST_F(NatTest, GroupsKeepTheirNumbersWherePoolsChangePlaces) {
  const auto settings_of = [this](const std::array<std::string, 2>& pools) {
    std::string text;
    for (const std::string& pool : pools)
      text +=
          "[[nat.pool]]\nname = \"" + pool + "\"\naddresses = \"10.0." + pool.substr(1) + ".0\"\n";
    for (const std::string& pool : pools)
      text += "[[nat.rule]]\nsource = \"10." + pool.substr(1) + ".0.0/16\"\npool = \"" + pool +
              "\"\nsource_groups = 100\n";
    const auto [settings, problems] = read(text);
    EXPECT_EQ(problems, "");
    return std::static_pointer_cast<const NatSettings>(settings);
  };
  const auto before = settings_of({"p7", "p8"});
  const auto after = settings_of({"p8", "p7"});
  for (const std::string name : {"p7/3", "p8/3", "p8/99"}) {
    const auto number = before->customer_named(name);
    ASSERT_TRUE(number.has_value()) << name;
    EXPECT_EQ(after->customer_named(name), number) << name;
    EXPECT_EQ(after->name_of(*number), name);
  }
}

}  // namespace
}  // namespace millrace
