#include "function/firewall/raw.h"

#include <utility>

namespace millrace {

using namespace config;

namespace {

void read_sets(const Context& context, const toml::node& node, RawFirewall& out) {
  const toml::table* const table = node.as_table();
  if (table == nullptr) return context.problem(node, kind_of(node) + ": give a table");
  for (const auto& [name, value] : *table) {
    const Context here = context.sub(name.str());
    const bool is_list = value.is_array();
    if (!is_list) here.problem(value, kind_of(value) + ": give a list of prefixes");
    RawSet& set = out.sets.emplace_back();
    set.name = {std::string(name.str()), value.source().begin.line, true};
    if (is_list && !value.as_array()->empty()) set.prefixes = read_texts(here, value);
  }
}

void read_limit(const Context& context, const toml::node& node, RawRule& out) {
  using L = RawLimit;
  const Keys<L> keys{{"rate", text(&L::rate), true},
                     {"burst", integer(&L::burst, 1, 1'000'000, "connections")},
                     {"per", choice(&L::per, {{"rule", RateLimit::Per::rule},
                                              {"source", RateLimit::Per::source}})}};
  table(&Located<RawLimit>::value, keys)(context, node, out.limit);
  out.limit.line = node.source().begin.line;
  out.limit.given = node.is_table();
}

std::vector<std::pair<std::string, Action>> actions() {
  return {{"accept", Action::accept}, {"drop", Action::drop}, {"reject", Action::reject}};
}

Keys<RawRule> rule_keys() {
  using R = RawRule;
  return {
      {"name", text(&R::name), true},
      {"from", texts(&R::from)},
      {"to", texts(&R::to)},
      {"protocol", texts(&R::protocols)},
      {"source", texts(&R::source)},
      {"destination", texts(&R::destination)},
      {"source_ports", texts(&R::source_ports)},
      {"destination_ports", texts(&R::destination_ports)},
      {"icmp", texts(&R::icmp)},
      {"limit", read_limit},
      {"log", boolean(&R::logs)},
      {"action", choice(&R::action, actions()), true},
  };
}

}  // namespace

Keys<RawFirewall> firewall_keys() {
  using F = FirewallSettings;
  const auto in_settings = [](auto read) {
    return [read](const Context& context, const toml::node& node, RawFirewall& out) {
      read(context, node, out.settings);
    };
  };
  return {
      {"default", in_settings(choice(&F::by_default, actions()))},
      {"pickup",
       in_settings(choice(&F::pickup, {{"strict", Pickup::strict}, {"loose", Pickup::loose}}))},
      {"on_reload", in_settings(choice(&F::on_reload, {{"keep", OnReload::keep},
                                                       {"recheck", OnReload::recheck}}))},
      {"log", in_settings(boolean(&F::default_logs))},
      {"log_rate", text(&RawFirewall::log_rate)},
      {"sets", read_sets},
      {"rule", tables(&RawFirewall::rules, rule_keys())},
  };
}

Keys<RawZone> zone_keys() {
  using Z = RawZone;
  return {
      {"name", text(&Z::name), true},
      {"ports", texts(&Z::ports)},
      {"prefixes", texts(&Z::prefixes)},
  };
}

}  // namespace millrace
