#include "port/receive_side_scaling.h"

#include <unistd.h>

namespace millrace {

ReceiveSideScaling::ReceiveSideScaling() {
  // 256 bytes is the most that getentropy gives in one call.
  if (::getentropy(key_.data(), key_.size()) != 0) __builtin_trap();
}

void ReceiveSideScaling::add_to(rte_eth_conf& conf, const rte_eth_dev_info& device,
                                unsigned queues) {
  const std::uint64_t can =
      device.flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP);
  if (queues < 2 || can == 0) return;
  conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
  conf.rx_adv_conf.rss_conf = {.rss_key = device.hash_key_size == 0 ? nullptr : key_.data(),
                               .rss_key_len = device.hash_key_size,
                               .rss_hf = can};
}

}  // namespace millrace
