#include "function/firewall/plan.h"

#include <utility>

#include "core/burst.h"
#include "core/json.h"

namespace millrace {
namespace {

template <class A>
std::vector<RuleMatch<A>> matches_of(const FirewallSettings& settings) {
  std::vector<RuleMatch<A>> all;
  for (const FirewallRule& rule : settings.rules) all.push_back(rule.match<A>());
  return all;
}

template <class A>
AddressSets<A> address_sets(std::span<const PrefixSet> sets) {
  std::vector<std::vector<Prefix<A>>> all;
  for (const PrefixSet& set : sets) all.push_back(set.prefixes<A>());
  return AddressSets<A>(all);
}

std::string in_json(std::string_view name) {
  return Json(name).dump(-1, ' ', false, Json::error_handler_t::replace);
}

FirewallLog::Names names_in_log(const FirewallSettings& settings, const RuleIds& ids) {
  FirewallLog::Names names;
  for (std::size_t id = 0; id < ids.size(); ++id)
    names.rules.push_back(in_json(ids.name_of(static_cast<RuleId>(id))));
  for (const std::string& zone : settings.zones) names.zones.push_back(in_json(zone));
  for (const std::string& port : settings.ports) names.ports.push_back(in_json(port));
  names.customers = settings.customers;
  return names;
}

std::uint32_t half_of(std::uint64_t hash) { return static_cast<std::uint32_t>(hash ^ hash >> 32); }

}  // namespace

// FNV-1a (Fowler, Noll and Vo).
std::uint64_t hash_of_name(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

RuleId RuleIds::id_of(const std::string& name) {
  const auto [at, is_new] = ids_.emplace(name, RuleId{0});
  if (!is_new) return at->second;
  if (free_.empty()) {
    at->second = static_cast<RuleId>(known_.size());
    known_.push_back(name);
  } else {
    at->second = free_.back();
    free_.pop_back();
    known_[at->second] = name;
  }
  return at->second;
}

std::uint8_t FirewallPlan::link_named(std::uint32_t hash) const {
  for (std::size_t link = 0; link < port_names.size(); ++link) {
    if (port_names[link] == hash) return static_cast<std::uint8_t>(link);
  }
  return kNoLink;
}

std::shared_ptr<const FirewallPlan> make_plan(std::shared_ptr<const FirewallSettings> settings,
                                              std::span<const PrefixSet> sets, RuleIds& ids,
                                              FirewallLog& log, const FirewallPlan* before) {
  auto plan = std::make_shared<FirewallPlan>();
  plan->settings = std::move(settings);
  const FirewallSettings& is = *plan->settings;
  if (before != nullptr && before->settings == plan->settings) {
    plan->v4 = before->v4;
    plan->v6 = before->v6;
  } else {
    plan->v4 = std::make_shared<const Classifier<AddressV4>>(matches_of<AddressV4>(is));
    plan->v6 = std::make_shared<const Classifier<AddressV6>>(matches_of<AddressV6>(is));
  }
  plan->sets_v4 = address_sets<AddressV4>(sets);
  plan->sets_v6 = address_sets<AddressV6>(sets);
  if (before != nullptr) plan->limits = before->limits;
  for (const FirewallRule& rule : is.rules) {
    plan->rulings.push_back({.rule = ids.id_of(rule.name),
                             .action = rule.action,
                             .logs = rule.logs,
                             .limit = rule.limit ? &*rule.limit : nullptr});
    if (rule.limit && plan->limits == nullptr) plan->limits = std::make_shared<RateLimits>();
  }
  plan->by_default = {.rule = 0, .action = is.by_default, .logs = is.default_logs};
  plan->log_names = before != nullptr && before->settings == plan->settings
                        ? before->log_names
                        : log.rename(names_in_log(is, ids));
  for (std::size_t id = 0; id < ids.size(); ++id) {
    const std::uint64_t name = hash_of_name(ids.name_of(static_cast<RuleId>(id)));
    plan->names.push_back(name);
    plan->ids.emplace(name, static_cast<RuleId>(id));
  }
  for (const std::string& port : is.ports) plan->port_names.push_back(half_of(hash_of_name(port)));
  return plan;
}

}  // namespace millrace
