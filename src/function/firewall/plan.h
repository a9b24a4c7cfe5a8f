// The plan by which all workers' firewalls decide: rules, sets and zones in the form in which they
// are searched.
//
// The thread that calls the deployment makes plans; a plan never changes, so any thread may read
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/of_family.h"
#include "core/protocol.h"
#include "function/firewall/classifier.h"
#include "function/firewall/log.h"
#include "function/firewall/settings.h"
#include "function/firewall/zones.h"
#include "function/function.h"

namespace millrace {

/// A decision about a connection.
struct Ruling {
  RuleId rule = 0;
  Action action = Action::drop;
  bool logs = false;
  std::uint8_t from = kNoZone;  ///< zones
  std::uint8_t to = kNoZone;
  const RateLimit* limit = nullptr;  ///< limit of the rule; null: none. Valid as long as the plan
};

/// Returns the verdict on a packet that would begin a connection.
constexpr Verdict verdict_of(Action action) {
  switch (action) {
    case Action::accept:
      return Verdict::tracked;
    case Action::drop:
      return Verdict::denied;
    case Action::reject:
      return Verdict::rejected;
  }
  return Verdict::denied;
}

/// The rules of one family, without the sets' contents.
template <class A>
using Rules = std::shared_ptr<const Classifier<A>>;

/// True if a packet that arrives and leaves with these keys goes to a customer behind a tunnel. A
/// packet that no function rewrites keeps the zone of its sender.
template <class K>
bool leaves_to_customer(const K& arrives, const K& leaves) {
  return leaves.number_of_zone() != 0 && (leaves.number_of_zone() != arrives.number_of_zone() ||
                                          leaves.destination != arrives.destination);
}

struct FirewallPlan {
  std::shared_ptr<const FirewallSettings> settings;
  Rules<AddressV4> v4;
  Rules<AddressV6> v6;
  AddressSets<AddressV4> sets_v4;
  AddressSets<AddressV6> sets_v6;
  /// Shared by all plans and workers; null: no rule has had a limit.
  std::shared_ptr<RateLimits> limits;
  std::vector<Ruling> rulings;  ///< indexed by the rule's place
  Ruling by_default;
  std::uint32_t log_names = 0;  ///< number of the names in the log (`FirewallLog::rename`)
  /// The ids of the rules, by `hash_of_name`.
  std::unordered_map<std::uint64_t, RuleId> ids;
  std::vector<std::uint64_t> names;       ///< hashes of names; indexed by id
  std::vector<std::uint32_t> port_names;  ///< hashes of ports' names; indexed by link

  /// Returns what is known of a connection whose originator's packets arrive on `link` with that
  /// key. `traversal`: as in `Opening`. `message`: type and code of an ICMP query.
  template <class K>
  PacketFields<typename K::Address> fields_of(const K& key, const Traversal<K>* traversal,
                                              std::uint8_t link, std::uint16_t message) const {
    const K& first = traversal != nullptr ? traversal->arrives : key;
    const K& last = traversal != nullptr ? traversal->leaves : key;
    const auto& zones = settings->zone_tables->template family<typename K::Address>();
    const Zone customer = last.number_of_zone();
    const bool has_port = has_ports(key.protocol);
    return {.source = first.source,
            .destination = last.destination,
            .source_port = has_port ? first.source_port : std::uint16_t{0},
            .destination_port = has_port ? last.destination_port : message,
            .protocol = key.protocol,
            .from = first.number_of_zone() != 0 ? zones.at(link) : zones.from(first.source, link),
            .to = leaves_to_customer(first, last) ? zones.at(link_of(customer))
                  : customer != 0                 ? zones.to(last.destination, link_of(customer))
                  : traversal != nullptr && traversal->comes_again
                      ? zones.around(last.destination)
                      : zones.to(traversal != nullptr ? traversal->sent_to : key.destination)};
  }
  /// Returns the port of a customer.
  unsigned link_of(Zone customer) const {
    const auto access = settings->customers->access_of(customer);
    return access ? access->link : kNoLink;
  }
  /// Returns the ruling on a packet.
  template <class A>
  Ruling ruling(const PacketFields<A>& packet) const {
    const auto& rules = of_family<A>(v4, v6);
    const std::uint32_t rule = rules->find(packet, of_family<A>(sets_v4, sets_v6));
    Ruling is = rule == rules->kNone ? by_default : rulings[rule];
    is.from = packet.from;
    is.to = packet.to;
    return is;
  }
  /// Returns the link of a port by the hash of its name; `kNoLink` if there is none.
  std::uint8_t link_named(std::uint32_t hash) const;
};

/// Hashes a name. The hash is the same in all versions of the program.
std::uint64_t hash_of_name(std::string_view name);

/// The ids of rules' names, which a rule keeps from one plan to the next.
class RuleIds {
 public:
  RuleIds() { known_.emplace_back(kDefaultName); }

  /// Returns the id of that name, which gets a new one if it has none; then there must be room.
  RuleId id_of(const std::string& name);
  /// Returns the name of an id; empty if the id is free.
  const std::string& name_of(RuleId id) const { return known_[id]; }
  std::size_t size() const { return known_.size(); }
  bool contains(const std::string& name) const { return ids_.contains(name); }
  /// Returns for how many more names there are ids.
  std::size_t room() const { return kRuleIds - known_.size() + free_.size(); }
  /// Makes an id available for another name. No connection may have it.
  void forget(RuleId id) {
    ids_.erase(known_[id]);
    known_[id].clear();
    free_.push_back(id);
  }

 private:
  std::vector<std::string> known_;  // by id
  std::unordered_map<std::string, RuleId> ids_;
  std::vector<RuleId> free_;
};

/// Makes a plan. `before`: the plan now, whose parts the new one shares where they are the same;
/// null: none. `sets`: the present prefixes of the sets of `settings`. Other settings than those of
/// `before` get names in `log`.
std::shared_ptr<const FirewallPlan> make_plan(std::shared_ptr<const FirewallSettings> settings,
                                              std::span<const PrefixSet> sets, RuleIds& ids,
                                              FirewallLog& log, const FirewallPlan* before);

}  // namespace millrace
