// Warnings about settings that are allowed but probably not wanted.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "core/address.h"

namespace millrace {
namespace {

/// Warns of ports with the same network: packets to that network leave by the first of these ports.
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
                  ": packets to that network leave by the first of the two");
  }
}

/// Warns of tunnels to which packets do not leave by the port where their tunnels end.
void append_tunnels(const Config& config, std::vector<std::string>& all) {
  std::vector<std::pair<Prefix<AddressV4>, unsigned>> routes;
  for (const auto& own : config.live.v4.own)
    routes.emplace_back(Prefix<AddressV4>{prefix_of(own.address, own.bits), own.bits}, own.link);
  for (const auto& route : config.live.v4.routes)
    routes.emplace_back(Prefix<AddressV4>{route.prefix, route.bits}, route.link);
  for (const CustomerGroup& group : config.live.customers->groups()) {
    if (!group.vlans.is_empty()) continue;
    const Prefix<AddressV4>* longest = nullptr;
    unsigned link = 0;
    for (const auto& [prefix, by] : routes) {
      if (!prefix.contains(group.ends.address)) continue;
      if (longest != nullptr && longest->bits >= prefix.bits) continue;
      longest = &prefix;
      link = by;
    }
    const std::string& port = config.live.ports[group.link].name;
    std::string text = "the far ends of tunnels ";
    text.append(to_string(group.ends));
    if (longest == nullptr) {
      all.push_back(
          text.append(" have no route: give a [[route]] with port = \"").append(port).append("\""));
    } else if (link != group.link) {
      text.append(" have their route by the port ").append(config.live.ports[link].name);
      all.push_back(text.append(", but the tunnels end at the port ")
                        .append(port)
                        .append(": give a [[route]] with port = \"")
                        .append(port)
                        .append("\""));
    }
  }
}

}  // namespace

std::vector<std::string> doubts(const Config& config) {
  std::vector<std::string> all;
  config.function->append_doubts(surroundings(config), all);
  append_twins<AddressV4>(config, all);
  append_twins<AddressV6>(config, all);
  append_tunnels(config, all);
  const bool levels = config.spread.level;
  if (levels && config.workers == 1 && !config.uses_few_workers)
    all.emplace_back(
        "spread.level has no effect with one worker: give workers, or leave spread.level out");
  if (!levels && config.spread.level_interval_ms != Config::Spread().level_interval_ms)
    all.emplace_back("spread.level_interval_ms has no effect without spread.level = true");
  return all;
}

}  // namespace millrace
