#include "function/balance/offer.h"

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <vector>

#include "core/address.h"
#include "core/json.h"
#include "function/json_reading.h"

namespace millrace {
namespace {

constexpr std::array<const char*, 2> kMarks{"drained", "unhealthy"};

template <class A>
void append_services(Json& all, const std::vector<ServiceSpec<A>>& services,
                     const BalanceOffer& offer) {
  for (const ServiceSpec<A>& service : services) {
    Json backends = Json::array();
    for (const auto& backend : service.backends)
      backends.push_back({{"address", to_string(backend.address)}, {"port", backend.port}});
    all.push_back({{"address", to_string(service.address)},
                   {"prefix", service.prefix_bits},
                   {"port", service.port},
                   {"protocol", service.protocol},
                   {"forward", to_string(service.forward)},
                   {"overflowed", offer.overflowed.contains(to_string(service))},
                   {"backends", backends}});
  }
}

// The functions below that read JSON throw a `std::exception` if the JSON is not as it must be.

Forward forward_from(const Json& json) {
  const auto text = json.get<std::string>();
  for (const Forward one : {Forward::nat, Forward::dsr}) {
    if (text == to_string(one)) return one;
  }
  throw std::invalid_argument("forward");
}

template <class A>
void read_service(const Json& json, const A& address, BalanceOffer& offer) {
  ServiceSpec<A> service;
  service.address = address;
  service.prefix_bits = number_from<unsigned>(json.at("prefix"), 0, 8 * A::kBytes);
  if (prefix_of(address, service.prefix_bits) != address) throw std::invalid_argument("prefix");
  service.port = number_from<std::uint16_t>(json.at("port"));
  service.protocol = number_from<std::uint8_t>(json.at("protocol"));
  service.forward = forward_from(json.at("forward"));
  for (const Json& one : json.at("backends")) {
    service.backends.push_back({parse_address<A>(one.at("address").get<std::string>()).value(),
                                number_from<std::uint16_t>(one.at("port")), 0});
  }
  if (json.at("overflowed")) offer.overflowed.insert(to_string(service));
  offer.services.family<A>().push_back(std::move(service));
}

/// Adds to `own` the services and backends of `theirs` that `own` lacks, the backends with weight
/// 0. In `theirs` a service may list a backend twice: configured, and draining with another
/// `forward`.
template <class A>
void add_missing(std::vector<ServiceSpec<A>>& own, const std::vector<ServiceSpec<A>>& theirs) {
  for (const ServiceSpec<A>& spec : theirs) {
    auto same = std::ranges::find(own, spec.destination(), &ServiceSpec<A>::destination);
    if (same == own.end()) {
      same = own.insert(own.end(), spec);
      same->backends.clear();
    }
    for (BackendSpec<A> backend : spec.backends) {
      backend.weight = 0;
      const auto is_it = [&backend](const BackendSpec<A>& one) {
        return one.address == backend.address && one.port == backend.port;
      };
      if (std::ranges::none_of(same->backends, is_it)) same->backends.push_back(backend);
    }
  }
}

}  // namespace

void append(Json& to, const BalanceOffer& offer) {
  Json services = Json::array();
  append_services(services, offer.services.v4, offer);
  append_services(services, offer.services.v6, offer);
  to[kOfferedServices] = std::move(services);
  for (std::size_t mark = 0; mark < kMarks.size(); ++mark) {
    Json& marked = to[kMarks[mark]] = Json::array();
    for (const auto& [service, backend] : offer.marked[mark])
      marked.push_back({{"service", service}, {"backend", backend}});
  }
}

Result<BalanceOffer> balance_offer_from(const Json& json) try {
  BalanceOffer offer;
  for (const Json& service : json.at(kOfferedServices))
    with_address(service, [&](const auto& address) { read_service(service, address, offer); });
  for (std::size_t mark = 0; mark < kMarks.size(); ++mark) {
    for (const Json& one : json.at(kMarks[mark]))
      offer.marked[mark].emplace(one.at("service"), one.at("backend"));
  }
  return offer;
} catch (const std::exception&) {
  return std::unexpected(no_offer());
}

void append_overflowed(Json& to, const std::set<std::string>& services) {
  to["overflowed"] = services;
}

std::set<std::string> overflowed_from(const Json& json) try {
  return json.at("overflowed");
} catch (const std::exception&) {
  return {};
}

Services with_those_of(const BalanceOffer& offer, Services own) {
  add_missing(own.v4, offer.services.v4);
  add_missing(own.v6, offer.services.v6);
  return own;
}

}  // namespace millrace
