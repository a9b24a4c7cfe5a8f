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

}  // namespace

std::vector<std::string> doubts(const Config& config) {
  std::vector<std::string> all;
  config.function->append_doubts(surroundings(config), all);
  append_twins<AddressV4>(config, all);
  append_twins<AddressV6>(config, all);
  const bool levels = config.spread.level;
  if (levels && config.workers == 1 && !config.uses_few_workers)
    all.emplace_back(
        "spread.level has no effect with one worker: give workers, or leave spread.level out");
  if (!levels && config.spread.level_interval_ms != Config::Spread().level_interval_ms)
    all.emplace_back("spread.level_interval_ms has no effect without spread.level = true");
  return all;
}

}  // namespace millrace
