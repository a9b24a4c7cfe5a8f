// What a process that takes over is told before connections come.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "core/address.h"
#include "core/mac.h"
#include "function/balance/service.h"
#include "port/kernel_interface.h"

namespace millrace {

/// Why a backend gets no new connections, beside its weight.
enum class Mark : std::uint8_t {
  drained,    ///< somebody wants it so
  unhealthy,  ///< it does not answer
};
/// Backends of services, by name, by mark.
using Marked = std::array<std::set<std::pair<std::string, std::string>>, 2>;

struct Offer {
  unsigned number = 0;  ///< by which the rest is asked for
  /// Those that serve, and those that still drain, with all backends that may have connections.
  Services services;
  std::set<std::string> overflowed;  ///< names of those that served packets without entries lately
  Marked marked;

  struct Neighbour {
    std::string device;
    AnyAddress address;
    Mac mac;
    friend auto operator<=>(const Neighbour&, const Neighbour&) = default;
  };
  std::set<Neighbour> neighbours;

  /// Of each interface of the kernel's that it has, or has made. Whoever ends last restores what
  /// was set before the first began.
  InterfaceSettings to_restore;
};

}  // namespace millrace
