// What a configuration allows, and its user may not want.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "config/ports.h"

namespace millrace {
namespace {

/// Says which of a port's own addresses a service takes away from the kernel beside it.
template <class A>
void append_taken(const Config& config, const std::vector<ServiceSpec<A>>& services,
                  std::vector<std::string>& all) {
  constexpr std::uint16_t kSsh = 22;
  for (const auto& own : config.live.family<A>().own) {
    if (config.live.ports[own.link].kernel.empty()) continue;
    for (const auto& spec : services) {
      if (spec.port != 0 || !spec.destination().takes(own.address, kSsh, kProtocolTcp)) continue;
      all.push_back("service " + to_string(spec) + " takes all that is sent to the port's own " +
                    to_string(own.address) + ", ssh too, and the kernel beside it gets nothing: " +
                    "give the service a port, or another address");
    }
  }
}

void append_small_table(const Config& config, std::vector<std::string>& all) {
  constexpr std::uint32_t kEntriesEach = 100;  // Maglev's paper, section 3.4
  const std::uint32_t size = config.balance.maglev_table_size;
  std::size_t most = 0;
  std::string largest;
  const auto look = [&](const auto& specs) {
    for (const auto& spec : specs) {
      if (spec.backends.size() <= most) continue;
      most = spec.backends.size();
      largest = to_string(spec);
    }
  };
  look(config.services.v4);
  look(config.services.v6);
  if (most <= size / kEntriesEach) return;
  std::uint64_t enough = std::min<std::uint64_t>(most * kEntriesEach, Maglev::kMaxSize);
  while (!is_prime(enough)) ++enough;
  all.push_back(
      "service " + largest + " has " + std::to_string(most) +
      " backends, more than a hundredth of the entries of its Maglev table: their shares differ "
      "by more than 1 %: balance.maglev_table_size = " +
      std::to_string(enough) + " is enough");
}

/// Says what cannot be reached, as a rule by mistake.
template <class A>
void append_unreachable(const Config& config, const std::vector<ServiceSpec<A>>& services,
                        std::vector<std::string>& all) {
  if (config.live.ports.empty()) return;
  std::set<A> looked_at;
  for (const auto& spec : services) {
    for (const auto& backend : spec.backends) {
      if (!looked_at.insert(backend.address).second ||
          config::has_route(config.live, backend.address))
        continue;
      all.push_back("no route leads to the backend " + to_string(backend.address) + " of " +
                    to_string(spec) + ": give a [[route]], or a port an address of its network");
    }
  }
}

/// Says which service takes what is sent to a router that packets are sent to.
template <class A>
void append_routers(const Config& config, const std::vector<ServiceSpec<A>>& services,
                    std::vector<std::string>& all) {
  for (const Route<A>& route : config.live.family<A>().routes) {
    for (const auto& spec : services) {
      if (!route.via || spec.is_prefix() || spec.address != *route.via) continue;
      all.push_back("service " + to_string(spec) + " has the address of a router, which " +
                    "millrace then answers for: give it another one");
    }
  }
}

/// Says which ports have the same network, of which packets leave by the first.
template <class A>
void append_twins(const Config& config, std::vector<std::string>& all) {
  std::map<std::pair<A, unsigned>, unsigned> links;
  for (const auto& own : config.live.family<A>().own) {
    const A network = prefix_of(own.address, own.bits);
    const auto [first, is_new] = links.emplace(std::pair(network, own.bits), own.link);
    if (is_new || first->second == own.link) continue;
    all.push_back("the ports " + config.live.ports[first->second].name + " and " +
                  config.live.ports[own.link].name + " have the same network " +
                  to_string(network) + "/" + std::to_string(own.bits) +
                  ": what is sent there leaves by the first");
  }
}

}  // namespace

std::vector<std::string> doubts(const Config& config) {
  std::vector<std::string> all;
  append_small_table(config, all);
  const auto append = [&]<class A>(const std::vector<ServiceSpec<A>>& services) {
    append_taken(config, services, all);
    append_unreachable(config, services, all);
    append_routers(config, services, all);
    append_twins<A>(config, all);
  };
  append(config.services.v4);
  append(config.services.v6);
  return all;
}

}  // namespace millrace
