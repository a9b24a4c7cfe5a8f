// The settings of a function, as far as the rest of the program depends on them.
//
// A kind of function (kind.h) derives its own settings from `FunctionSettings`, and its reader
// (reader.h) makes them. Calls that it does not override say that the function needs nothing.
// Settings never change, so any thread may read them; a reload makes new ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_fwd.h"
#include "core/of_family.h"
#include "host/host_for.h"

namespace millrace {

struct FunctionKind;

/// The parts of the file, beside a function's own keys, that functions may need.
struct Surroundings {
  const HostAddresses<AddressV4>& v4;  ///< own addresses and routes
  const HostAddresses<AddressV6>& v6;
  std::vector<bool> has_kernel;  ///< for each link: true if the kernel has an interface there, too

  template <class A>
  const auto& family() const {
    return of_family<A>(v4, v6);
  }
  /// False: packets come from a capture, and there are no links.
  bool is_live() const { return !has_kernel.empty(); }
};

/// Settings of a run for all its functions, from the rest of the file and from the command line.
struct FunctionRun {
  unsigned workers = 1;
  bool shares_tables = false;        ///< true: the workers use the same connection tables
  bool stateless_when_full = true;   ///< packets that find no place may be served without an entry
  std::uint32_t quiet_ms = 600'000;  ///< a connection that was idle for less may still go on
  unsigned helpers = 0;              ///< threads that may be started beside the workers
  /// The object of the process before (`FunctionDeployment::tell_first`); null: there is none.
  const Json* offered = nullptr;
};

/// Facts about settings that other parts of the program report or check.
struct FunctionFacts {
  struct Count {
    std::string_view what;  ///< in the singular: "service"
    std::size_t count = 0;
  };
  /// Numbers that a reload reports. `run --check` reports the first, if there is one.
  std::vector<Count> counts;
  std::string_view missing;  ///< message about what the file lacks for a live run; empty: nothing
  /// Message that says why no connections are tracked; empty: they are tracked.
  std::string_view counts_nothing;
  /// The key by which packets that no function handles are dropped; empty: such packets go on.
  std::string_view drops_unmatched;
  bool has_replies = false;  ///< true: replies come from other addresses than requests go to
};

class FunctionSettings {
 public:
  virtual ~FunctionSettings() = default;

  virtual const FunctionKind& kind() const = 0;
  virtual FunctionFacts facts() const { return {}; }
  /// Returns the keys that have other values in `is`, settings of the same kind, and that cannot
  /// change in a run.
  virtual std::vector<std::string> unchangeable(const FunctionSettings& /*is*/) const { return {}; }
  /// Appends warnings, a line each, about settings that are allowed but probably a mistake.
  virtual void append_doubts(const Surroundings&, std::vector<std::string>& /*all*/) const {}
  /// Adds the addresses that the function serves, and those that it sends packets to, for hosts.
  virtual void tell(HostAddresses<AddressV4>&, HostAddresses<AddressV6>&) const {}
};

}  // namespace millrace
