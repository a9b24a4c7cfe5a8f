// Reads the ends of a [[nat.forward]].
#pragma once

#include <optional>

#include "function/nat/forwards.h"
#include "toml/keys.h"

namespace millrace::config {

/// Reads "198.51.100.1:8443/tcp", or an address alone.
std::optional<NatForward> public_end(Problems& problems, const Text& text);
/// Reads "10.0.0.5:443", or an address alone: the port is then the public one.
bool take_inside(Problems& problems, const Text& text, NatForward& forward);

}  // namespace millrace::config
