// Reads `[pair]` and `[cluster]`: other servers that have this one's connections.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "toml/keys.h"

namespace millrace::config {

struct RawServers {
  std::string_view table;  ///< "pair" or "cluster"; empty: the file has neither
  std::uint32_t line = 0;
  bool has_both = false;
  unsigned number = 0;
  Text other;    ///< the other server's address, in a pair
  Text address;  ///< this server's, in a cluster
  std::uint16_t port = OtherServers::kPort;
  Text key_file;
  unsigned defer_ms = 0;
  std::vector<Text> addresses;
};

Keys<RawServers> pair_keys();
Keys<RawServers> cluster_keys();

/// Checks the table together with the addresses in `config`, and with what cannot go with it;
/// stores it there. To be called after ports were read.
void read_servers(Problems& problems, const RawServers& raw, Config& config);

}  // namespace millrace::config
