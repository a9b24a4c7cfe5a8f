#include "core/customers.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "core/address.h"

namespace millrace {
namespace {

AddressV4 at(const char* text) { return *parse_address<AddressV4>(text); }

const Customers& some() {
  static const Customers kAll({
      {.link = 1, .ends = {at("172.17.0.0"), 24}, .key = {}, .name = {}},
      {.link = 1, .ends = {at("172.18.0.9"), 32}, .key = 7, .name = "c17"},
      {.link = 2, .ends = {at("172.17.0.0"), 30}, .key = {}, .name = {}},
      {.link = 1, .ends = {at("172.18.0.9"), 32}, .key = 8, .name = "c18"},
  });
  return kAll;
}

const Customers& in_vlans() {
  static const Customers kAll({
      {.link = 2, .ends = {}, .key = {}, .name = {}, .vlans = {100, 199}, .port = "access"},
      {.link = 1, .ends = {at("172.17.0.0"), 30}, .key = {}, .name = {}},
      {.link = 2, .ends = {}, .key = {}, .name = "c17", .vlans = {17, 17}, .port = "access"},
      {.link = 3, .ends = {}, .key = {}, .name = {}, .vlans = {100, 100}, .port = "access.100"},
      {.link = 2, .ends = {}, .key = {}, .name = {}, .vlans = {1, 16}, .port = "access"},
  });
  return kAll;
}

TEST(CustomersTest, HaveTheNumbersOfTheirPlaces) {
  EXPECT_EQ(some().size(), 256U + 1 + 4 + 1);
  EXPECT_EQ(some().find(1, at("172.17.0.0"), {}), 1U);
  EXPECT_EQ(some().find(1, at("172.17.0.255"), {}), 256U);
  EXPECT_EQ(some().find(1, at("172.18.0.9"), 7), 257U);
  EXPECT_EQ(some().find(2, at("172.17.0.3"), {}), 261U);
  EXPECT_EQ(some().find(1, at("172.18.0.9"), 8), 262U);
}

TEST(CustomersTest, AreKnownByPortEndAndKeyTogether) {
  EXPECT_EQ(some().find(0, at("172.17.0.1"), {}), 0U);
  EXPECT_EQ(some().find(2, at("172.17.0.4"), {}), 0U);
  EXPECT_EQ(some().find(1, at("172.17.1.0"), {}), 0U);
  EXPECT_EQ(some().find(1, at("172.17.0.1"), 7), 0U);
  EXPECT_EQ(some().find(1, at("172.18.0.9"), {}), 0U);
  EXPECT_EQ(some().find(1, at("172.18.0.9"), 9), 0U);
  EXPECT_EQ(Customers{}.find(0, at("172.17.0.1"), {}), 0U);
}

TEST(CustomersTest, AreFoundByTheirTunnels) {
  for (Zone number = 1; number <= some().size(); ++number) {
    const auto access = some().access_of(number);
    ASSERT_TRUE(access) << number;
    EXPECT_EQ(access->vlan, 0U);
    EXPECT_EQ(some().find(access->link, access->end, access->key), number);
  }
  EXPECT_FALSE(some().access_of(0));
  EXPECT_FALSE(some().access_of(263));
  EXPECT_FALSE(Customers{}.access_of(1));
}

TEST(CustomersTest, HaveNames) {
  using Range = std::optional<std::pair<Zone, Zone>>;
  EXPECT_EQ(some().name_of(3), "172.17.0.2");
  EXPECT_EQ(some().name_of(257), "c17");
  EXPECT_EQ(some().name_of(999), "customer 999");
  EXPECT_EQ(some().named("c18"), (Range{{262, 263}}));
  EXPECT_EQ(some().named("172.17.0.0/24"), (Range{{1, 257}}));
  EXPECT_EQ(some().named("172.17.0.2"), (Range{{3, 4}}));
  EXPECT_EQ(some().named("172.18.0.9"), Range{}) << "he has a name";
  EXPECT_EQ(some().named("c19"), Range{});
}

TEST(CustomersTest, MayBeInVlans) {
  EXPECT_EQ(in_vlans().size(), 100U + 4 + 1 + 1 + 16);
  EXPECT_EQ(in_vlans().find(2, 100), 1U);
  EXPECT_EQ(in_vlans().find(2, 199), 100U);
  EXPECT_EQ(in_vlans().find(2, 17), 105U);
  EXPECT_EQ(in_vlans().find(3, 100), 106U);
  EXPECT_EQ(in_vlans().find(2, 16), 122U);
  for (const unsigned vlan : {0U, 18U, 99U, 200U, kMostVlan, kVlans - 1, kVlans, 0xffffffffU})
    EXPECT_EQ(in_vlans().find(2, vlan), 0U) << vlan;
  EXPECT_EQ(in_vlans().find(1, 100), 0U);
  EXPECT_EQ(in_vlans().find(9, 100), 0U);
  EXPECT_FALSE(in_vlans().has_vlans(1));
  EXPECT_TRUE(in_vlans().has_vlans(2));
  EXPECT_EQ(in_vlans().find(2, at("0.0.0.0"), {}), 0U) << "no tunnel";
  EXPECT_EQ(in_vlans().find(1, at("172.17.0.1"), {}), 102U);
  for (Zone number = 1; number <= in_vlans().size(); ++number) {
    const auto access = in_vlans().access_of(number);
    ASSERT_TRUE(access) << number;
    EXPECT_EQ(access->vlan == 0 ? in_vlans().find(access->link, access->end, access->key)
                                : in_vlans().find(access->link, access->vlan),
              number);
  }
}

TEST(CustomersTest, InVlansAreNamedByPortAndVlan) {
  using Range = std::optional<std::pair<Zone, Zone>>;
  EXPECT_EQ(in_vlans().name_of(2), "access.101");
  EXPECT_EQ(in_vlans().name_of(105), "c17");
  EXPECT_EQ(in_vlans().name_of(106), "access.100.100");
  EXPECT_EQ(in_vlans().named("access.101"), (Range{{2, 3}}));
  EXPECT_EQ(in_vlans().named("access.100-199"), (Range{{1, 101}}));
  EXPECT_EQ(in_vlans().named("access.16"), (Range{{122, 123}}));
  EXPECT_EQ(in_vlans().named("access.100.100"), (Range{{106, 107}}));
  EXPECT_EQ(in_vlans().named("c17"), (Range{{105, 106}}));
  EXPECT_EQ(in_vlans().named("172.17.0.1"), (Range{{102, 103}}));
  for (const char* name : {"access.17", "access.200", "access.", "access", "access.101x", "101",
                           "access.-1", "access.100-198", "access.0"})
    EXPECT_EQ(in_vlans().named(name), Range{}) << name;
}

}  // namespace
}  // namespace millrace
