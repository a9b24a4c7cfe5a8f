// What of a configuration may change while millrace runs.
#include <string>
#include <vector>

#include "worker/control.h"

namespace millrace {

std::vector<std::string> unchangeable(const Config& was, const Config& is) {
  std::vector<std::string> differ;
  const auto compare = [&](const char* key, const auto& of) {
    if (of(was) != of(is)) differ.emplace_back(key);
  };
  compare("workers", [](const Config& c) { return c.workers; });
  // Left open in both it follows from others, which are named.
  if (was.sharing || is.sharing) compare("sharing", sharing_of);
  compare("spread.scheme", [](const Config& c) { return c.spread.scheme; });
  compare("spread.entries", [](const Config& c) { return c.spread.entries; });
  compare("table.scheme", [](const Config& c) { return c.table.scheme; });
  compare("table.capacity", [](const Config& c) { return c.table.capacity; });
  compare("table.capacity_v6", [](const Config& c) { return c.table.capacity_v6; });
  compare("table.when_full", [](const Config& c) { return c.table.when_full; });
  compare("table.half_open_percent", [](const Config& c) { return c.table.half_open_percent; });
  compare("ageing.scheme", [](const Config& c) { return c.ageing.scheme; });
  compare("ageing.interval_ms", [](const Config& c) { return c.ageing.interval_ms; });
  compare("balance.stateful", [](const Config& c) { return c.balance.stateful; });
  compare("balance.unmatched", [](const Config& c) { return c.balance.unmatched; });
  compare("balance.key", [](const Config& c) { return c.balance.key; });
  compare("balance.maglev_table_size", [](const Config& c) { return c.balance.maglev_table_size; });
  // What counts sources is made, or not, at the start.
  compare("limits.per_source", [](const Config& c) { return c.source_limit.most != 0; });
  compare("limits.source_prefix_v4", [](const Config& c) { return c.source_limit.prefix_v4; });
  compare("limits.source_prefix_v6", [](const Config& c) { return c.source_limit.prefix_v6; });
  compare("host.idle", [](const Config& c) { return c.live.idle; });
  compare("port", [](const Config& c) {
    std::vector<std::string> ports;
    for (const Config::Port& port : c.live.ports)
      ports.push_back(port.name + " " + to_string(port.device) + " " + std::to_string(port.mtu) +
                      " " + port.kernel);
    return ports;
  });
  return differ;
}

}  // namespace millrace
