// The settings of NAT: [[nat.pool]], [[nat.rule]], [[nat.forward]] and [nat.log] in a
// configuration.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
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
#include "function/nat/customer_places.h"
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

/// Ports of a public address.
struct PortRange {
  AddressV4 address;
  std::uint16_t first = 0;
  std::uint16_t last = 0;
};

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
  /// True: each customer has the ports that his place says (RFC 7422), `blocks_per_customer` blocks
  /// behind one another. The places fill the addresses in their order.
  bool is_deterministic = false;
  CustomerPlaces places;  ///< the customers, if it is deterministic: no more than it has ranges

  bool has(const AddressV4& address) const {
    return std::ranges::any_of(prefixes,
                               [&address](const auto& prefix) { return prefix.contains(address); });
  }
  std::uint32_t addresses() const;
  AddressV4 address_at(std::uint32_t n) const;
  std::uint32_t ranges_per_address() const { return blocks_per_address() / blocks_per_customer; }
  std::uint64_t ranges() const { return std::uint64_t{addresses()} * ranges_per_address(); }
  /// @name Of a deterministic pool
  /// @{
  /// Returns the customer's ports; none if the pool is for others.
  std::optional<PortRange> range_of(CustomerNumber customer) const;
  /// Returns the customer whose port it is; none if it is nobody's.
  std::optional<CustomerNumber> customer_of(const AddressV4& address, std::uint16_t port) const;
  /// @}
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
  /// Numbers of ports' customers, each from the first up to before the second; empty: the rule is
  /// for packets of others.
  std::vector<std::pair<Zone, Zone>> customers;
  bool is_for_any = false;  ///< `customers` are all: rules that name a customer go before this one
  /// Bits of an address that are one customer; not for ports' customers.
  unsigned customer_bits = 32;
  /// Number of customers among which a hash divides the sources, in place of `customer_bits`; 0:
  /// it does not.
  std::uint32_t source_groups = 0;
  /// With `source_groups`, a number of the pool that depends on its name: pools may change places.
  std::uint8_t number_of_pool = 0;
  std::vector<Prefix<AddressV4>> sources;  ///< distinct, also from those of other rules
  /// Destinations to which sources are translated; empty: to all.
  std::vector<Prefix<AddressV4>> destinations;
  std::vector<Prefix<AddressV4>> exempt;  ///< destinations to which nothing is translated
  std::uint16_t pool = 0;                 ///< place in `NatSettings::pools`
  PrefixTable<AddressV4> destination_table;
  PrefixTable<AddressV4> exempt_table;

  /// True if packets to that destination are translated.
  bool is_for(const AddressV4& destination) const {
    return (destinations.empty() || destination_table.has(destination)) &&
           (exempt.empty() || !exempt_table.has(destination));
  }
  bool has_same_customers(const NatRule& other) const {
    return sources == other.sources && pool == other.pool && customers == other.customers &&
           customer_bits == other.customer_bits && source_groups == other.source_groups;
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
  /// The ports' customers: behind tunnels and in VLANs; never null.
  std::shared_ptr<const Customers> customers = std::make_shared<const Customers>();
  std::vector<std::string> ports;  ///< names, by link

  /// Fills the tables below from the members above.
  void index();

  /// True if each customer may have the same public ends by these settings.
  bool gives_same_ends(const NatSettings& other) const {
    return pools == other.pools && forwards == other.forwards &&
           std::ranges::equal(rules, other.rules, &NatRule::has_same_customers);
  }

  const FunctionKind& kind() const override;
  FunctionFacts facts() const override;
  std::vector<std::string> unchangeable(const FunctionSettings& is) const override;
  /// Customers, since images name them by their numbers.
  std::string agreement() const override;
  /// Returns which numbers customers have: their groups, in order.
  Json customers_as_json() const;
  void append_doubts(const Surroundings& around, std::vector<std::string>& all) const override;
  void tell(HostAddresses<AddressV4>& v4, HostAddresses<AddressV6>& v6) const override;

  /// Returns the rule for packets of a port's customer (0: of none) whose source prefix is the
  /// longest around the address; null if there is none.
  const NatRule* rule_of(Zone customer, const AddressV4& source) const {
    const View& view = views_[view_of_.find(customer)];
    const std::uint32_t at = view.sources.find(source);
    if (at == view.sources.kNone || view.rule_at[at] == kNoRule) return nullptr;
    return &rules[view.rule_at[at]];
  }
  /// True if a rule for customers of ports has the source.
  bool is_ports_customers(const AddressV4& source) const;
  /// Returns the customer with that inside address, by the rule for it. `zone`: the number of the
  /// port's customer; 0: of none.
  static CustomerNumber customer_by(const NatRule& rule, Zone zone, const AddressV4& inside);
  /// A customer of no tunnel that two rules with different `customer_bits` would have in common.
  struct Shared {
    CustomerNumber customer = 0;
    const NatRule* rule = nullptr;
    const NatRule* other = nullptr;
  };
  /// Returns such a customer, as he is known by the first address of his prefix; none if there is
  /// none.
  std::optional<Shared> shared_customer() const;
  /// True if the host has that address, for packets from a customer in a VLAN or from elsewhere.
  bool is_hosts(Zone customer, const AddressV4& address) const;
  /// Returns the customer's name: his address or prefix, that of `Customers`, or POOL/GROUP.
  std::string name_of(CustomerNumber customer) const;
  /// Returns his (first) address, or the far end of his tunnel; 0.0.0.0 if he has a VLAN.
  AddressV4 address_of(CustomerNumber customer) const;
  /// Returns the pool that has the address; null: none has.
  const NatPool* pool_with(const AddressV4& address) const;
  /// Returns the customer that has that public port by his place in a deterministic pool.
  std::optional<CustomerNumber> customer_by_place(const AddressV4& address,
                                                  std::uint16_t port) const;
  /// Returns the customer with that name, or with that inside address; none if there is none.
  std::optional<CustomerNumber> customer_named(const std::string& name) const;
  /// Returns the rule by which a packet is translated; null: it is not.
  const NatRule* rule_for(Zone customer, const AddressV4& source,
                          const AddressV4& destination) const {
    const NatRule* const rule = rule_of(customer, source);
    return rule != nullptr && rule->is_for(destination) ? rule : nullptr;
  }

 private:
  static constexpr std::uint32_t kNoRule = 0xffffffff;

  /// The rules for some customers. Public addresses are nobody's source.
  struct View {
    PrefixTable<AddressV4> sources;
    std::vector<std::uint32_t> rule_at;  // by place in `sources`; or `kNoRule`
  };
  View view_of(const std::map<std::size_t, int>& holding) const;
  void give_places();
  unsigned bits_of(const AddressV4& address) const;

  Intervals<Zone> view_of_;  // place in `views_`, by a customer's number
  std::vector<View> views_;
};

/// Returns the settings of a configuration without the keys of NAT.
std::shared_ptr<const FunctionSettings> default_nat();

std::unique_ptr<SettingsReader> nat_reader();

}  // namespace millrace
