// The settings of the firewall: [firewall], [[firewall.rule]], [firewall.sets] and [[zone]] in a
// configuration.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "function/firewall/classifier.h"
#include "function/firewall/matching.h"
#include "function/firewall/rate_limits.h"
#include "function/firewall/zones.h"
#include "function/settings.h"

namespace millrace {

class SettingsReader;

/// The decision about a connection.
enum class Action : std::uint8_t {
  accept,
  drop,
  reject,  ///< drop, and tell the sender so
};
std::string_view to_string(Action action);

/// The connections that packets in mid-connection, without an entry, may begin.
enum class Pickup : std::uint8_t {
  strict,  ///< no connection
  loose,   ///< the connections that the rules accept
};

/// The treatment of live connections when rules, zones or sets change.
enum class OnReload : std::uint8_t {
  keep,
  recheck,  ///< the connections that the new rules do not accept end
};

struct FirewallRule {
  std::string name;
  Action action = Action::accept;
  bool logs = false;
  std::optional<RateLimit> limit;  ///< limit of connections that the rule accepts
  RuleMatch<AddressV4> v4;
  RuleMatch<AddressV6> v6;

  template <class A>
  const RuleMatch<A>& match() const {
    return of_family<A>(v4, v6);
  }
};

/// A named set of prefixes.
struct PrefixSet {
  std::string name;
  std::vector<Prefix<AddressV4>> v4;
  std::vector<Prefix<AddressV6>> v6;

  template <class A>
  std::vector<Prefix<A>>& prefixes() {
    return of_family<A>(v4, v6);
  }
  template <class A>
  const std::vector<Prefix<A>>& prefixes() const {
    return of_family<A>(v4, v6);
  }
  std::size_t size() const { return v4.size() + v6.size(); }
};

struct FirewallSettings final : FunctionSettings {
  Action by_default = Action::drop;
  bool default_logs = false;
  /// Limit of the events that each rule writes into the log.
  RateLimit log_rate{.interval_ns = 1'000'000, .burst = 1000};
  Pickup pickup = Pickup::strict;
  OnReload on_reload = OnReload::recheck;
  std::vector<FirewallRule> rules;  ///< with distinct names
  std::vector<PrefixSet> sets;      ///< with distinct names; `AddressMatch::sets` has their places
  std::vector<std::string> zones;   ///< names, from the zone `kHostZone` + 1 on
  std::vector<std::string> ports;   ///< names, by link
  std::shared_ptr<const Zones> zone_tables;
  /// Behind tunnels; never null.
  std::shared_ptr<const Customers> customers = std::make_shared<const Customers>();

  const FunctionKind& kind() const override;
  FunctionFacts facts() const override;
  void append_doubts(const Surroundings& around, std::vector<std::string>& all) const override;
};

/// Returns the settings of a configuration without the firewall's keys.
std::shared_ptr<const FunctionSettings> default_firewall();

std::unique_ptr<SettingsReader> firewall_reader();

/// The name of the default in statistics and explanations; no rule may have it.
inline constexpr std::string_view kDefaultName = "default";
/// The name of the zone `kHostZone` in rules.
inline constexpr std::string_view kHostZoneName = "host";

/// Reads a prefix of one family into the set's member of that family. Errors: a message that says
/// what would be right, without the text itself.
std::expected<void, std::string> append_prefix(std::string_view text,
                                               std::vector<Prefix<AddressV4>>& v4,
                                               std::vector<Prefix<AddressV6>>& v6);

}  // namespace millrace
