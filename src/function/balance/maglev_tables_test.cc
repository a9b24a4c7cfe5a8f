#include "function/balance/maglev_tables.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "function/balance/test_line.h"

namespace millrace {
namespace {

MaglevTable::Members members(std::uint64_t first, std::uint32_t weight = 1) {
  return {{.offset = first, .skip = 7 * first, .weight = 1},
          {.offset = first + 100, .skip = 3 * first + 1, .weight = weight}};
}

/// A table size that is above the limit up to which tables are made at once.
constexpr std::uint32_t kLarge = 4'194'371;
static_assert(kLarge > MaglevTables::kAtOnceEntries);

const Maglev* wait_for(MaglevTables& tables, const std::shared_ptr<MaglevTable>& table) {
  const Maglev* made = nullptr;
  while ((made = tables.want(table)) == nullptr) std::this_thread::yield();
  return made;
}

TEST(MaglevTables, EqualMembersShareOneTable) {
  MaglevTables tables(251, 0);
  const auto one = tables.of(members(1));
  EXPECT_EQ(tables.of(members(1)), one);
  EXPECT_NE(tables.of(members(2)), one);
  EXPECT_NE(tables.of(members(1, 2)), one) << "a weight differs";
  EXPECT_EQ(tables.statistics().tables, 1U) << "the other tables are no longer used";
}

TEST(MaglevTables, FewAreMadeAtOnceAndMoreWhenTheyAreWanted) {
  MaglevTables tables(65537, 0);
  std::vector<std::shared_ptr<MaglevTable>> all;
  for (std::uint64_t i = 0; i < 70; ++i) all.push_back(tables.of(members(1000 * i)));
  EXPECT_EQ(tables.statistics().made, 64U);
  EXPECT_EQ(tables.statistics().memory_bytes, 64U * 65537 * 2);
  EXPECT_EQ(all[69]->made(), nullptr);
  EXPECT_NE(tables.want(all[69]), nullptr) << "without threads, the caller makes the table";
  EXPECT_EQ(tables.statistics().made, 65U);
}

TEST(MaglevTables, ThreadsMakeWhatIsWanted) {
  MaglevTables tables(kLarge, 2);
  const auto all = {tables.of(members(1)), tables.of(members(2)), tables.of(members(3))};
  EXPECT_EQ(tables.statistics().made, 0U);
  for (const auto& table : all) EXPECT_EQ(tables.want(table), nullptr);
  for (const auto& table : all) {
    const Maglev* const made = wait_for(tables, table);
    const Maglev right = Maglev::build(table->members(), kLarge);
    EXPECT_TRUE(std::ranges::equal(made->entries(), right.entries()));
  }
}

TEST(MaglevTables, EndWhileSomeAreWanted) {
  for (int i = 0; i < 3; ++i) {
    MaglevTables tables(kLarge, 1);
    for (std::uint64_t n = 0; n < 3; ++n) tables.want(tables.of(members(n)));
  }
}

template <class K>
class WaitingTest : public TestServices<K> {};
using Families = testing::Types<KeyV4, KeyV6>;
TYPED_TEST_SUITE(WaitingTest, Families);

/// New connections get a backend and keep it. Packets whose backend only the table can tell get the
/// verdict `not_ready`.
TYPED_TEST(WaitingTest, WhileAServicesTableIsMade) {
  using Line = BalanceLine<TypeParam>;
  typename TestFixture::Spec spec{.address = Line::host('v'), .port = 80};
  for (const char name : {'a', 'b', 'c'}) spec.backends.push_back({.address = Line::host(name)});
  spec.backends[2].weight = 0;
  auto config = TestFixture::config({spec});
  config.maglev_table_size = kLarge;
  config.maglev_threads = 1;
  Line line(config);
  const auto from = [](int port) { return "x:" + std::to_string(port); };
  // Returns true if the packet gets `not_ready`, or if the table was made meanwhile.
  const auto waits = [&](const typename Line::Packet& packet) {
    const Verdict verdict = line.send(packet).verdict;
    return verdict == Verdict::not_ready ||
           line.balance().plan()->template family<TypeParam>().services[0]->maglev->made();
  };
  EXPECT_EQ(line.send({from(1), "v:80", Line::kTcp, Line::kAck}).verdict, Verdict::not_ready);
  EXPECT_TRUE(waits({"a:80", from(1), Line::kTcp, Line::kAck}));
  line.full = true;
  EXPECT_TRUE(waits({from(1), "v:80"}));
  line.full = false;
  line.at(1'000'000);
  const auto first = line.send({from(2), "v:80"});
  EXPECT_EQ(first.verdict, Verdict::tracked);
  EXPECT_TRUE(first.to == "a:80" || first.to == "b:80") << first.to;
  int port = 3;
  while (line.send({from(port), "v:80", Line::kTcp, Line::kAck}).verdict == Verdict::not_ready) {
    ++port;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // there are 65,535 ports to try
  }
  EXPECT_EQ(line.send({from(2), "v:80"}).to, first.to) << "the connection has an entry";
}

}  // namespace
}  // namespace millrace
