// The offer that a load balancer sends to the process that takes over: services with their
// backends, marks of backends, and the names of services that may have served packets without
// entries lately.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "core/json_fwd.h"
#include "function/balance/service.h"
#include "millrace/types.h"

namespace millrace {

/// A mark: a reason, other than its weight, why a backend gets no new connections.
enum class Mark : std::uint8_t {
  drained,    ///< set by the command `/drain`
  unhealthy,  ///< set by the command `/health`, with the result of a health check
};
/// For each mark, the backends that have it: pairs of a service's and a backend's name.
using Marked = std::array<std::set<std::pair<std::string, std::string>>, 2>;

struct BalanceOffer {
  /// Services that are configured or still drain, with all backends that may have connections.
  Services services;
  /// Names of services that may have served packets without entries lately.
  std::set<std::string> overflowed;
  Marked marked;
};

/// Name of the member that every offer of a load balancer has. An object without this member comes
/// from a process that had no load balancer.
inline constexpr const char* kOfferedServices = "services";

/// Adds the offer to an object, as members.
void append(Json& to, const BalanceOffer& offer);
/// Reads an offer. Errors (failed): members are missing or wrong.
Result<BalanceOffer> balance_offer_from(const Json& json);

/// Adds to the object that is sent last the names of services of which some worker may have served
/// packets without an entry lately.
void append_overflowed(Json& to, const std::set<std::string>& services);
/// Returns the names that `append_overflowed` has added to the object that was sent last; none if
/// it has not.
std::set<std::string> overflowed_from(const Json& json);

/// Returns `own`, with those services and backends of the offer that `own` lacks. The added
/// backends get no new connections, but every connection of the previous process finds its backend,
/// unless `own` has another `forward` for the connection's service.
Services with_those_of(const BalanceOffer& offer, Services own);

}  // namespace millrace
