// Finds the changes of a configuration that a running dataplane cannot make.
#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "control/control.h"

namespace millrace {
namespace {

/// Returns lines like "port (outside) device". New and removed ports are named, too.
std::vector<std::string> unchangeable_of_ports(const std::vector<Config::Port>& was,
                                               const std::vector<Config::Port>& is) {
  std::vector<std::string> differ;
  const auto name = [&differ](const Config::Port& port, const char* what) {
    differ.push_back("port (" + port.name + ") " + what);
  };
  const auto with = [](const std::vector<Config::Port>& ports, const std::string& wanted) {
    return std::ranges::find(ports, wanted, &Config::Port::name);
  };
  for (const Config::Port& port : was) {
    if (with(is, port.name) == is.end()) name(port, "is gone");
  }
  for (const Config::Port& port : is) {
    const auto old = with(was, port.name);
    if (old == was.end()) {
      name(port, "is new");
      continue;
    }
    if (to_string(old->device) != to_string(port.device)) name(port, "device");
    if (old->vlan != port.vlan) name(port, "vlan");
    if (old->has_customer_vlans != port.has_customer_vlans) name(port, "customers");
    if (old->mtu != port.mtu) name(port, "mtu");
    if (old->kernel != port.kernel) name(port, "kernel");
  }
  if (differ.empty() && !std::ranges::equal(was, is, {}, &Config::Port::name, &Config::Port::name))
    differ.emplace_back("the order of ports");
  return differ;
}

}  // namespace

std::vector<std::string> unchangeable(const Config& was, const Config& is) {
  std::vector<std::string> differ;
  const auto compare = [&](const char* key, const auto& of) {
    if (of(was) != of(is)) differ.emplace_back(key);
  };
  compare("workers", [](const Config& c) { return std::pair(c.workers, c.uses_few_workers); });
  // If neither configuration sets `sharing`, it follows from other keys, which are compared.
  if (was.sharing || is.sharing) compare("sharing", sharing_of);
  compare("spread.scheme", [](const Config& c) { return c.spread.scheme; });
  compare("spread.entries", [](const Config& c) { return c.spread.entries; });
  compare("spread.level", [](const Config& c) { return c.spread.level; });
  compare("table.scheme", [](const Config& c) { return c.table.scheme; });
  compare("table.capacity", [](const Config& c) { return c.table.capacity; });
  compare("table.capacity_v6", [](const Config& c) { return c.table.capacity_v6; });
  compare("table.when_full", [](const Config& c) { return c.table.when_full; });
  compare("table.half_open_percent", [](const Config& c) { return c.table.half_open_percent; });
  compare("ageing.scheme", [](const Config& c) { return c.ageing.scheme; });
  compare("ageing.interval_ms", [](const Config& c) { return c.ageing.interval_ms; });
  // A different function would have to be made at the start.
  if (&was.function->kind() != &is.function->kind()) {
    differ.emplace_back("function or chain");
  } else {
    for (std::string& key : was.function->unchangeable(*is.function))
      differ.push_back(std::move(key));
  }
  // Source counters exist only if they were configured at the start.
  compare("limits.per_source", [](const Config& c) { return c.source_limit.most != 0; });
  compare("limits.source_prefix_v4", [](const Config& c) { return c.source_limit.prefix_v4; });
  compare("limits.source_prefix_v6", [](const Config& c) { return c.source_limit.prefix_v6; });
  const bool is_cluster = (was.servers ? was : is).servers.value_or(OtherServers()).is_cluster;
  compare(is_cluster ? "cluster" : "pair", [](const Config& c) {
    const auto& of = c.servers;
    return of ? std::optional(std::tuple(of->is_cluster, of->number, of->ends, of->key_file))
              : std::nullopt;
  });
  compare("host.idle", [](const Config& c) { return c.live.idle; });
  for (std::string& key : unchangeable_of_ports(was.live.ports, is.live.ports))
    differ.push_back(std::move(key));
  // Connections know customers by their numbers, which those behind others do not change.
  const auto& old = was.live.customers->groups();
  const auto& now = is.live.customers->groups();
  if (old.size() > now.size() || !std::equal(old.begin(), old.end(), now.begin()))
    differ.emplace_back("port.customers (new ones can only stand behind all others)");
  return differ;
}

}  // namespace millrace
