#include "function/firewall/settings.h"

#include <algorithm>
#include <cstddef>

#include "core/address.h"
#include "function/firewall/kind.h"
#include "toml/addresses.h"

namespace millrace {

std::string_view to_string(Action action) {
  switch (action) {
    case Action::accept:
      return "accept";
    case Action::drop:
      return "drop";
    case Action::reject:
      return "reject";
  }
  return "";
}

const FunctionKind& FirewallSettings::kind() const { return firewall_kind(); }

FunctionFacts FirewallSettings::facts() const {
  // Packets that belong to no connection, as fragments and ICMP errors about unknown packets, would
  // otherwise pass without a rule.
  return {.counts = {{"firewall rule", rules.size()}, {"firewall set", sets.size()}},
          .missing = {},
          .counts_nothing = {},
          .drops_unmatched = "firewall",
          .has_replies = false,
          .guards_host = true};
}

void FirewallSettings::append_doubts(const Surroundings&, std::vector<std::string>& all) const {
  const bool accepts =
      by_default == Action::accept ||
      std::ranges::any_of(rules, [](const auto& rule) { return rule.action == Action::accept; });
  if (!accepts)
    all.emplace_back(
        "no rule of the firewall accepts anything, and neither does firewall.default: every "
        "connection is dropped");
  constexpr std::size_t kCompared = 4096;  // all pairs of these take some 0.1 s
  constexpr std::size_t kNamed = 8;
  std::size_t useless = 0;
  const std::size_t count = std::min(rules.size(), kCompared);
  for (std::size_t i = 1; i < count; ++i) {
    const FirewallRule& rule = rules[i];
    const auto before = std::find_if(
        rules.begin(), rules.begin() + static_cast<std::ptrdiff_t>(i),
        [&rule](const auto& one) { return covers(one.v4, rule.v4) && covers(one.v6, rule.v6); });
    if (before->name == rule.name || ++useless > kNamed) continue;
    all.push_back("the rule " + config::in_quotes(rule.name) + " never decides: the rule " +
                  config::in_quotes(before->name) +
                  " comes before it and matches all of its packets");
  }
  if (useless > kNamed)
    all.push_back(std::to_string(useless - kNamed) +
                  " more rules never decide, as rules before them match all of their packets");
}

std::shared_ptr<const FunctionSettings> default_firewall() {
  auto settings = std::make_shared<FirewallSettings>();
  settings->zone_tables = std::make_shared<const Zones>(Zones{{{}, {}, 0}, {{}, {}, 0}});
  return settings;
}

std::expected<void, std::string> append_prefix(std::string_view text,
                                               std::vector<Prefix<AddressV4>>& v4,
                                               std::vector<Prefix<AddressV6>>& v6) {
  const config::AddressAndBits parts(text);
  const auto read = [&]<class A>(std::vector<Prefix<A>>& to,
                                 const A& address) -> std::expected<void, std::string> {
    const auto prefix = config::read_prefix(address, parts.bits);
    if (!prefix) return std::unexpected(prefix.error());
    to.push_back(*prefix);
    return {};
  };
  if (const auto address = parse_address<AddressV4>(parts.address)) return read(v4, *address);
  if (const auto address = parse_address<AddressV6>(parts.address)) return read(v6, *address);
  return std::unexpected(config::in_quotes(text) +
                         " is no prefix: give one like 192.0.2.0/24, 2001:db8::/32 or 192.0.2.1");
}

}  // namespace millrace
