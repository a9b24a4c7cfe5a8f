#include "port/receive_side_scaling.h"

#include <gtest/gtest.h>
#include <rte_bus_vdev.h>

#include <algorithm>
#include <array>

#include "core/dpdk_eal.h"

namespace millrace {
namespace {

constexpr std::uint64_t kTcpOfIpv4 = RTE_ETH_RSS_NONFRAG_IPV4_TCP;

TEST(ReceiveSideScaling, IsForDevicesThatCanAndHaveSeveralQueues) {
  ReceiveSideScaling scaling;
  rte_eth_dev_info device{};
  device.flow_type_rss_offloads = kTcpOfIpv4 | RTE_ETH_RSS_L2_PAYLOAD;
  device.hash_key_size = 52;
  rte_eth_conf several{};
  scaling.add_to(several, device, 2);
  EXPECT_EQ(several.rxmode.mq_mode, RTE_ETH_MQ_RX_RSS);
  EXPECT_EQ(several.rx_adv_conf.rss_conf.rss_hf, kTcpOfIpv4)
      << "must hash by TCP over IPv4 alone, and not by layer 2";
  EXPECT_EQ(several.rx_adv_conf.rss_conf.rss_key_len, 52);
  EXPECT_NE(several.rx_adv_conf.rss_conf.rss_key, nullptr);

  rte_eth_conf one{};
  scaling.add_to(one, device, 1);
  EXPECT_EQ(one.rxmode.mq_mode, RTE_ETH_MQ_RX_NONE);
  device.flow_type_rss_offloads = RTE_ETH_RSS_L2_PAYLOAD;
  rte_eth_conf cannot{};
  scaling.add_to(cannot, device, 2);
  EXPECT_EQ(cannot.rxmode.mq_mode, RTE_ETH_MQ_RX_NONE);
}

TEST(ReceiveSideScaling, ADeviceKeepsTheKeyAndNamesEveryQueue) {
  constexpr const char* kName = "net_null7";
  constexpr std::uint16_t kQueues = 4;
  ASSERT_TRUE(start_dpdk_eal({}).has_value());
  ASSERT_EQ(rte_vdev_init(kName, "no-rx=1"), 0);
  std::uint16_t id = 0;
  ASSERT_EQ(rte_eth_dev_get_port_by_name(kName, &id), 0);
  rte_eth_dev_info device{};
  ASSERT_EQ(rte_eth_dev_info_get(id, &device), 0);
  rte_eth_conf conf{};
  ReceiveSideScaling scaling;
  scaling.add_to(conf, device, kQueues);
  const rte_eth_rss_conf& asked = conf.rx_adv_conf.rss_conf;
  ASSERT_EQ(rte_eth_dev_configure(id, kQueues, kQueues, &conf), 0);

  std::array<std::uint8_t, 64> key{};
  rte_eth_rss_conf is{
      .rss_key = key.data(), .rss_key_len = static_cast<std::uint8_t>(key.size()), .rss_hf = 0};
  ASSERT_EQ(rte_eth_dev_rss_hash_conf_get(id, &is), 0);
  EXPECT_EQ(is.rss_hf, asked.rss_hf);
  EXPECT_TRUE(std::equal(asked.rss_key, asked.rss_key + asked.rss_key_len, key.begin()));
  ASSERT_EQ(rte_vdev_uninit(kName), 0);
}

}  // namespace
}  // namespace millrace
