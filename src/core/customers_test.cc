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
    const auto tunnel = some().tunnel_of(number);
    ASSERT_TRUE(tunnel) << number;
    EXPECT_EQ(some().find(tunnel->link, tunnel->end, tunnel->key), number);
  }
  EXPECT_FALSE(some().tunnel_of(0));
  EXPECT_FALSE(some().tunnel_of(263));
  EXPECT_FALSE(Customers{}.tunnel_of(1));
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

}  // namespace
}  // namespace millrace
