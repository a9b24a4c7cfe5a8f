// The links that devices carry. A *link* is a port of the configuration; a *device* has one link
// whose frames have no tag, or several, each but one in a VLAN of its own.
//
// Never changes; any thread may use it. Links are numbered as they were given, devices in the order
// of their first links.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/burst.h"
#include "core/vlan_tag.h"
#include "port/device_name.h"

namespace millrace {

struct LinkSettings {
  DeviceName device;
  unsigned mtu = 0;   ///< 0: the kernel interface's MTU; 1500 for other devices
  unsigned vlan = 0;  ///< 0: the link's frames have no tag
  /// The link has the frames of all VLANs that no other link of the device has, with their tags.
  /// `vlan` is 0, and the link has no frames without a tag. One link of a device at most.
  bool takes_other_vlans = false;
};

class LinkMap {
 public:
  /// Number of links, at most: `Burst::link` holds a link's number, `kNoLink`, and one more value
  /// that functions use.
  static constexpr unsigned kMost = kNoLink - 1;

  LinkMap() = default;
  /// Makes a map of at most `kMost` links. Links with equal names of devices share the device,
  /// except devices without a target (`null`, `ring`). No two links of a device may have the same
  /// `vlan`.
  explicit LinkMap(std::span<const LinkSettings> links);

  unsigned links() const { return static_cast<unsigned>(links_.size()); }
  unsigned devices() const { return static_cast<unsigned>(devices_.size()); }
  unsigned device_of(unsigned link) const { return links_[link].device; }
  unsigned vlan_of(unsigned link) const { return links_[link].vlan; }

  unsigned first_link(unsigned device) const { return devices_[device].first_link; }
  /// False if the device has one link, whose frames have no tags.
  bool has_vlans(unsigned device) const { return !devices_[device].by_vlan.empty(); }
  /// Returns the link of the frames of a VLAN (0: those without a tag) on a device that has VLANs;
  /// `kNoLink` if there is none. The frames keep their tags if `vlan_of(link)` is 0.
  std::uint8_t link_of(unsigned device, unsigned vlan) const {
    return devices_[device].by_vlan[vlan];
  }

 private:
  struct Link {
    unsigned device;
    unsigned vlan;
  };
  struct Device {
    DeviceName name;
    unsigned first_link;
    std::vector<std::uint8_t> by_vlan;  // `kVlans` numbers of links; empty: no VLANs
  };

  std::vector<Link> links_;
  std::vector<Device> devices_;
};

}  // namespace millrace
