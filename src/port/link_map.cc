#include "port/link_map.h"

#include <algorithm>

namespace millrace {

LinkMap::LinkMap(std::span<const LinkSettings> links) {
  for (const LinkSettings& settings : links) {
    const auto number = static_cast<unsigned>(links_.size());
    auto device = devices_.end();
    if (!settings.device.target.empty())
      device = std::ranges::find(devices_, settings.device, &Device::name);
    if (device == devices_.end()) device = devices_.insert(device, {settings.device, number, {}});
    if (settings.vlan != 0 || settings.takes_other_vlans) device->by_vlan.assign(kVlans, kNoLink);
    links_.push_back({static_cast<unsigned>(device - devices_.begin()), settings.vlan});
  }
  for (const bool others : {true, false}) {
    for (unsigned link = 0; link < links_.size(); ++link) {
      const auto& [device, vlan] = links_[link];
      if (!has_vlans(device) || links[link].takes_other_vlans != others) continue;
      auto& by_vlan = devices_[device].by_vlan;
      const auto begin = by_vlan.begin() + (others ? 1 : vlan);
      std::fill(begin, others ? begin + kMostVlan : begin + 1, static_cast<std::uint8_t>(link));
    }
  }
}

}  // namespace millrace
