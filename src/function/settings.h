// The settings of a function, as far as the rest of the program depends on them.
//
// A kind of function (kind.h) derives its own settings from `FunctionSettings`, and its reader
// (reader.h) makes them. A derived class must define `kind`. The defaults of the other member
// functions suit a function that reports nothing, allows every change in a reload, and serves no
// addresses. Settings never change, so any thread may read them; a reload makes new settings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/customers.h"
#include "core/json_fwd.h"
#include "core/of_family.h"
#include "function/copies.h"
#include "host/host_for.h"
#include "millrace/hash.h"

namespace millrace {

struct FunctionKind;

/// The parts of the configuration file that functions may need besides their own keys.
struct Surroundings {
  const HostAddresses<AddressV4>& v4;  ///< own addresses and routes
  const HostAddresses<AddressV6>& v6;
  struct Port {
    std::string name;
    bool has_kernel = false;  ///< the kernel has an interface there, too
  };
  std::vector<Port> ports;  ///< indexed by link; empty: the file is not for a live run
  std::shared_ptr<const Customers> customers;  ///< behind tunnels; never null

  template <class A>
  const auto& family() const {
    return of_family<A>(v4, v6);
  }
  bool is_live() const { return !ports.empty(); }
};

/// Settings of a run for all its functions, from the rest of the file and from the command line.
struct FunctionRun {
  unsigned workers = 1;
  bool shares_tables = false;       ///< true: the workers use the same connection tables
  bool stateless_when_full = true;  ///< false: packets that find no place are dropped
  /// Longest idle time after which a connection without an entry may still go on.
  std::uint32_t quiet_ms = 600'000;
  /// Secret of choices that nobody outside may foresee. A replay makes it from its seed.
  Secret secret = Secret::random();
  unsigned helpers = 0;  ///< threads that may be started besides the workers
  /// True: packets come from devices. False also where a configuration is only checked.
  bool is_live = false;
  std::uint64_t capture_ms = 0;  ///< in a replay: the time of tick 0, in ms since 1970; else 0
  /// True: another function of the chain rewrites destinations.
  bool others_rewrite = false;
  Share share;
  /// The JSON object that the previous process has sent first (`FunctionDeployment::tell_first`);
  /// null: this process takes over from no other.
  const Json* offered = nullptr;
};

/// A timeout of a connection (docs/configuration.md) that has a function's own default.
struct FunctionTimeout {
  std::string_view name;
  std::uint32_t seconds = 0;
};

/// Facts about settings that other parts of the program report or check.
struct FunctionFacts {
  struct Count {
    std::string_view what;  ///< in the singular: "service", "NAT pool"
    std::size_t count = 0;
  };
  /// Numbers that `run --check` and a reload report. Functions of a chain have different ones.
  std::vector<Count> counts;
  std::string_view missing;  ///< message about what the file lacks for a live run; empty: nothing
  /// Message that says why no connections are tracked; empty: they are tracked.
  std::string_view counts_nothing;
  /// The key by which packets that no function handles are dropped; empty: such packets go on.
  std::string_view drops_unmatched;
  /// Message that says which replies do not come back here, of IPv4; empty: all do.
  std::string_view loses_replies;
  bool needs_grants = false;  ///< true: in a cluster the function gives ports by `Grants`
  bool has_replies = false;   ///< true: the function rewrites some replies
  bool guards_host = false;   ///< `Function::guards_host`
  /// Timeouts that are as long as this at least, unless the file gives them.
  std::vector<FunctionTimeout> timeouts;
};

class FunctionSettings {
 public:
  virtual ~FunctionSettings() = default;

  virtual const FunctionKind& kind() const = 0;
  virtual FunctionFacts facts() const { return {}; }
  /// Returns the keys that have other values in `is`, settings of the same kind, and that cannot
  /// change in a run.
  virtual std::vector<std::string> unchangeable(const FunctionSettings& /*is*/) const { return {}; }
  /// Returns what the settings of two servers must have in common so that each understands the
  /// other's images (`FunctionFor::write`). Empty: nothing, so a server need not even have the
  /// function.
  virtual std::string agreement() const { return {}; }
  /// Appends warnings, a line each, about settings that are allowed but probably a mistake.
  virtual void append_doubts(const Surroundings&, std::vector<std::string>& /*all*/) const {}
  /// Adds to the configuration of hosts: the addresses that the function serves, and those that it
  /// sends packets to or gets replies from.
  virtual void tell(HostAddresses<AddressV4>&, HostAddresses<AddressV6>&) const {}
};

}  // namespace millrace
