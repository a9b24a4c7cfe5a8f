// Reads the part of a configuration that only `millrace run` needs: ports, routes, the host.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "config/tunnels.h"
#include "toml/keys.h"

namespace millrace::config {

struct RawNeighbour {
  std::uint32_t line = 0;
  Located<std::string> address;
  Located<std::string> mac;
};

struct RawPort {
  std::uint32_t line = 0;
  Located<std::string> name;
  Located<std::string> device;
  std::vector<Located<std::string>> addresses;
  std::vector<RawNeighbour> neighbours;
  unsigned vlan = 0;
  std::uint32_t vlan_line = 0;  ///< 0: the port has no key `vlan`
  unsigned mtu = 0;
  std::uint16_t mss = 0;  ///< `HostLink::mss`
  Located<std::string> kernel;
  ReversePath reverse_path = ReversePath::off;
  RawTunnels tunnels;
};

struct RawRoute {
  std::uint32_t line = 0;
  Located<std::string> prefix;
  Located<std::string> via;
  Located<std::string> port;
};

Keys<RawPort> port_keys();
Keys<RawRoute> route_keys();
Keys<Config::Live> host_keys();

/// Checks ports and routes together, and stores them in `live`.
void read_live(Problems& problems, const std::vector<RawPort>& ports,
               const std::vector<RawRoute>& routes, Config::Live& live);

}  // namespace millrace::config
