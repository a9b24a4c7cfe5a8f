// The settings of NAT: [[nat.pool]], [[nat.rule]], [[nat.forward]] and [nat.log] in a
// configuration.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/address.h"
#include "core/customers.h"
#include "core/intervals.h"
#include "core/prefix.h"
#include "core/prefix_table.h"
#include "function/nat/customer_number.h"
#include "function/nat/forwards.h"
#include "function/settings.h"

namespace millrace {

class SettingsReader;

/// The parts of a remote end on which a mapping or a filter depends (RFC 4787, 4.1 and 5).
enum class Dependence : std::uint8_t {
  endpoint_independent,
  address_dependent,
  address_and_port_dependent,
};
std::string_view to_string(Dependence dependence);

/// Public addresses, and how their ports are given to customers.
struct NatPool {
  std::string name;
  std::vector<Prefix<AddressV4>> prefixes;  ///< distinct; none is within another one, of any pool
  std::uint16_t first_port = 1024;
  std::uint16_t last_port = 65535;
  /// The remote ends for which an inside endpoint keeps its public end.
  Dependence mapping = Dependence::endpoint_independent;
  /// The remote ends whose packets to a public end pass: those that the customer has sent to.
  Dependence filtering = Dependence::address_and_port_dependent;
  std::uint32_t block_size = 512;  ///< ports of a block: a power of 2, 64 to 4096
  std::uint32_t blocks_per_customer = 4;
  std::uint32_t sessions_per_customer = 16'000;  ///< 65,535 at most

  bool has(const AddressV4& address) const {
    return std::ranges::any_of(prefixes,
                               [&address](const auto& prefix) { return prefix.contains(address); });
  }
  std::uint32_t blocks_per_address() const { return (last_port - first_port + 1U) / block_size; }
  /// True if several sessions may share a public port: no mapping outlives its session, and none
  /// is asked for by packets from outside.
  bool shares_ports() const {
    return mapping == Dependence::address_and_port_dependent &&
           filtering == Dependence::address_and_port_dependent;
  }
  /// True if the remote addresses that may send to a mapping are kept beside it.
  bool has_peers() const {
    return mapping == Dependence::endpoint_independent &&
           filtering == Dependence::address_dependent;
  }
  friend bool operator==(const NatPool&, const NatPool&) = default;
};

/// The customers of a pool.
struct NatRule {
  /// Numbers of customers behind tunnels, each from the first up to before the second; empty: the
  /// rule is for packets that come from no tunnel.
  std::vector<std::pair<Zone, Zone>> customers;
  bool is_for_any = false;  ///< `customers` are all: rules that name a customer go before this one
  /// Bits of an address that are one customer, for packets from no tunnel.
  unsigned customer_bits = 32;
  std::vector<Prefix<AddressV4>> sources;  ///< distinct, also from those of other rules
  std::vector<Prefix<AddressV4>> exempt;   ///< destinations to which nothing is translated
  std::uint16_t pool = 0;                  ///< place in `NatSettings::pools`
  PrefixTable<AddressV4> exempt_table;

  bool has_same_customers(const NatRule& other) const {
    return sources == other.sources && pool == other.pool && customers == other.customers &&
           customer_bits == other.customer_bits;
  }
};

/// The log of port blocks.
struct NatLog {
  /// A collector of IPFIX, over UDP.
  struct Collector {
    AnyAddress address;
    std::uint16_t port = 0;

    friend bool operator==(const Collector&, const Collector&) = default;
  };

  std::string file;  ///< path; empty: there is none
  std::optional<Collector> ipfix;
  bool refuses = false;  ///< true: no customer gets a block that cannot be logged

  bool is_there() const { return !file.empty() || ipfix; }
  friend bool operator==(const NatLog&, const NatLog&) = default;
};

struct NatSettings final : FunctionSettings {
  std::vector<NatPool> pools;  ///< with distinct names
  std::vector<NatRule> rules;
  NatForwards forwards;  ///< whole addresses are in no pool; customers of rules are inside
  NatLog log;
  std::vector<AddressV4> hosts;  ///< the host's own addresses, sorted
  /// The host's own addresses in customers' VLANs.
  std::vector<HostAddresses<AddressV4>::Own> hosts_of_customers;
  std::vector<AddressV4> own;  ///< hosts' addresses that are also a pool's or forward's, sorted
  /// Behind tunnels; never null.
  std::shared_ptr<const Customers> customers = std::make_shared<const Customers>();
  std::vector<std::string> ports;  ///< names, by link

  /// Fills the tables below. To be called once the members above are complete.
  void index();

  const FunctionKind& kind() const override;
  FunctionFacts facts() const override;
  std::vector<std::string> unchangeable(const FunctionSettings& is) const override;
  void append_doubts(const Surroundings& around, std::vector<std::string>& all) const override;
  void tell(HostAddresses<AddressV4>& v4, HostAddresses<AddressV6>& v6) const override;

  /// Returns the rule for packets of a customer (0: of no tunnel) whose source prefix is the
  /// longest around the address; null if there is none.
  const NatRule* rule_of(Zone customer, const AddressV4& source) const {
    const View& view = views_[view_of_.find(customer)];
    const std::uint32_t at = view.sources.find(source);
    return at == view.sources.kNone ? nullptr : &rules[view.rule_at[at]];
  }
  /// Returns the customer with that inside address behind the tunnel `zone` (0: behind none), by
  /// the rule for it.
  static CustomerNumber customer_by(const NatRule& rule, Zone zone, const AddressV4& inside);
  /// True if the host has that address, for packets from a customer in a VLAN or from elsewhere.
  bool is_hosts(Zone customer, const AddressV4& address) const;
  /// Returns the customer's name: his address, or that of `Customers`.
  std::string name_of(CustomerNumber customer) const;
  /// Returns his address, or the far end of his tunnel; 0.0.0.0 if he has a VLAN.
  AddressV4 address_of(CustomerNumber customer) const;
  /// Returns the customer with that name, or with that inside address; none if there is none.
  std::optional<CustomerNumber> customer_named(const std::string& name) const;
  /// Returns the rule by which a packet is translated; null: it is not.
  const NatRule* rule_for(Zone customer, const AddressV4& source,
                          const AddressV4& destination) const {
    const NatRule* const rule = rule_of(customer, source);
    if (rule == nullptr || rule->exempt.empty()) return rule;
    const auto& exempt = rule->exempt_table;
    return exempt.find(destination) == exempt.kNone ? rule : nullptr;
  }

 private:
  /// The rules for some customers.
  struct View {
    PrefixTable<AddressV4> sources;
    std::vector<std::uint16_t> rule_at;  // by place in `sources`
  };
  View view_for(Zone customer) const;

  Intervals<Zone> view_of_;  // place in `views_`, by a customer's number
  std::vector<View> views_;
};

/// Returns the settings of a configuration without the keys of NAT.
std::shared_ptr<const FunctionSettings> default_nat();

std::unique_ptr<SettingsReader> nat_reader();

}  // namespace millrace
