// What a load balancer tells the process that takes over: services with their backends, marks, and
// which services served packets without entries lately.
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

/// Why a backend gets no new connections, beside its weight.
enum class Mark : std::uint8_t {
  drained,    ///< somebody wants it so
  unhealthy,  ///< it does not answer
};
/// Backends of services, by name, by mark.
using Marked = std::array<std::set<std::pair<std::string, std::string>>, 2>;

struct BalanceOffer {
  /// Those that serve, and those that still drain, with all backends that may have connections.
  Services services;
  std::set<std::string> overflowed;  ///< names of those that served packets without entries lately
  Marked marked;
};

/// The member that every offer of a load balancer has. Without it the other process had none.
inline constexpr const char* kOfferedServices = "services";

/// Adds it to an object, as members.
void append(Json& to, const BalanceOffer& offer);
/// Error (failed): it is no offer.
Result<BalanceOffer> balance_offer_from(const Json& json);

/// Adds the names of services to what is said at the end.
void append_overflowed(Json& to, const std::set<std::string>& services);
/// Returns the names in that; none where there are none.
std::set<std::string> overflowed_from(const Json& json);

/// The services that workers are made for, so that they have a place for every connection: beside
/// their `own` those of the other process, which get nothing new.
Services with_those_of(const BalanceOffer& offer, Services own);

}  // namespace millrace
