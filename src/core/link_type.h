// Link types: the header with which the bytes of a packet begin.
#pragma once

#include <cstdint>

namespace millrace {

enum class LinkType : std::uint8_t {
  ethernet,       ///< Ethernet II, 802.3 with LLC/SNAP
  raw_ip,         ///< an IP header of either family
  linux_cooked,   ///< Linux "any" device, LINKTYPE_LINUX_SLL
  linux_cooked2,  ///< second version of `linux_cooked`, LINKTYPE_LINUX_SLL2
};

}  // namespace millrace
