// Reads the firewall's part of a configuration: [firewall] and [[zone]].
#include <algorithm>
#include <cstdint>
#include <expected>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/burst.h"
#include "core/protocol.h"
#include "function/firewall/rate_limits.h"
#include "function/firewall/raw.h"
#include "function/firewall/settings.h"
#include "function/firewall/values.h"
#include "function/reader.h"
#include "toml/addresses.h"

namespace millrace {
namespace {

using namespace config;

/// Turns what was read into settings.
class Maker {
 public:
  Maker(Problems& problems, const Surroundings& around, RawFirewall& raw)
      : problems_(problems), around_(around), raw_(raw), settings_(raw.settings) {}

  void make() {
    for (const auto& port : around_.ports) settings_.ports.push_back(port.name);
    make_zones();
    make_sets();
    make_log_rate();
    if (raw_.rules.size() > Classifier<AddressV4>::kMost) {
      problems_.add(raw_.rules[Classifier<AddressV4>::kMost].line, "firewall.rule",
                    "there are " + std::to_string(raw_.rules.size()) + " rules: give at most " +
                        std::to_string(Classifier<AddressV4>::kMost));
      return;
    }
    std::map<std::string, std::uint32_t> lines;
    for (const RawRule& rule : raw_.rules) {
      if (!rule.name.given) continue;
      check_name(rule.name, "firewall.rule.name", kDefaultName, lines);
      make_rule(rule);
    }
  }

 private:
  /// Notes a problem if the name is empty, reserved or not the first of its kind.
  void check_name(const Text& name, std::string_view key, std::string_view reserved,
                  std::map<std::string, std::uint32_t>& lines) {
    const auto is_odd = [](char c) { return config::is_control(c) || c == '"'; };
    const auto [first, is_new] = lines.emplace(name.value, name.line);
    if (name.value.empty() || std::ranges::any_of(name.value, is_odd)) {
      problems_.add(name.line, key,
                    in_quotes(name.value) + " is no name: give one without quotes and line breaks");
    } else if (constexpr std::size_t kLongest = 128; name.value.size() > kLongest) {
      problems_.add(name.line, key,
                    "has a name of " + std::to_string(name.value.size()) + " bytes: give one of " +
                        std::to_string(kLongest) + " at most");
    } else if (name.value == reserved) {
      problems_.add(name.line, key, in_quotes(name.value) + " has a meaning already: give another");
    } else if (!is_new) {
      problems_.add(name.line, key,
                    in_quotes(name.value) + " is there already, in line " +
                        std::to_string(first->second) + ": give another");
    }
  }

  void make_zones() {
    std::vector<ZoneSpec> specs;
    std::map<std::string, std::uint32_t> lines;
    for (const RawZone& raw : raw_.zones) {
      if (!raw.name.given) continue;
      check_name(raw.name, "zone.name", kHostZoneName, lines);
      if (raw.ports.empty() && raw.prefixes.empty())
        problems_.add(raw.line, "zone",
                      "has neither ports nor prefixes: give at least one of them");
      ZoneSpec& spec = specs.emplace_back();
      spec.name = raw.name.value;
      settings_.zones.push_back(spec.name);
      for (const Text& port : raw.ports) add_port(port, spec);
      spec.has_prefixes = !raw.prefixes.empty();
      for (const Text& prefix : raw.prefixes) {
        if (auto added = append_prefix(prefix.value, spec.v4, spec.v6); !added)
          problems_.add(prefix.line, "zone.prefixes", added.error());
      }
      check_places(spec, raw.line);
    }
    constexpr std::size_t kMost = kMostZones - kHostZone - 1;
    if (specs.size() > kMost) {
      problems_.add(raw_.zones[kMost].line, "zone",
                    "there are " + std::to_string(specs.size()) + " zones: give at most " +
                        std::to_string(kMost));
      settings_.zones.resize(kMost);
      specs.resize(kMost);
    }
    const auto links = static_cast<unsigned>(around_.ports.size());
    settings_.customers = around_.customers;
    settings_.zone_tables = std::make_shared<const Zones>(
        Zones{{specs, around_.v4, links}, {specs, around_.v6, links}});
  }

  /// Notes a problem if a place of the zone, a prefix at a port, is also one of an earlier zone.
  void check_places(const ZoneSpec& spec, std::uint32_t line) {
    const auto check = [&](const std::string& prefix, unsigned link) {
      const auto [first, is_new] = zone_of_place_.emplace(std::pair(prefix, link), spec.name);
      if (is_new || first->second == spec.name) return true;
      const std::string port = link == kNoLink ? "" : settings_.ports[link];
      problems_.add(line, "zone",
                    in_quotes(spec.name) + " has " +
                        (prefix.empty() ? "the port " + in_quotes(port)
                                        : prefix + (port.empty() ? "" : " at " + in_quotes(port))) +
                        ", which is in the zone " + in_quotes(first->second) +
                        " already: name it in one zone");
      return false;
    };
    std::vector<std::string> prefixes;
    for (const auto& prefix : spec.v4) prefixes.push_back(to_string(prefix));
    for (const auto& prefix : spec.v6) prefixes.push_back(to_string(prefix));
    if (!spec.has_prefixes) prefixes.emplace_back();
    const std::vector<unsigned> links =
        spec.links.empty() ? std::vector<unsigned>{kNoLink} : spec.links;
    for (const std::string& prefix : prefixes) {
      for (const unsigned link : links) {
        if (!check(prefix, link)) return;
      }
    }
  }

  void add_port(const Text& port, ZoneSpec& spec) {
    const auto at = std::ranges::find(around_.ports, port.value, &Surroundings::Port::name);
    if (at != around_.ports.end()) {
      spec.links.push_back(static_cast<unsigned>(at - around_.ports.begin()));
      return;
    }
    problems_.add(port.line, "zone.ports",
                  "no port is called " + in_quotes(port.value) + ": give " +
                      (settings_.ports.empty() ? "prefixes, or a [[port]] of that name"
                                               : "one of " + joined(settings_.ports, ", ")));
  }

  void make_sets() {
    for (const RawSet& raw : raw_.sets) {
      PrefixSet& set = settings_.sets.emplace_back();
      set.name = raw.name.value;
      for (const Text& prefix : raw.prefixes) {
        if (auto added = append_prefix(prefix.value, set.v4, set.v6); !added)
          problems_.add(prefix.line, "firewall.sets." + set.name, added.error());
      }
    }
    if (settings_.sets.size() > kMostSets)
      problems_.add(raw_.sets[kMostSets].name.line, "firewall.sets",
                    "there are " + std::to_string(settings_.sets.size()) + " sets: give at most " +
                        std::to_string(kMostSets));
  }

  void make_rule(const RawRule& raw) {
    FirewallRule& rule = settings_.rules.emplace_back();
    rule.name = raw.name.value;
    rule.action = raw.action;
    rule.logs = raw.logs;
    rule.v4.from = rule.v6.from = zones_of(raw.from, "firewall.rule.from");
    rule.v4.to = rule.v6.to = zones_of(raw.to, "firewall.rule.to");
    read_addresses(raw.source, "firewall.rule.source", rule.v4.source, rule.v6.source);
    read_addresses(raw.destination, "firewall.rule.destination", rule.v4.destination,
                   rule.v6.destination);
    const auto protocols = protocols_of(raw);
    rule.v4.protocols = rule.v6.protocols = protocols;
    if (raw.icmp.empty()) {
      read_ports(raw, protocols, rule);
    } else {
      read_icmp(raw, protocols, rule);
    }
    if (raw.limit.given) make_limit(raw.limit, rule);
    const auto names_some = [](const auto& match) {
      const auto some = [](const auto& end) {
        return end.any || !end.prefixes.empty() || !end.sets.empty();
      };
      return some(match.source) && some(match.destination);
    };
    if (problems_.none() && !names_some(rule.v4) && !names_some(rule.v6))
      problems_.add(raw.line, "firewall.rule",
                    "names a source of one address family and a destination of the other, which no "
                    "packet has: give both of one family");
  }

  void make_limit(const Located<RawLimit>& raw, FirewallRule& rule) {
    const RawLimit& limit = raw.value;
    if (rule.action != Action::accept)
      problems_.add(raw.line, "firewall.rule.limit",
                    "limits what a rule accepts, and this one accepts nothing: leave it out");
    rule.limit = limit_of(limit.rate, "firewall.rule.limit.rate");
    if (!rule.limit) return;
    rule.limit->burst = limit.burst.value_or(rule.limit->burst);
    rule.limit->per = limit.per;
    if (rule.limit->interval_ns * rule.limit->burst > TokenBucket::kLongest)
      problems_.add(raw.line, "firewall.rule.limit",
                    "has a burst that takes more than a week to come back: give a smaller burst");
  }

  void make_log_rate() {
    if (const auto limit = limit_of(raw_.log_rate, "firewall.log_rate"))
      settings_.log_rate = *limit;
  }

  /// Returns the limit with that rate and the burst of a second; none if not given, or wrong.
  std::optional<RateLimit> limit_of(const Text& text, std::string_view key) {
    if (!text.given) return std::nullopt;
    const auto rate = rate_from(text.value);
    if (!rate) {
      problems_.add(text.line, key,
                    in_quotes(text.value) +
                        " is no rate: give one like \"1000/s\", \"20/min\", \"5/h\" or \"1/d\", "
                        "at most a million a second");
      return std::nullopt;
    }
    const std::uint64_t a_second = rate->connections * 1'000'000 / rate->in_us;
    return RateLimit{.interval_ns = rate->in_us * 1000 / rate->connections,
                     .burst = static_cast<std::uint32_t>(std::max<std::uint64_t>(a_second, 1)),
                     .per = RateLimit::Per::rule};
  }

  std::uint64_t zones_of(const std::vector<Text>& names, std::string_view key) {
    if (names.empty()) return ~std::uint64_t{0};
    std::uint64_t zones = 0;
    for (const Text& name : names) {
      const auto at = std::ranges::find(settings_.zones, name.value);
      if (name.value == kHostZoneName) {
        zones |= std::uint64_t{1} << kHostZone;
      } else if (at != settings_.zones.end()) {
        zones |= std::uint64_t{1} << (kHostZone + 1 + (at - settings_.zones.begin()));
      } else {
        std::vector<std::string> known = settings_.zones;
        known.emplace_back(kHostZoneName);
        problems_.add(
            name.line, key,
            "no zone is called " + in_quotes(name.value) + ": give one of " + joined(known, ", "));
      }
    }
    return zones;
  }

  void read_addresses(const std::vector<Text>& given, std::string_view key,
                      AddressMatch<AddressV4>& v4, AddressMatch<AddressV6>& v6) {
    v4.any = v6.any = given.empty();
    for (const Text& one : given) {
      if (!one.value.starts_with('@')) {
        const auto named = std::ranges::find(settings_.sets, one.value, &PrefixSet::name);
        if (named != settings_.sets.end()) {
          problems_.add(one.line, key,
                        in_quotes(one.value) + " is a set: give " + in_quotes("@" + one.value));
        } else if (auto added = append_prefix(one.value, v4.prefixes, v6.prefixes); !added) {
          problems_.add(one.line, key, added.error());
        }
        continue;
      }
      const auto at = std::ranges::find(settings_.sets, one.value.substr(1), &PrefixSet::name);
      if (at == settings_.sets.end()) {
        std::string known;
        for (const PrefixSet& set : settings_.sets) known += (known.empty() ? "" : ", ") + set.name;
        problems_.add(one.line, key,
                      "no set is called " + in_quotes(one.value.substr(1)) +
                          ": add it to [firewall.sets]" +
                          (known.empty() ? "" : ", which has " + known));
        continue;
      }
      const auto number = static_cast<std::uint16_t>(at - settings_.sets.begin());
      v4.sets.push_back(number);
      v6.sets.push_back(number);
    }
  }

  /// Returns the protocols that a rule names; those of ICMP if it names messages only.
  std::vector<std::uint8_t> protocols_of(const RawRule& raw) {
    if (raw.protocols.empty() && !raw.icmp.empty()) return {kProtocolIcmp, kProtocolIcmpV6};
    std::vector<std::uint8_t> all;
    for (const Text& name : raw.protocols) {
      const auto known = std::ranges::find(protocols(), lower(name.value),
                                           [](const auto& one) { return std::string(one.first); });
      const auto number = range_from(name.value);
      if (known != protocols().end()) {
        all.push_back(known->second);
      } else if (number && number->first == number->last && number->first < 256) {
        all.push_back(static_cast<std::uint8_t>(number->first));
      } else {
        std::vector<std::string> names;
        for (const auto& one : protocols()) names.emplace_back(one.first);
        problems_.add(name.line, "firewall.rule.protocol",
                      in_quotes(name.value) + " is no protocol: give " + joined(names, " or ") +
                          ", or a number from 0 to 255");
      }
    }
    return all;
  }

  void read_ports(const RawRule& raw, const std::vector<std::uint8_t>& protocols,
                  FirewallRule& rule) {
    const auto read = [&](const std::vector<Text>& given, std::string_view key,
                          std::vector<Range>& to) {
      const bool have_ports =
          !protocols.empty() && std::ranges::all_of(protocols, [](auto p) { return has_ports(p); });
      if (!given.empty() && !have_ports)
        problems_.add(given.front().line, key,
                      "needs a protocol that has ports, and no other: give protocol = \"tcp\", "
                      "\"udp\" or both");
      for (const Text& one : given) {
        if (const auto range = range_from(one.value)) {
          to.push_back(*range);
        } else {
          problems_.add(one.line, key,
                        in_quotes(one.value) +
                            " is no port: give one like \"80\", or a range like "
                            "\"8000-8100\", up to 65535");
        }
      }
    };
    read(raw.source_ports, "firewall.rule.source_ports", rule.v4.source_ports);
    read(raw.destination_ports, "firewall.rule.destination_ports", rule.v4.destination_ports);
    rule.v6.source_ports = rule.v4.source_ports;
    rule.v6.destination_ports = rule.v4.destination_ports;
  }

  void read_icmp(const RawRule& raw, const std::vector<std::uint8_t>& protocols,
                 FirewallRule& rule) {
    constexpr std::string_view kKey = "firewall.rule.icmp";
    const auto is_icmp = [](std::uint8_t protocol) {
      return protocol == kProtocolIcmp || protocol == kProtocolIcmpV6;
    };
    if (!std::ranges::all_of(protocols, is_icmp))
      problems_.add(raw.icmp.front().line, kKey,
                    "needs protocol = \"icmp\", \"icmpv6\" or none: leave the others out");
    for (const auto* ports : {&raw.source_ports, &raw.destination_ports}) {
      if (!ports->empty())
        problems_.add(ports->front().line, kKey, "ICMP has no ports: leave them out");
    }
    for (const Text& one : raw.icmp) add_message(one, rule);
    // Without a message, the family has none of those named.
    if (rule.v4.destination_ports.empty()) rule.v4.from = 0;
    if (rule.v6.destination_ports.empty()) rule.v6.from = 0;
  }

  void add_message(const Text& text, FirewallRule& rule) {
    const auto messages = icmp_messages_from(lower(text.value));
    if (!messages) {
      problems_.add(text.line, "firewall.rule.icmp",
                    in_quotes(text.value) + " is no message: give " + icmp_names() +
                        ", or a type, or type and code like \"3/4\"");
      return;
    }
    if (messages->v4) rule.v4.destination_ports.push_back(*messages->v4);
    if (messages->v6) rule.v6.destination_ports.push_back(*messages->v6);
  }

  Problems& problems_;
  /// The zone of each prefix (empty: any) at each link (`kNoLink`: any).
  std::map<std::pair<std::string, unsigned>, std::string> zone_of_place_;
  const Surroundings& around_;
  const RawFirewall& raw_;
  FirewallSettings& settings_;
};

class FirewallReader final : public SettingsReader {
 public:
  void read(std::string_view key, const Context& context, const toml::node& node) override {
    if (key == "zone") return tables(&RawFirewall::zones, zone_keys())(context, node, raw_);
    struct Root {
      RawFirewall raw;
    } root{std::move(raw_)};
    table(&Root::raw, firewall_keys())(context, node, root);
    raw_ = std::move(root.raw);
  }

  std::shared_ptr<const FunctionSettings> finish(Problems& problems,
                                                 const Surroundings& around) override {
    Maker(problems, around, raw_).make();
    return std::make_shared<const FirewallSettings>(std::move(raw_.settings));
  }

 private:
  RawFirewall raw_;
};

}  // namespace

std::unique_ptr<SettingsReader> firewall_reader() { return std::make_unique<FirewallReader>(); }

}  // namespace millrace
