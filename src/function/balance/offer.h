// The offer that a load balancer sends to the process that takes over: services with their
// backends, marks of backends, and which services have served packets without entries lately.
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
  unhealthy,  ///< set by the command `/health`, as a health check gives it
};
/// For each mark, the backends that have it: pairs of a service's and a backend's name.
using Marked = std::array<std::set<std::pair<std::string, std::string>>, 2>;

struct BalanceOffer {
  /// Services that are configured or still drain, with all backends that may have connections.
  Services services;
  std::set<std::string> overflowed;  ///< services that have served packets without entries lately
  Marked marked;
};

/// The member that every offer of a load balancer has. Without it the process before had none.
inline constexpr const char* kOfferedServices = "services";

/// Adds the offer to an object, as members.
void append(Json& to, const BalanceOffer& offer);
/// Reads an offer. Errors (failed): the object has no such members.
Result<BalanceOffer> balance_offer_from(const Json& json);

/// Adds the names of overflowed services to the object that is sent last.
void append_overflowed(Json& to, const std::set<std::string>& services);
/// Returns the names in that object; none if it has no such member.
std::set<std::string> overflowed_from(const Json& json);

/// Returns `own`, and besides the services and backends of the offer, which get no new connections:
/// so every connection of the process before has a place.
Services with_those_of(const BalanceOffer& offer, Services own);

}  // namespace millrace
