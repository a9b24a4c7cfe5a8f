#include "core/destination_table.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/address.h"
#include "core/sanitizers.h"

namespace millrace {
namespace {

template <class A>
class Table {
 public:
  /// Adds a destination. `port` and `protocol` are 0 for any.
  void add(const std::string& address, unsigned bits, std::uint16_t port, std::uint8_t protocol) {
    all_.push_back({*parse_address<A>(address), bits, port, protocol});
  }
  void build() { table_.build(all_); }
  std::string find(const std::string& address, std::uint16_t port, std::uint8_t protocol) const {
    const std::uint32_t i = table_.find(*parse_address<A>(address), port, protocol);
    return i == table_.kNone ? "none" : text(all_[i]);
  }

  /// Returns "10.0.0.0/8 port 80 protocol 6".
  static std::string text(const Destination<A>& to) {
    std::string text = to_string(to.address) + "/" + std::to_string(to.prefix_bits);
    if (to.port != 0) text += " port " + std::to_string(to.port);
    if (to.protocol != 0) text += " protocol " + std::to_string(to.protocol);
    return text;
  }

  std::vector<Destination<A>> all_;
  DestinationTable<A> table_;
};

TEST(DestinationTable, PrefixThenPortThenProtocol) {
  Table<AddressV4> t;
  t.add("0.0.0.0", 0, 0, 0);
  t.add("0.0.0.0", 0, 53, 0);
  t.add("10.0.0.0", 8, 0, 6);
  t.add("10.0.0.0", 8, 80, 0);
  t.add("10.0.0.0", 8, 443, 6);
  t.add("10.0.0.0", 8, 443, 0);
  t.add("10.2.0.0", 15, 0, 0);
  t.build();
  EXPECT_EQ(t.find("10.3.2.3", 80, 6), "10.2.0.0/15");
  EXPECT_EQ(t.find("10.1.2.3", 80, 6), "10.0.0.0/8 port 80");
  EXPECT_EQ(t.find("10.1.2.3", 80, 17), "10.0.0.0/8 port 80");
  EXPECT_EQ(t.find("10.1.2.3", 443, 6), "10.0.0.0/8 port 443 protocol 6");
  EXPECT_EQ(t.find("10.1.2.3", 443, 17), "10.0.0.0/8 port 443");
  EXPECT_EQ(t.find("10.1.2.3", 22, 6), "10.0.0.0/8 protocol 6");
  EXPECT_EQ(t.find("10.1.2.3", 22, 17), "0.0.0.0/0");
  EXPECT_EQ(t.find("11.1.2.3", 53, 17), "0.0.0.0/0 port 53");
  EXPECT_EQ(t.find("11.1.2.3", 0, 1), "0.0.0.0/0");
  EXPECT_FALSE(t.table_.only_catch_all());
}

TEST(DestinationTable, Ipv6PrefixesAcrossWords) {
  Table<AddressV6> t;
  t.add("2001:db8::", 32, 0, 0);
  t.add("2001:db8:0:0:8000::", 65, 0, 0);
  t.add("2001:db8::1", 128, 443, 6);
  t.build();
  EXPECT_EQ(t.find("2001:db8::1", 443, 6), "2001:db8::1/128 port 443 protocol 6");
  EXPECT_EQ(t.find("2001:db8::1", 443, 17), "2001:db8::/32");
  EXPECT_EQ(t.find("2001:db8::8000:0:0:0", 443, 17), "2001:db8:0:0:8000::/65");
  EXPECT_EQ(t.find("2001:db9::1", 443, 6), "none");
}

TEST(DestinationTable, EmptyAndCatchAll) {
  Table<AddressV4> t;
  t.build();
  EXPECT_TRUE(t.table_.empty());
  EXPECT_EQ(t.find("10.0.0.1", 1, 6), "none");
  t.add("0.0.0.0", 0, 0, 0);
  t.build();
  EXPECT_TRUE(t.table_.only_catch_all());
  EXPECT_EQ(t.find("10.0.0.1", 1, 6), "0.0.0.0/0");
}

// Expects what a linear search for the most specific destination of the packet finds.
TEST(DestinationTable, ThousandsAgreeWithALinearSearch) {
  const int prefixes = kSanitized ? 300 : 3000;
  std::mt19937 random(7);
  const auto address = [&] {
    AddressV4 a;
    for (auto& byte : a.bytes) byte = static_cast<std::uint8_t>(random() % 4);
    return a;
  };
  std::vector<Destination<AddressV4>> distinct;
  std::set<Destination<AddressV4>> seen;
  for (int i = 0; i < prefixes; ++i) {
    const auto bits = static_cast<unsigned>(random() % 33);
    const Destination<AddressV4> one{prefix_of(address(), bits), bits,
                                     static_cast<std::uint16_t>(random() % 3),
                                     static_cast<std::uint8_t>(random() % 3)};
    if (seen.insert(one).second) distinct.push_back(one);
  }
  DestinationTable<AddressV4> table;
  table.build(distinct);
  const auto rank = [](const Destination<AddressV4>& s) {
    return std::tuple(s.prefix_bits, s.port != 0, s.protocol != 0);
  };
  int hits = 0;
  for (int n = 0; n < 6 * prefixes; ++n) {
    const AddressV4 a = address();
    const auto port = static_cast<std::uint16_t>(random() % 4);
    const auto protocol = static_cast<std::uint8_t>(random() % 4);
    std::uint32_t best = table.kNone;
    for (std::uint32_t i = 0; i < distinct.size(); ++i) {
      const auto& s = distinct[i];
      const bool matches = prefix_of(a, s.prefix_bits) == s.address &&
                           (s.port == 0 || s.port == port) &&
                           (s.protocol == 0 || s.protocol == protocol);
      if (matches && (best == table.kNone || rank(s) > rank(distinct[best]))) best = i;
    }
    ASSERT_EQ(table.find(a, port, protocol), best);
    hits += best != table.kNone ? 1 : 0;
  }
  EXPECT_GT(hits, prefixes / 3);
}

}  // namespace
}  // namespace millrace
