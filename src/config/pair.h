// Reads `[pair]`: two servers that have each other's connections.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "toml/keys.h"

namespace millrace::config {

struct RawPair {
  std::uint32_t line = 0;  ///< 0: the file has no table `pair`
  unsigned number = 0;
  Text other;
  std::uint16_t port = PairSettingsOfFile::kPort;
  Text key_file;
  std::vector<Text> addresses;
};

Keys<RawPair> pair_keys();

/// Checks the table together with the addresses in `config`, and with what cannot go with a pair;
/// stores it there. To be called after ports were read.
void read_pair(Problems& problems, const RawPair& raw, Config& config);

}  // namespace millrace::config
