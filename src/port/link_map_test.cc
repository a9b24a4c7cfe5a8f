#include "port/link_map.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace millrace {
namespace {

LinkSettings link(std::string_view device, unsigned vlan = 0) {
  return {.device = *parse_device(device), .vlan = vlan};
}

TEST(LinkMap, WithoutVlansEachLinkHasADevice) {
  const LinkMap map(
      std::vector{link("af_packet:eth0"), link("null"), link("null"), link("tap:mr0")});
  EXPECT_EQ(map.links(), 4U);
  ASSERT_EQ(map.devices(), 4U) << "devices without a name are never the same";
  for (unsigned n = 0; n < 4; ++n) {
    EXPECT_EQ(map.device_of(n), n);
    EXPECT_EQ(map.first_link(n), n);
    EXPECT_EQ(map.vlan_of(n), 0U);
    EXPECT_FALSE(map.has_vlans(n));
  }
}

TEST(LinkMap, LinksOfADeviceDifferByTheirTags) {
  const LinkMap map(std::vector{link("af_packet:eth0"), link("af_packet:eth1", 100),
                                link("af_packet:eth0", 100), link("af_packet:eth1", kMostVlan),
                                link("memif:/run/m.sock,id=1"), link("memif:/run/m.sock,id=2")});
  ASSERT_EQ(map.devices(), 4U);
  EXPECT_EQ(map.device_of(0), 0U);
  EXPECT_EQ(map.device_of(1), 1U);
  EXPECT_EQ(map.device_of(2), 0U);
  EXPECT_EQ(map.device_of(3), 1U);
  EXPECT_EQ(map.device_of(4), 2U);
  EXPECT_EQ(map.device_of(5), 3U) << "other arguments: another device";
  EXPECT_EQ(map.first_link(1), 1U);
  EXPECT_TRUE(map.has_vlans(0));
  EXPECT_FALSE(map.has_vlans(2));
  for (unsigned vlan = 0; vlan < kVlans; ++vlan) {
    EXPECT_EQ(map.link_of(0, vlan), vlan == 0 ? 0U : vlan == 100 ? 2U : kNoLink) << vlan;
    EXPECT_EQ(map.link_of(1, vlan), vlan == 100 ? 1U : vlan == kMostVlan ? 3U : kNoLink) << vlan;
  }
}

TEST(LinkMap, OneTaggedLinkMakesOtherFramesForeign) {
  const LinkMap map(std::vector{link("null", 7)});
  EXPECT_TRUE(map.has_vlans(0));
  EXPECT_EQ(map.link_of(0, 7), 0U);
  EXPECT_EQ(map.link_of(0, 0), kNoLink);
}

TEST(LinkMap, ALinkMayTakeAllOtherVlans) {
  LinkSettings others = link("af_packet:eth0");
  others.takes_other_vlans = true;
  const LinkMap map(std::vector{link("af_packet:eth1"), others, link("af_packet:eth0", 100),
                                link("af_packet:eth0")});
  ASSERT_EQ(map.devices(), 2U);
  EXPECT_FALSE(map.has_vlans(0));
  EXPECT_TRUE(map.has_vlans(1));
  EXPECT_EQ(map.vlan_of(1), 0U) << "its frames keep their tags";
  for (unsigned vlan = 0; vlan < kVlans; ++vlan)
    EXPECT_EQ(map.link_of(1, vlan), vlan == 0           ? 3U
                                    : vlan == 100       ? 2U
                                    : vlan <= kMostVlan ? 1U
                                                        : kNoLink)
        << vlan;
  const LinkMap alone(std::vector{others});
  EXPECT_EQ(alone.link_of(0, 0), kNoLink) << "frames without a tag are nobody's";
  EXPECT_EQ(alone.link_of(0, 1), 0U);
  EXPECT_EQ(alone.link_of(0, kMostVlan), 0U);
}

}  // namespace
}  // namespace millrace
