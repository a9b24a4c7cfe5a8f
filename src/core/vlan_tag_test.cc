#include "core/vlan_tag.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <span>
#include <vector>

namespace millrace {
namespace {

using Bytes = std::vector<std::byte>;

/// Returns a frame whose bytes behind the MACs, which are 1 to 12, are given.
Bytes frame(std::initializer_list<unsigned> behind_macs) {
  Bytes bytes;
  for (unsigned n = 1; n <= 12; ++n) bytes.push_back(std::byte(n));
  for (const unsigned one : behind_macs) bytes.push_back(std::byte(one));
  return bytes;
}

TEST(VlanTag, IsReadFromTheFirstTag) {
  EXPECT_EQ(vlan_of(frame({0x81, 0, 0, 100, 8, 0})), 100U);
  EXPECT_EQ(vlan_of(frame({0x81, 0, 0xef, 0xfe, 8, 0})), 0xffeU) << "not the priority";
  EXPECT_EQ(vlan_of(frame({0x81, 0, 0, 100, 0x81, 0, 0, 7, 8, 0})), 100U);
  EXPECT_EQ(vlan_of(frame({0x81, 0, 0, 0, 0x81, 0, 0, 7, 8, 0})), 0U);
  EXPECT_EQ(vlan_of(frame({0x81, 0, 0xe0, 0, 8, 0})), 0U);
  EXPECT_EQ(vlan_of(frame({0x88, 0xa8, 0, 100, 8, 0})), 0U) << "a provider's tag";
  EXPECT_EQ(vlan_of(frame({0x91, 0, 0, 100, 8, 0})), 0U);
  EXPECT_EQ(vlan_of(frame({8, 0, 0x45, 0})), 0U);
}

TEST(VlanTag, OfAShortFrameIsNotRead) {
  const Bytes whole = frame({0x81, 0, 0, 100});
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_EQ(vlan_of(cut), size == whole.size() ? 100U : 0U) << size;
  }
}

TEST(VlanTag, IsPutOnAndTakenOff) {
  const Bytes untagged = frame({8, 0, 0x45, 0x11});
  Bytes bytes(kVlanTagBytes);
  bytes.insert(bytes.end(), untagged.begin(), untagged.end());
  put_tag(bytes.data(), 0xabc);
  EXPECT_EQ(bytes, frame({0x81, 0, 0x0a, 0xbc, 8, 0, 0x45, 0x11}));
  EXPECT_EQ(vlan_of(bytes), 0xabcU);
  take_tag(bytes.data());
  EXPECT_TRUE(std::ranges::equal(std::span(bytes).subspan(kVlanTagBytes), untagged));
}

}  // namespace
}  // namespace millrace
