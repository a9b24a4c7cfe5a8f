// Reads [[nat.pool]], [[nat.rule]], [[nat.forward]] and [nat.log].
#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/address.h"
#include "core/address_numbers.h"
#include "core/parameters.h"
#include "function/nat/forward_ends.h"
#include "function/nat/port_blocks.h"
#include "function/nat/raw.h"
#include "function/nat/settings.h"
#include "function/reader.h"
#include "host/addresses_of.h"
#include "toml/addresses.h"
#include "toml/keys.h"

namespace millrace {
namespace {

using namespace config;

/// Turns what was read into settings.
class Maker {
 public:
  Maker(Problems& problems, const Surroundings& around, const RawNat& raw)
      : problems_(problems), around_(around), raw_(raw) {}

  std::shared_ptr<const NatSettings> make() {
    for (const RawPool& pool : raw_.pools) add_pool(pool);
    check_overlaps();
    check_size();
    settings_->customers = around_.customers;
    for (const auto& port : around_.ports) settings_->ports.push_back(port.name);
    for (const RawNatRule& rule : raw_.rules) add_rule(rule);
    settings_->index();
    number_pools_of_groups();
    check_shared();
    check_places();
    for (const RawForward& forward : raw_.forwards) add_forward(forward);
    settings_->forwards = NatForwards(std::move(forwards_));
    check_insides();
    settings_->index();
    for (const auto& own : around_.v4.own) {
      settings_->hosts.push_back(own.address);
      if (settings_->pool_with(own.address) != nullptr || settings_->forwards.has(own.address))
        settings_->own.push_back(own.address);
    }
    settings_->hosts_of_customers = around_.v4.of_customers.own;
    std::ranges::sort(settings_->hosts);
    std::ranges::sort(settings_->own);
    if (raw_.log.line != 0) read_log(raw_.log);
    return settings_;
  }

 private:
  using PrefixV4 = Prefix<AddressV4>;

  void add_pool(const RawPool& raw) {
    NatPool& pool = settings_->pools.emplace_back(raw.is);
    pool.name = raw.name.value;
    const auto same = std::ranges::find(settings_->pools, pool.name, &NatPool::name);
    if (raw.name.given && pool.name.empty())
      problems_.add(raw.name.line, "nat.pool.name", "is empty: give a name");
    if (raw.name.given && &*same != &pool)
      problems_.add(raw.name.line, "nat.pool.name",
                    in_quotes(pool.name) + " is there already: give another");
    if (!std::has_single_bit(pool.block_size))
      problems_.add(raw.line, "nat.pool.block_size",
                    std::to_string(pool.block_size) +
                        " is no power of 2: give 64, 128, 256, 512, 1024, 2048 or 4096");
    if (raw.ports.given) read_ports(raw.ports, pool);
    if (pool.blocks_per_address() == 0)
      problems_.add(raw.line, "nat.pool.ports",
                    "are fewer than block_size, " + std::to_string(pool.block_size) +
                        ": give more ports, or smaller blocks");
    for (const Text& text : raw.addresses) {
      const auto prefix = prefix_from(text, "nat.pool.addresses");
      if (!prefix) continue;
      constexpr unsigned kShortest = 16;
      if (prefix->bits < kShortest) {
        problems_.add(text.line, "nat.pool.addresses",
                      to_string(*prefix) + " has more than 65536 addresses: give a longer prefix");
        continue;
      }
      check_unicast(prefix->address, text, "nat.pool.addresses");
      pool.prefixes.push_back(*prefix);
      of_pools_.emplace_back(*prefix, text.line);
    }
  }

  /// Reads "1024-65535".
  void read_ports(const Text& text, NatPool& pool) {
    const std::string_view all = text.value;
    const auto dash = all.find('-');
    const auto first = parse_number(all.substr(0, dash), 65'535);
    const auto last = dash == all.npos ? std::nullopt : parse_number(all.substr(dash + 1), 65'535);
    if (!first || !last || *first > *last || *first == 0) {
      problems_.add(text.line, "nat.pool.ports",
                    in_quotes(all) + " is no range of ports: give one like \"1024-65535\"");
      return;
    }
    pool.first_port = static_cast<std::uint16_t>(*first);
    pool.last_port = static_cast<std::uint16_t>(*last);
  }

  /// Reads a prefix; with `may_be_all`, also 0.0.0.0/0.
  std::optional<PrefixV4> prefix_from(const Text& text, std::string_view key,
                                      bool may_be_all = false) {
    const AddressAndBits parts(text.value);
    const auto address = parse_address<AddressV4>(parts.address);
    if (!address) {
      problems_.add(text.line, key,
                    in_quotes(text.value) +
                        " is no IPv4 prefix: give one like 198.51.100.0/26 or 198.51.100.1");
      return std::nullopt;
    }
    const auto prefix = read_prefix(*address, parts.bits);
    if (prefix && (may_be_all || prefix->bits != 0)) return *prefix;
    problems_.add(text.line, key,
                  prefix ? "0.0.0.0/0 is too much: give a longer prefix" : prefix.error());
    return std::nullopt;
  }

  /// Notes a problem for a public address, or the first one of a prefix, that no host may have.
  void check_unicast(const AddressV4& address, const Text& text, std::string_view key) {
    if (!is_unicast(address))
      problems_.add(text.line, key,
                    text.value +
                        " is of 0.0.0.0/8, 127.0.0.0/8 or 224.0.0.0/3, which are no addresses of "
                        "hosts: give public ones");
  }

  /// Notes a problem for each prefix of a pool that is within another one.
  void check_overlaps() {
    std::ranges::sort(of_pools_);
    for (std::size_t n = 1; n < of_pools_.size(); ++n) {
      const auto& [before, line] = of_pools_[n - 1];
      if (!before.contains(of_pools_[n].first.address)) continue;
      problems_.add(std::max(line, of_pools_[n].second), "nat.pool.addresses",
                    to_string(of_pools_[n].first) + " is within " + to_string(before) +
                        ", which is in a pool already: give each address once");
      of_pools_[n].first = before;
    }
    for (const auto& [pool, line] : of_pools_) {
      for (const CustomerGroup& group : around_.customers->groups()) {
        if (!group.vlans.is_empty()) continue;
        if (pool.contains(group.ends.address) || group.ends.contains(pool.address))
          problems_.add(line, "nat.pool.addresses",
                        to_string(pool) + " has far ends of customers' tunnels, " +
                            to_string(group.ends) + ": give others");
      }
    }
  }

  void check_size() {
    std::uint64_t blocks = 0;
    for (const NatPool& pool : settings_->pools) {
      for (const PrefixV4& prefix : pool.prefixes)
        blocks += std::uint64_t{addresses_in(prefix)} * pool.blocks_per_address();
    }
    if (blocks > PortBlocks::kMostBlocks)
      problems_.add(raw_.pools.front().line, "nat.pool",
                    "the pools have " + std::to_string(blocks) + " port blocks, more than " +
                        std::to_string(PortBlocks::kMostBlocks) +
                        ": give larger blocks, or fewer addresses");
    if (raw_.pools.size() > PortBlocks::kMostPools)
      problems_.add(raw_.pools[PortBlocks::kMostPools].line, "nat.pool",
                    "there are over " + std::to_string(PortBlocks::kMostPools) + ": give fewer");
  }

  void add_rule(const RawNatRule& raw) {
    NatRule& rule = settings_->rules.emplace_back();
    std::vector<std::string> names;
    for (const NatPool& pool : settings_->pools) names.push_back(pool.name);
    const auto pool = std::ranges::find(names, raw.pool.value);
    if (raw.pool.given && pool == names.end())
      problems_.add(
          raw.pool.line, "nat.rule.pool",
          "no pool is called " + in_quotes(raw.pool.value) +
              (names.empty() ? ": give a [[nat.pool]]" : ": give one of " + joined(names, ", ")));
    rule.pool = static_cast<std::uint16_t>(pool - names.begin());
    rule.customer_bits = raw.customer_prefix.value_or(32);
    rule.source_groups = raw.source_groups;
    add_customers(raw, rule);
    check_groups(raw, rule);
    for (const Text& text : raw.source) {
      const auto prefix = prefix_from(text, "nat.rule.source", rule.source_groups != 0);
      if (!prefix) continue;
      if (const unsigned first = prefix->address.bytes[0];
          prefix->bits != 0 && (first == 0 || first == 127)) {
        problems_.add(text.line, "nat.rule.source",
                      to_string(*prefix) + " has addresses of " + std::to_string(first) +
                          ".0.0.0/8, which are no customer's: give others");
        continue;
      }
      if (!check_once(*prefix, text.line, rule)) continue;
      const auto holds = [&](const auto& one) {
        return one.first.bits <= prefix->bits && one.first.contains(prefix->address);
      };
      const auto public_one = std::ranges::find_if(of_pools_, holds);
      if (public_one != of_pools_.end())
        problems_.add(text.line, "nat.rule.source",
                      to_string(*prefix) + " is within the pools' " + to_string(public_one->first) +
                          ": customers need addresses of their own");
      rule.sources.push_back(*prefix);
    }
    for (const Text& text : raw.destination) {
      const auto prefix = prefix_from(text, "nat.rule.destination");
      if (prefix) rule.destinations.push_back(*prefix);
    }
    for (const Text& text : raw.exempt) {
      const auto prefix = prefix_from(text, "nat.rule.exempt");
      if (!rule.customers.empty()) {
        problems_.add(text.line, "nat.rule.exempt",
                      "replies would not find these customers: leave it out");
        break;
      }
      if (prefix) rule.exempt.push_back(*prefix);
    }
    for (auto* const all : {&rule.destinations, &rule.exempt}) {
      std::ranges::sort(*all);
      all->erase(std::ranges::unique(*all).begin(), all->end());
    }
  }

  void check_groups(const RawNatRule& raw, const NatRule& rule) {
    if (rule.source_groups == 0) return;
    const auto problem = [&](const std::string& what) {
      problems_.add(raw.line, "nat.rule.source_groups", what);
    };
    if (raw.customer_prefix) problem("customer_prefix is given, too: leave one of them out");
    if (!rule.customers.empty())
      problem("is for customers without tunnels and VLANs: leave it out");
    if (rule.pool < settings_->pools.size() && settings_->pools[rule.pool].is_deterministic)
      problem("cannot have a deterministic pool: give another pool");
  }

  /// Gives each pool with groups of sources a number, which its name chooses among those that are
  /// left: as far as possible, a pool's number depends on no other pool.
  void number_pools_of_groups() {
    std::map<std::string, std::vector<NatRule*>> pools;
    for (NatRule& rule : settings_->rules) {
      if (rule.source_groups != 0 && rule.pool < settings_->pools.size())
        pools[settings_->pools[rule.pool].name].push_back(&rule);
    }
    if (pools.size() > SourceGroup::kMostPools)
      return problems_.add(raw_.rules.front().line, "nat.rule.source_groups",
                           std::to_string(pools.size()) +
                               " pools have groups of sources, more than " +
                               std::to_string(SourceGroup::kMostPools) + ": give fewer pools");
    std::set<std::uint8_t> taken;
    for (const auto& [name, rules] : pools) {
      std::uint32_t hash = 2166136261;  // FNV-1a
      for (const char c : name) hash = (hash ^ static_cast<std::uint8_t>(c)) * 16777619;
      auto number = static_cast<std::uint8_t>(hash >> 24);
      while (!taken.insert(number).second) ++number;
      for (NatRule* const rule : rules) rule->number_of_pool = number;
    }
  }

  /// Notes a problem if two rules would have a customer in common.
  void check_shared() {
    const auto shared = settings_->shared_customer();
    if (!shared) return;
    const auto raw_of = [this](const NatRule* rule) -> const RawNatRule& {
      return raw_.rules[static_cast<std::size_t>(rule - settings_->rules.data())];
    };
    const auto& [one, other] =
        std::minmax(raw_of(shared->rule), raw_of(shared->other),
                    [](const RawNatRule& a, const RawNatRule& b) { return a.line < b.line; });
    const std::string address = to_string(address_with(shared->customer));
    const auto bits = [](const RawNatRule& rule) {
      return std::to_string(rule.customer_prefix.value_or(32));
    };
    problems_.add(other.line, "nat.rule.customer_prefix",
                  address + "/" + bits(other) + " and, of the rule in line " +
                      std::to_string(one.line) + ", " + address + "/" + bits(one) +
                      " would be one customer, whose addresses the rules divide: give both rules "
                      "the same customer_prefix, or all of these addresses to one of them");
  }

  /// Notes a problem for each deterministic pool whose customers do not fit.
  void check_places() {
    for (std::size_t n = 0; n < raw_.pools.size(); ++n) {
      const NatPool& pool = settings_->pools[n];
      if (!pool.is_deterministic || pool.places.size() <= pool.ranges()) continue;
      problems_.add(raw_.pools[n].line, "nat.pool.deterministic",
                    "the rules of the pool " + in_quotes(pool.name) + " have " +
                        std::to_string(pool.places.size()) + " customers, but its " +
                        std::to_string(pool.addresses()) + " addresses have " +
                        std::to_string(pool.ranges()) + " ranges of " +
                        std::to_string(pool.block_size * pool.blocks_per_customer) +
                        " ports: give more addresses, fewer blocks_per_customer, or customers to "
                        "another pool");
    }
  }

  /// Reads which customers a rule is for.
  void add_customers(const RawNatRule& raw, NatRule& rule) {
    constexpr std::string_view kKey = "nat.rule.customers";
    const bool are_known = !problems_.has("port.");
    for (const Text& text : raw.customers) {
      if (around_.customers->empty() && are_known) {
        problems_.add(text.line, kKey,
                      "no port has customers: give a [[port]] with customers, or leave this key "
                      "out");
        return;
      }
      if (lower(text.value) == "any") {
        rule.is_for_any = true;
        rule.customers = {{1, Customers::kMost + 1}};
        continue;
      }
      const auto named = around_.customers->named(text.value);
      if (named && !rule.is_for_any) rule.customers.push_back(*named);
      if (!named && are_known)
        problems_.add(text.line, kKey,
                      "no customer is called " + in_quotes(text.value) +
                          ": give \"any\", or names, tunnels' far ends, prefixes, or VLANs like "
                          "access.100 of [[port]].customers");
    }
    if (!rule.customers.empty() && raw.customer_prefix)
      problems_.add(raw.line, "nat.rule.customer_prefix",
                    "is for customers without tunnels and VLANs: leave it out");
  }

  /// Notes a problem if another rule has the same source for some of the same customers.
  bool check_once(const PrefixV4& prefix, std::uint32_t line, const NatRule& rule) {
    auto& taken = sources_[{prefix, rule.is_for_any}];
    std::vector<std::pair<Zone, Zone>> ranges = rule.customers;
    if (ranges.empty()) ranges.emplace_back(0, 1);
    for (const auto& [first, behind] : ranges) {
      const auto next = taken.lower_bound(behind);
      if (next == taken.begin() || std::prev(next)->second.behind <= first) continue;
      problems_.add(line, "nat.rule.source",
                    to_string(prefix) + " is there already, in line " +
                        std::to_string(std::prev(next)->second.line) + ": give each prefix once");
      return false;
    }
    if (rule.source_groups == 0) alone_.insert(prefix);
    std::ranges::sort(ranges);
    Zone reached = 0;  // a rule's own ranges may overlap
    for (const auto& [first, behind] : ranges) {
      if (behind > reached) taken[std::max(first, reached)] = {behind, line};
      reached = std::max(reached, behind);
    }
    return true;
  }

  void add_forward(const RawForward& raw) {
    if (!raw.outside.given || !raw.inside.given) return;
    auto forward = public_end(problems_, raw.outside);
    if (!forward || !take_inside(problems_, raw.inside, *forward)) return;
    check_unicast(forward->address, raw.outside, "nat.forward.public");
    check_public(raw.outside, *forward);
    const auto zone = zone_named(raw.customer);
    if (!zone) return;
    const NatRule* const rule = settings_->rule_of(*zone, forward->inside);
    if (rule == nullptr && *zone == 0 && settings_->is_ports_customers(forward->inside)) {
      problems_.add(raw.inside.line, "nat.forward.inside",
                    "the rule with the source " + to_string(forward->inside) +
                        " is for customers behind tunnels and in VLANs: say with the key customer "
                        "which one has it");
    } else if (rule == nullptr) {
      problems_.add(raw.inside.line, "nat.forward.inside",
                    "no rule has the source " + to_string(forward->inside) +
                        ": give a [[nat.rule]] for this customer");
    }
    if (rule != nullptr)
      forward->customer = NatSettings::customer_by(*rule, *zone, forward->inside);
    const auto is_there = [&](const Text& at, std::string_view key, std::size_t other,
                              const std::string& what) {
      problems_.add(at.line, key, what + ", in line " + std::to_string(forward_lines_[other]));
    };
    if (const auto other = read_.overlapping(*forward))
      is_there(raw.outside, "nat.forward.public", *other,
               forward->public_text() + " overlaps " + forwards_[*other].public_text());
    if (const auto other = read_.whole_to(*forward))
      is_there(raw.inside, "nat.forward.inside", *other,
               to_string(forward->inside) + " has a public address of its own already");
    read_.add(*forward, forwards_.size());
    forwards_.push_back(*forward);
    forward_lines_.push_back(raw.outside.line);
    inside_lines_.push_back(raw.inside.line);
  }

  /// Notes a problem for each inside end that is public, too: packets would go round and round.
  void check_insides() {
    const auto all = settings_->forwards.all();
    for (std::size_t n = 0; n < all.size(); ++n) {
      if (settings_->forwards.has(all[n].inside))
        problems_.add(inside_lines_[n], "nat.forward.inside",
                      to_string(all[n].inside) +
                          " is the public address of a forward: give the customer's own");
    }
  }

  /// Returns the number of the customer of a port with that name; 0 if none is given.
  std::optional<Zone> zone_named(const Text& name) {
    if (!name.given) return 0;
    const auto named = around_.customers->named(name.value);
    if (named && named->second == named->first + 1) return named->first;
    if (problems_.has("port.")) return std::nullopt;
    problems_.add(name.line, "nat.forward.customer",
                  in_quotes(name.value) +
                      " is no customer of a port: give a name, a far end or a VLAN like access.100 "
                      "of [[port]].customers, or leave this key out");
    return std::nullopt;
  }

  void check_public(const Text& text, const NatForward& forward) {
    const auto problem = [&](const std::string& what) {
      problems_.add(text.line, "nat.forward.public", to_string(forward.address) + what);
    };
    const NatPool* const pool = settings_->pool_with(forward.address);
    bool is_customers = false;
    for (unsigned bits = 0; bits <= 8 * AddressV4::kBytes; ++bits)
      is_customers |= alone_.contains(PrefixV4{prefix_of(forward.address, bits), bits});
    if (is_customers && pool == nullptr)
      problem(" is a customer's, by the source of a rule: give a public address");
    if (!forward.is_whole()) return;
    if (pool != nullptr)
      problem(" is in the pool " + in_quotes(pool->name) +
              ", whose addresses customers share: take it out of the pool, or give a port");
    const auto is_own = [&](const auto& own) { return own.address == forward.address; };
    if (std::ranges::any_of(around_.v4.own, is_own))
      problem(" is millrace's own address: give a port, or another address");
  }

  void read_log(const RawNatLog& raw) {
    NatLog& log = settings_->log;
    log.refuses = raw.refuses;
    if (!raw.file.given && !raw.ipfix.given)
      problems_.add(raw.line, "nat.log", "has no place to write to: give file or ipfix, or both");
    if (raw.file.given && raw.file.value.empty())
      problems_.add(raw.file.line, "nat.log.file", "is empty: give a path");
    log.file = raw.file.value;
    if (!raw.ipfix.given) return;
    const auto collector = parse_backend(raw.ipfix.value);
    if (collector && collector->port.value_or(0) != 0) {
      log.ipfix = {collector->address, *collector->port};
    } else {
      problems_.add(raw.ipfix.line, "nat.log.ipfix",
                    in_quotes(raw.ipfix.value) +
                        " is no address with a port: give one like \"203.0.113.9:4739\"");
    }
  }

  Problems& problems_;
  const Surroundings& around_;
  const RawNat& raw_;
  std::shared_ptr<NatSettings> settings_ = std::make_shared<NatSettings>();
  std::vector<std::pair<PrefixV4, std::uint32_t>> of_pools_;  // all pools' prefixes, with lines
  struct Taken {
    Zone behind = 0;
    std::uint32_t line = 0;
  };
  // Customers, by the first of a range, with a source in a rule that is, or is not, for any.
  std::map<std::pair<PrefixV4, bool>, std::map<Zone, Taken>> sources_;
  std::set<PrefixV4> alone_;  // sources of rules without groups
  std::vector<NatForward> forwards_;
  ForwardEnds read_;  // of `forwards_`
  std::vector<std::uint32_t> forward_lines_;
  std::vector<std::uint32_t> inside_lines_;
};

class NatReader final : public SettingsReader {
 public:
  void read(std::string_view, const Context& context, const toml::node& node) override {
    table(&NatReader::raw_, nat_keys())(context, node, *this);
  }
  std::shared_ptr<const FunctionSettings> finish(Problems& problems,
                                                 const Surroundings& around) override {
    return Maker(problems, around, raw_).make();
  }

 private:
  RawNat raw_;
};

}  // namespace

std::unique_ptr<SettingsReader> nat_reader() { return std::make_unique<NatReader>(); }

}  // namespace millrace
