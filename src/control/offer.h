// What a process that takes over is told before connections come.
#pragma once

#include <compare>
#include <set>
#include <string>

#include "core/address.h"
#include "core/json.h"
#include "core/mac.h"
#include "port/kernel_interface.h"

namespace millrace {

struct Offer {
  unsigned number = 0;  ///< by which the rest is asked for
  /// What its function tells (`FunctionDeployment::tell_first`): members of an object.
  Json function = Json::object();

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
