#include "function/balance/settings.h"

#include <algorithm>
#include <set>

#include "core/address.h"
#include "function/balance/balance.h"
#include "function/balance/kind.h"

namespace millrace {
namespace {

// --- warnings

/// Warns of each service that takes all TCP packets to an own address of a port where the kernel
/// has an interface: also ssh to that address does not reach the kernel.
template <class A>
void append_taken(const Surroundings& around, const std::vector<ServiceSpec<A>>& services,
                  std::vector<std::string>& all) {
  constexpr std::uint16_t kSsh = 22;
  for (const auto& own : around.family<A>().own) {
    if (!around.ports[own.link].has_kernel) continue;
    for (const auto& spec : services) {
      if (spec.port != 0 || !spec.destination().takes(own.address, kSsh, kProtocolTcp)) continue;
      all.push_back("service " + to_string(spec) +
                    " takes all TCP packets to the port's own address " + to_string(own.address) +
                    ", also those of ssh, so they do not reach the "
                    "kernel: give the service a port, or another address");
    }
  }
}

void append_small_table(const BalanceSettings& settings, std::vector<std::string>& all) {
  constexpr std::uint32_t kEntriesEach = 100;  // Maglev's paper, section 3.4
  const std::uint32_t size = settings.maglev_table_size;
  std::size_t most = 0;
  std::string largest;
  const auto look = [&](const auto& specs) {
    for (const auto& spec : specs) {
      if (spec.backends.size() <= most) continue;
      most = spec.backends.size();
      largest = to_string(spec);
    }
  };
  look(settings.services.v4);
  look(settings.services.v6);
  if (most <= size / kEntriesEach) return;
  std::uint64_t enough = std::min<std::uint64_t>(most * kEntriesEach, Maglev::kMaxSize);
  while (!is_prime(enough)) ++enough;
  all.push_back(
      "service " + largest + " has " + std::to_string(most) +
      " backends, more than a hundredth of the entries of its Maglev table: their shares differ "
      "by more than 1 %: balance.maglev_table_size = " +
      std::to_string(enough) + " is enough");
}

/// Warns of backends to which there is no route.
template <class A>
void append_unreachable(const Surroundings& around, const std::vector<ServiceSpec<A>>& services,
                        std::vector<std::string>& all) {
  if (!around.is_live()) return;
  std::set<A> looked_at;
  for (const auto& spec : services) {
    for (const auto& backend : spec.backends) {
      if (!looked_at.insert(backend.address).second ||
          has_route(around.family<A>(), backend.address))
        continue;
      all.push_back("no route leads to the backend " + to_string(backend.address) + " of " +
                    to_string(spec) + ": give a [[route]], or a port an address of its network");
    }
  }
}

/// Warns of services whose address is that of a router, the next hop of a route.
template <class A>
void append_routers(const Surroundings& around, const std::vector<ServiceSpec<A>>& services,
                    std::vector<std::string>& all) {
  for (const Route<A>& route : around.family<A>().routes) {
    for (const auto& spec : services) {
      if (!route.via || spec.is_prefix() || spec.address != *route.via) continue;
      all.push_back("service " + to_string(spec) + " has the address of a router, and " +
                    "millrace would answer ARP and neighbour discovery for that address: give " +
                    "the service another address");
    }
  }
}

// --- facts for other parts of the program

template <class A>
void tell_of(const std::vector<ServiceSpec<A>>& services, HostAddresses<A>& all) {
  for (const auto& service : services) {
    all.passes = all.passes || service.no_backend == NoBackend::pass;
    if (service.is_prefix()) {
      all.served.push_back({service.address, service.prefix_bits});
    } else {
      all.virtual_addresses.push_back(service.address);
    }
    for (const auto& backend : service.backends) all.destinations.push_back(backend.address);
  }
}

template <class A>
bool has_two_way(const std::vector<ServiceSpec<A>>& services) {
  return std::ranges::any_of(services, &ServiceSpec<A>::two_way);
}

template <class A>
bool has_one_way(const std::vector<ServiceSpec<A>>& services) {
  return !std::ranges::all_of(services, &ServiceSpec<A>::two_way);
}

template <class A>
std::size_t backends_of(const std::vector<ServiceSpec<A>>& services) {
  std::size_t count = 0;
  for (const auto& service : services) count += service.backends.size();
  return count;
}

}  // namespace

const FunctionKind& BalanceSettings::kind() const { return balance_kind(); }

FunctionFacts BalanceSettings::facts() const {
  return {.counts = {{"service", services.v4.size() + services.v6.size()},
                     {"backend", backends_of(services.v4) + backends_of(services.v6)}},
          .missing = services_given ? "" : "no service: give [[service]] with address and backends",
          .counts_nothing = stateful ? "" : kNeedsStateful,
          .drops_unmatched = unmatched == Unmatched::drop ? "balance.unmatched" : "",
          .loses_replies = has_one_way(services.v4) ? kOneWay : "",
          .has_replies = stateful && (has_two_way(services.v4) || has_two_way(services.v6))};
}

std::vector<std::string> BalanceSettings::unchangeable(const FunctionSettings& is) const {
  const auto& other = static_cast<const BalanceSettings&>(is);
  std::vector<std::string> differ;
  const auto compare = [&](const char* name, auto BalanceSettings::* member) {
    if (this->*member != other.*member) differ.emplace_back(name);
  };
  compare("balance.stateful", &BalanceSettings::stateful);
  compare("balance.unmatched", &BalanceSettings::unmatched);
  compare("balance.key", &BalanceSettings::key);
  compare("balance.maglev_table_size", &BalanceSettings::maglev_table_size);
  return differ;
}

void BalanceSettings::append_doubts(const Surroundings& around,
                                    std::vector<std::string>& all) const {
  append_small_table(*this, all);
  const auto append = [&](const auto& of_family) {
    append_taken(around, of_family, all);
    append_unreachable(around, of_family, all);
    append_routers(around, of_family, all);
  };
  append(services.v4);
  append(services.v6);
}

void BalanceSettings::tell(HostAddresses<AddressV4>& v4, HostAddresses<AddressV6>& v6) const {
  tell_of(services.v4, v4);
  tell_of(services.v6, v6);
}

BalanceConfig balance_config(const BalanceSettings& settings, const FunctionRun& run) {
  return {.services = settings.services,
          .key = settings.key,
          .maglev_table_size = settings.maglev_table_size,
          .maglev_threads = run.helpers,
          .stateful = settings.stateful,
          .stateless_when_full = run.stateless_when_full,
          .quiet_ms = run.quiet_ms,
          .shares_tables = run.shares_tables};
}

}  // namespace millrace
