// The firewall's part of a configuration as it is written: [firewall] and [[zone]], before
// reader.cc makes settings of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "function/firewall/settings.h"
#include "toml/keys.h"

namespace millrace {

using config::Text;

struct RawZone {
  std::uint32_t line = 0;
  Text name;
  std::vector<Text> ports;
  std::vector<Text> prefixes;
};

struct RawLimit {
  Text rate;
  std::optional<std::uint32_t> burst;
  RateLimit::Per per = RateLimit::Per::rule;
};

struct RawRule {
  std::uint32_t line = 0;
  Text name;
  std::vector<Text> from;
  std::vector<Text> to;
  std::vector<Text> protocols;
  std::vector<Text> source;
  std::vector<Text> destination;
  std::vector<Text> source_ports;
  std::vector<Text> destination_ports;
  std::vector<Text> icmp;
  config::Located<RawLimit> limit;
  bool logs = false;
  Action action = Action::accept;
};

struct RawSet {
  Text name;
  std::vector<Text> prefixes;
};

struct RawFirewall {
  FirewallSettings settings;
  Text log_rate;
  std::vector<RawRule> rules;
  std::vector<RawSet> sets;
  std::vector<RawZone> zones;
};

/// The keys of [firewall], and of a [[zone]].
config::Keys<RawFirewall> firewall_keys();
config::Keys<RawZone> zone_keys();

}  // namespace millrace
