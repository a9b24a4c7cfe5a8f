// Tests what is said of mistakes in NAT's part of a configuration.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/address_numbers.h"
#include "function/nat/test_nat.h"

namespace millrace {
namespace {

class NatReaderTest : public NatTest {
 protected:
  std::string problems(const std::string& text) { return read(text).second; }

  static std::string pool(const std::string& addresses) {
    return "[[nat.pool]]\nname = \"p\"\naddresses = \"" + addresses + "\"\n";
  }
  static std::string forward(const std::string& outside) {
    return text_of("") + "[[nat.forward]]\npublic = \"" + outside + "\"\ninside = \"10.0.0.5\"\n";
  }
  static std::string rule(const std::string& source, const std::string& keys) {
    return "[[nat.rule]]\nsource = \"" + source + "\"\npool = \"p\"\n" + keys + "\n";
  }
};

TEST_F(NatReaderTest, PublicAddressesAreHosts) {
  for (const std::string wrong : {"0.0.0.1", "0.255.240.0/20", "127.0.0.1", "127.255.0.0/20",
                                  "224.0.0.1", "239.0.0.0/20", "240.0.0.0/20", "255.255.255.255"}) {
    const std::string rest = wrong +
                             " is of 0.0.0.0/8, 127.0.0.0/8 or 224.0.0.0/3, which are no addresses "
                             "of hosts: give public ones";
    EXPECT_EQ(problems(pool(wrong)), "f:3: nat.pool.addresses: " + rest);
    if (wrong.ends_with("/20")) continue;
    EXPECT_EQ(problems(forward(wrong)), "f:9: nat.forward.public: " + rest);
    EXPECT_EQ(problems(forward(wrong + ":80/tcp")),
              "f:9: nat.forward.public: " + wrong + ":80/tcp" + rest.substr(wrong.size()));
  }
  for (const std::string right : {"1.0.0.0", "126.255.0.0/20", "128.0.0.0/20", "223.255.255.255"}) {
    EXPECT_EQ(problems(pool(right)), "");
    if (right.ends_with("/20")) continue;
    EXPECT_EQ(problems(forward(right)), "");
  }
}

TEST_F(NatReaderTest, RequiredKeysAreNotLeftOut) {
  EXPECT_EQ(problems("[[nat.pool]]\nname = \"p\"\naddresses = []\n"),
            "f:3: nat.pool.addresses: is empty: name at least one");
  EXPECT_EQ(problems(text_of("", "destination = []")),
            "f:8: nat.rule.destination: is empty: name at least one, or leave the key out");
}

TEST_F(NatReaderTest, NamesFitIntoALine) {
  for (const std::string c : {"\\n", "\\r", "\\t", "\\u001b", "\\u007f"})
    EXPECT_EQ(problems("[[nat.pool]]\nname = \"a" + c + "b\"\naddresses = \"10.0.0.16\"\n"),
              "f:2: nat.pool.name: \"a b\" has control characters: give a name without line "
              "breaks, tabs and the like");
  EXPECT_EQ(problems("[[nat.pool]]\nname = \"H\u00e4user \u4e00\"\naddresses = \"10.0.0.16\"\n"),
            "");
}

TEST_F(NatReaderTest, SourceGroupsTakeThePlaceOfPrefixes) {
  for (const std::string bits : {"24", "32"})
    EXPECT_EQ(problems(text_of("", "source_groups = 4\ncustomer_prefix = " + bits)),
              "f:5: nat.rule.source_groups: customer_prefix is given, too: leave one of them out");
  EXPECT_EQ(problems(text_of("", "source_groups = 4")), "");
}

TEST_F(NatReaderTest, NoTwoRulesShareACustomer) {
  const auto with = [this](const std::string& nested, const std::string& bits) {
    return problems(pool("192.0.2.1") + rule("10.0.0.0/24", "customer_prefix = 24") +
                    rule(nested, bits));
  };
  EXPECT_EQ(with("10.0.0.0", ""),
            "f:8: nat.rule.customer_prefix: 10.0.0.0/32 and, of the rule in line 4, 10.0.0.0/24 "
            "would be one customer, whose addresses the rules divide: give both rules the same "
            "customer_prefix, or all of these addresses to one of them");
  EXPECT_NE(with("10.0.0.0/28", "customer_prefix = 28"), "");
  EXPECT_EQ(with("10.0.0.0/28", "customer_prefix = 24"), "");
  EXPECT_EQ(with("10.0.0.1", ""), "");
  EXPECT_EQ(with("10.0.0.0/23", ""), "") << "10.0.0.0 is of the first rule";
}

TEST_F(NatReaderTest, APoolMayBeWithinASource) {
  for (const std::string source : {"10.0.0.0/19", "10.0.0.0/8", "10.2.0.0/15"})
    EXPECT_EQ(problems(pool("10.0.0.0/20") + rule(source, "")), "") << source;
  for (const std::string source : {"10.0.0.0/20", "10.0.0.0", "10.0.1.0/24"})
    EXPECT_EQ(problems(pool("10.0.0.0/20") + rule(source, "")),
              "f:5: nat.rule.source: " + source +
                  " is within the pools' 10.0.0.0/20: customers need addresses of their own");
}

TEST_F(NatReaderTest, AForwardMayBeInAPoolWithinASource) {
  const auto with = [this](const std::string& to) {
    return problems(pool("10.0.0.0/20") + rule("10.0.0.0/8", "") + "[[nat.forward]]\npublic = \"" +
                    to + "\"\ninside = \"10.1.0.1:80\"\n");
  };
  EXPECT_EQ(with("10.0.0.7:80/tcp"), "");
  EXPECT_EQ(with("10.0.16.7:80/tcp"),
            "f:9: nat.forward.public: 10.0.16.7 is a customer's, by the source of a rule: give a "
            "public address");
}

TEST_F(NatReaderTest, EachOfManyRulesHasItsOwnPool) {
  std::string text = "[[nat.pool]]\nname = \"q\"\naddresses = \"192.0.2.2\"\n" + pool("192.0.2.1");
  constexpr std::uint32_t kRules = 65'600;
  const auto address = [](std::uint32_t n) { return address_with(0x0a000000 + n); };
  for (std::uint32_t n = 0; n < kRules; ++n) {
    text += "[[nat.rule]]\nsource = \"" + to_string(Prefix<AddressV4>{address(n), 32}) + "\"\n";
    text += n < 100 ? "pool = \"q\"\n" : "pool = \"p\"\n";
  }
  const auto [settings, wrong] = read(text);
  EXPECT_EQ(wrong, "");
  const auto& nat = dynamic_cast<const NatSettings&>(*settings);
  for (const std::uint32_t n : {0U, 99U, 100U, 65'534U, 65'535U, 65'536U, kRules - 1}) {
    const NatRule* const rule = nat.rule_of(0, address(n));
    ASSERT_NE(rule, nullptr) << n;
    EXPECT_EQ(nat.pools[rule->pool].name, n < 100 ? "q" : "p") << n;
  }
}

TEST_F(NatReaderTest, ThereIsAMostOfPools) {
  std::string text;
  for (unsigned n = 0; n <= PortBlocks::kMostPools; ++n)
    text += "[[nat.pool]]\nname = \"" + std::to_string(n) + "\"\naddresses = \"192." +
            std::to_string(n >> 8) + "." + std::to_string(n & 255) + ".0\"\n";
  EXPECT_EQ(problems(text), "f:12289: nat.pool: there are over 4096: give fewer");
}

// The oracle asks each address for the longest source around it, and notes its customer.
TEST_F(NatReaderTest, SharedCustomersAreFoundWhereverTheyAre) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto to = [&random](unsigned most) { return static_cast<unsigned>(random() % (most + 1)); };
  unsigned shared = 0;
  for (unsigned round = 0; round < 3000; ++round) {
    struct Source {
      Prefix<AddressV4> prefix;
      unsigned customer_bits = 0;
    };
    std::map<std::pair<std::uint32_t, unsigned>, Source> sources;
    std::string text = pool("10.0.0." + std::to_string(to(63)));
    for (unsigned n = 0; n < 2 + round % 4; ++n) {
      const unsigned bits = 26 + to(6);
      const Prefix<AddressV4> prefix{prefix_of(address_with(0x0a000000 + to(63)), bits), bits};
      const unsigned customer_bits = 27 + to(5);
      if (!sources
               .emplace(std::pair(number_of(prefix.address), bits), Source{prefix, customer_bits})
               .second)
        continue;
      text += rule(to_string(prefix), "customer_prefix = " + std::to_string(customer_bits));
    }
    const auto [settings, wrong] = read(text);
    if (wrong.find("is within the pools'") != std::string::npos) continue;
    const NatPool& public_one = dynamic_cast<const NatSettings&>(*settings).pools.front();
    std::map<std::uint32_t, unsigned> bits_of;
    bool is_shared = false;
    for (std::uint32_t address = 0x0a000000; address < 0x0a000040; ++address) {
      const Source* longest = nullptr;
      for (const auto& [_, source] : sources) {
        if (source.prefix.contains(address_with(address)) &&
            (longest == nullptr || source.prefix.bits > longest->prefix.bits))
          longest = &source;
      }
      if (longest == nullptr || public_one.has(address_with(address))) continue;
      const std::uint32_t customer = address & ~std::uint32_t{0} << (32 - longest->customer_bits);
      const auto [at, _] = bits_of.emplace(customer, longest->customer_bits);
      is_shared |= at->second != longest->customer_bits;
    }
    ASSERT_EQ(wrong.find("would be one customer") != std::string::npos, is_shared) << text << wrong;
    shared += is_shared;
  }
  EXPECT_GT(shared, 200U);
}

}  // namespace
}  // namespace millrace
