// The data that a process which takes over receives before the connections.
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
  unsigned number = 0;  ///< identifies the hand-over in later requests
  /// The function's first state (`FunctionDeployment::tell_first`): members of a JSON object.
  Json function = Json::object();

  /// The state of a server of a pair, in which the new process goes on.
  bool is_active = false;
  bool has_settled = false;
  bool is_sure = false;  ///< `PairSettings::is_sure`

  struct Neighbour {
    std::string device;
    unsigned vlan = 0;  ///< the link's, or the customer's there; 0: none
    AnyAddress address;
    Mac mac;
    friend auto operator<=>(const Neighbour&, const Neighbour&) = default;
  };
  std::set<Neighbour> neighbours;

  /// Former settings of each kernel interface that the running process uses or has made. Of the
  /// processes that take over from one another, the last restores what was set before the first
  /// began.
  InterfaceSettings to_restore;
};

}  // namespace millrace
