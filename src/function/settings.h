// What a configuration says for one function, as the rest of the program knows it: no more than
// what other parts of it depend on.
//
// A kind of function (kind.h) derives its own settings from `FunctionSettings`, and its reader
// (reader.h) makes them; what it does not say is as where the function depends on nothing. They
// never change, so any thread may read them; a reload makes others.
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

/// What stands in the file beside a function's own keys.
struct Surroundings {
  const HostAddresses<AddressV4>& v4;  ///< own addresses and routes
  const HostAddresses<AddressV6>& v6;
  std::vector<bool> has_kernel;  ///< by link: the kernel has an interface there, too

  template <class A>
  const auto& family() const {
    return of_family<A>(v4, v6);
  }
  /// False: packets come from a capture, where nothing is on a link.
  bool is_live() const { return !has_kernel.empty(); }
};

/// What holds for each function of a run, from the rest of the file and from the command line.
struct FunctionRun {
  unsigned workers = 1;
  bool shares_tables = false;        ///< the workers use the same connection tables
  bool stateless_when_full = true;   ///< packets that find no place may be served without an entry
  std::uint32_t quiet_ms = 600'000;  ///< a connection that was idle for less may still go on
  unsigned helpers = 0;              ///< threads that may be started beside the workers
  /// What the process before has told (`FunctionDeployment::tell_first`); null: there is none.
  const Json* offered = nullptr;
};

struct FunctionFacts {
  struct Count {
    std::string_view what;  ///< in the singular: "service"
    std::size_t count = 0;
  };
  /// What a reload reports; the first, if there is one, is what `run --check` says.
  std::vector<Count> counts;
  std::string_view missing;  ///< what the file lacks for a live run; empty: nothing
  std::string_view
      counts_nothing;  ///< why, and what would be right; empty: connections are tracked
  /// By this key packets that concern no function are dropped; empty: they go on.
  std::string_view drops_unmatched;
  bool has_replies = false;  ///< replies find their connection by other addresses than requests
};

class FunctionSettings {
 public:
  virtual ~FunctionSettings() = default;

  virtual const FunctionKind& kind() const = 0;
  virtual FunctionFacts facts() const { return {}; }
  /// Returns the keys that differ in `is`, of the same kind, and cannot change in a run.
  virtual std::vector<std::string> unchangeable(const FunctionSettings& /*is*/) const { return {}; }
  /// Appends warnings, a line each, about what is allowed and hardly wanted.
  virtual void append_doubts(const Surroundings&, std::vector<std::string>& /*all*/) const {}
  /// Adds what hosts must know: addresses that are served, and where packets go.
  virtual void tell(HostAddresses<AddressV4>&, HostAddresses<AddressV6>&) const {}
};

}  // namespace millrace
