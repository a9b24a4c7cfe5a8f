// `sharded`: every worker has tables of its own, and a packet goes to the worker that owns its
// connection. Nothing is shared, so nothing is guarded.
#pragma once

#include <string_view>

#include "conntrack/sharing/alone.h"

namespace millrace {

struct Sharded {
  static constexpr std::string_view kName = "sharded";
  static constexpr std::string_view kSummary = "one table a worker, nothing shared; the default";
  using Guards = Alone;
  template <class Table>
  using Form = Table;
  static Guards create() { return {}; }
};

}  // namespace millrace
