// Tests that each plan keeps ids and services of the previous plan.
#include "function/balance/plan.h"

#include <gtest/gtest.h>

#include <vector>

#include "function/balance/test_line.h"

namespace millrace {
namespace {

template <class K>
class PlanTest : public TestServices<K> {
 public:
  using Spec = typename TestServices<K>::Spec;
  using Plan = PlanFor<K>;

  static std::vector<Spec> specs() {
    std::vector<Spec> all;
    for (const char name : {'u', 'v', 'w'}) {
      all.push_back({.address = TestLine<K>::host(name), .port = 80});
      for (const char backend : {'a', 'b'})
        all.back().backends.push_back({.address = TestLine<K>::host(backend)});
    }
    return all;
  }
  static Plan first() {
    const PlanSettings settings{.hash = balance_hasher(kDefaultBalanceKey),
                                .maglev = std::make_shared<MaglevTables>(251, 0)};
    return Plan(settings).next(specs(), nobody);
  }
  static std::uint64_t nobody(std::uint16_t) { return 0; }
  static std::uint64_t somebody(std::uint16_t) { return 1; }
};
using Families = testing::Types<KeyV4, KeyV6>;
TYPED_TEST_SUITE(PlanTest, Families);

TYPED_TEST(PlanTest, WhatHasNotChangedIsTheSame) {
  const auto plan = TestFixture::first();
  EXPECT_EQ(plan.changed, (std::vector<std::uint32_t>{0, 1, 2}));
  EXPECT_EQ(plan.services[0]->maglev, plan.services[1]->maglev) << "equal backends share a table";
  const auto same = plan.next(TestFixture::specs(), TestFixture::nobody);
  EXPECT_EQ(same.services, plan.services);
  EXPECT_TRUE(same.changed.empty());
  EXPECT_EQ(same.index, plan.index);

  auto specs = TestFixture::specs();
  specs[1].backends[0].is_healthy = false;
  const auto unhealthy = plan.next(specs, TestFixture::nobody);
  EXPECT_EQ(unhealthy.changed, (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(unhealthy.services[0], plan.services[0]);
  EXPECT_EQ(unhealthy.services[2], plan.services[2]);
  EXPECT_EQ(unhealthy.services[1]->willing, 1U);
  EXPECT_EQ(unhealthy.index, plan.index) << "the tables find the same services and backends";
  EXPECT_TRUE(unhealthy.check_invariants().has_value());
}

TYPED_TEST(PlanTest, ServicesMayChangePlaces) {
  const auto plan = TestFixture::first();
  auto specs = TestFixture::specs();
  std::swap(specs[0], specs[2]);
  const auto other = plan.next(specs, TestFixture::nobody);
  EXPECT_TRUE(other.changed.empty());
  EXPECT_EQ(other.services[0], plan.services[2]);
  for (const auto& spec : specs) {
    const TypeParam key{.destination = spec.address, .destination_port = 80, .protocol = 6};
    ASSERT_NE(other.service_for(key), nullptr);
    EXPECT_EQ(other.service_for(key)->spec, spec);
  }
}

TYPED_TEST(PlanTest, RemovedServicesStayAsLongAsTheyAreUsed) {
  const auto plan = TestFixture::first();
  auto specs = TestFixture::specs();
  specs.erase(specs.begin());
  const auto used = plan.next(specs, TestFixture::somebody);
  ASSERT_EQ(used.services.size(), 3U);
  EXPECT_TRUE(used.services[2]->removed);
  EXPECT_FALSE(used.forgets(TestFixture::somebody));
  EXPECT_TRUE(used.forgets(TestFixture::nobody));
  const auto same = used.next(specs, TestFixture::somebody);
  EXPECT_EQ(same.services, used.services);
  const auto unused = used.next(specs, TestFixture::nobody);
  EXPECT_EQ(unused.services.size(), 2U);
  EXPECT_EQ(unused.free_ids.size(), 2U);
  EXPECT_TRUE(unused.check_invariants().has_value());
}

}  // namespace
}  // namespace millrace
