#include "config/tunnels.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "core/address.h"
#include "core/parameters.h"
#include "core/vlan_tag.h"
#include "host/addresses_of.h"
#include "toml/addresses.h"

namespace millrace::config {
namespace {

constexpr std::string_view kKey = "port.customers";
constexpr unsigned kShortest = 9;  // bits of a prefix, so that its customers can be numbered

/// Makes the list of customers.
class Maker {
 public:
  Maker(Problems& problems, const Config::Live& live) : problems_(problems), live_(live) {}

  void add(unsigned link, const RawTunnels& raw) {
    if (raw.are_vlans()) return add_vlans(link, raw);
    if (!check(link, raw)) return;
    for (const RawCustomer& one : raw.customers) {
      if (!one.is_wrong) add(link, one);
    }
  }
  /// Returns the list; an empty one if it would be too long.
  std::shared_ptr<const Customers> make() {
    if (count_ > Customers::kMost) groups_.clear();
    return std::make_shared<const Customers>(std::move(groups_));
  }

 private:
  bool check(unsigned link, const RawTunnels& raw) {
    if (!raw.kind.given) {
      if (raw.customers_line != 0 && !raw.is_wrong)
        problems_.add(
            raw.customers_line, kKey,
            "need a tunnel: give tunnel = \"gre\", too, or VLANs as { vlan = \"100-3999\" }");
      return false;
    }
    if (lower(raw.kind.value) != "gre") {
      problems_.add(raw.kind.line, "port.tunnel",
                    in_quotes(raw.kind.value) + " is not known: give \"gre\"");
      return false;
    }
    if (raw.customers_line == 0)
      problems_.add(raw.kind.line, "port.tunnel",
                    "has no customers: give the far ends of their tunnels, like customers = "
                    "[\"172.17.0.0/18\"]");
    const auto has = [link](const auto& own) { return own.link == link; };
    if (std::ranges::none_of(live_.v4.own, has))
      problems_.add(raw.kind.line, "port.tunnel", "has no near end: give the port an IPv4 address");
    return true;
  }

  /// Adds the customers in VLANs of a port.
  void add_vlans(unsigned link, const RawTunnels& raw) {
    const auto has = [link](const auto& own) { return own.link == link; };
    if (std::ranges::none_of(live_.v4.of_customers.own, has))
      problems_.add(raw.customers_line, kKey,
                    "have nobody to send to: give the port an IPv4 address, which millrace has in "
                    "each of their VLANs");
    for (const RawCustomer& one : raw.customers) {
      if (!one.is_wrong) add_vlans(link, one);
    }
  }

  void add_vlans(unsigned link, const RawCustomer& raw) {
    const auto problem = [&](const std::string& what) { problems_.add(raw.line, kKey, what); };
    if (!raw.has_vlans)
      return problem("have VLANs on this port, but one has not: give vlan, or another port");
    const bool is_one = raw.vlans.first == raw.vlans.last;
    const std::string text = (is_one ? "the VLAN " : "the VLANs ") + to_string(raw.vlans);
    if (raw.address.given || raw.key)
      return problem(text + (is_one ? " is" : " are") + " no tunnel: leave out " +
                     (raw.key ? "key" : "address"));
    if (raw.name.given && !is_one)
      return problem(text + " are more than one: a name needs a customer of its own, so give one");
    if (raw.name.given && !check_name(raw)) return;
    for (const CustomerGroup& other : groups_) {
      if (other.link == link && raw.vlans.first <= other.vlans.last &&
          other.vlans.first <= raw.vlans.last)
        return problem(text + (is_one ? " overlaps " : " overlap ") + to_string(other.vlans) +
                       ": each VLAN is one customer's, so give it once");
    }
    keep({.link = link,
          .ends = {},
          .key = {},
          .name = raw.name.value,
          .vlans = raw.vlans,
          .port = live_.ports[link].name},
         raw.line);
  }

  /// Adds a group that is right, but for the number of customers.
  void keep(CustomerGroup group, std::uint32_t line) {
    const bool was_right = count_ <= Customers::kMost;
    count_ += group.size();
    if (was_right && count_ > Customers::kMost)
      problems_.add(line, kKey,
                    "are more than " + std::to_string(Customers::kMost) +
                        ", with those of all ports: give fewer");
    groups_.push_back(std::move(group));
  }

  void add(unsigned link, const RawCustomer& raw) {
    const auto problem = [&](const std::string& what) { problems_.add(raw.line, kKey, what); };
    if (raw.has_vlans)
      return problem("have tunnels on this port, but one has a VLAN: give another port");
    if (!raw.address.given) return problem("have no address: give the far end of the tunnel");
    const std::string& text = raw.address.value;
    const AddressAndBits parts(text);
    const auto address = parse_address<AddressV4>(parts.address);
    if (!address)
      return problem(in_quotes(text) +
                     " is no IPv4 prefix: give one like 172.17.0.0/18, or an address");
    const auto ends = read_prefix(*address, parts.bits);
    if (!ends) return problem(ends.error());
    if (ends->bits < kShortest)
      return problem(in_quotes(text) + " is too much: give prefixes of " +
                     std::to_string(kShortest) + " to 32 bits");
    if (ends->bits != 32 && (raw.key || raw.name.given))
      return problem(in_quotes(text) + " has more than one address: " +
                     (raw.key ? "a key" : "a name") + " needs a customer of its own, so give one");
    CustomerGroup group{.link = link,
                        .ends = *ends,
                        .key = raw.key,
                        .name = raw.name.value,
                        .vlans = {},
                        .port = {}};
    // Two keys of one far end are two customers, whose names must differ.
    if (raw.key && group.name.empty()) group.name = text + " key " + std::to_string(*raw.key);
    if (!is_one_host(ends->address) && ends->bits == 32)
      return problem(in_quotes(text) + " is no host's address: give the far end of a tunnel");
    if (raw.name.given && !check_name(raw)) return;
    if (!group.name.empty()) names_.emplace(group.name, raw.line);
    for (const auto& own : live_.v4.own) {
      if (ends->contains(own.address))
        return problem(in_quotes(text) + " contains millrace's own address " +
                       to_string(own.address) + ": leave it out");
    }
    // Ends with one key are disjoint, so only a neighbour can overlap.
    auto& others = ends_[raw.key];
    auto other = others.upper_bound(*ends);
    if (other != others.begin() && std::prev(other)->contains(ends->address)) --other;
    if (other != others.end() && (other->contains(ends->address) || ends->contains(other->address)))
      return problem(in_quotes(text) + " overlaps " + in_quotes(to_string(*other)) +
                     ": each tunnel is one customer's, so give it once");
    others.insert(*ends);
    keep(std::move(group), raw.line);
  }

  /// True for a name that means the VLAN of a port, like access.100.
  bool is_of_vlan(const std::string& name) const {
    const auto dot = name.rfind('.');
    if (dot == name.npos || name.find_first_not_of("0123456789-", dot + 1) != name.npos)
      return false;
    const auto has = [&](const Config::Port& port) { return port.name == name.substr(0, dot); };
    return std::ranges::any_of(live_.ports, has);
  }

  bool check_name(const RawCustomer& raw) {
    const std::string& name = raw.name.value;
    const auto wrong = [&](const std::string& what) {
      problems_.add(raw.name.line, kKey, what);
      return false;
    };
    if (name.empty()) return wrong("have an empty name: leave it out, or give one");
    if (is_address(AddressAndBits(name).address) || lower(name) == "any" || is_of_vlan(name))
      return wrong(in_quotes(name) + " cannot be a name, as it means others: give another");
    const auto [first, is_new] = names_.emplace(name, raw.name.line);
    if (is_new) return true;
    return wrong(in_quotes(name) + " is there already, on line " + std::to_string(first->second) +
                 ": give each customer a name of his own");
  }

  Problems& problems_;
  const Config::Live& live_;
  std::vector<CustomerGroup> groups_;
  std::map<std::optional<std::uint32_t>, std::set<Prefix<AddressV4>>> ends_;  // of tunnels, by key
  std::map<std::string, std::uint32_t> names_;
  std::uint64_t count_ = 0;
};

}  // namespace

namespace {

/// Reads VLANs: a number, or text as "100-3999".
void read_vlans(const Context& context, const toml::node& node, RawCustomer& out) {
  out.has_vlans = true;
  const auto wrong = [&](const std::string& what) {
    context.problem(node, what + ": give one of 1 to " + std::to_string(kMostVlan) +
                              ", or several as \"100-3999\"");
  };
  std::string text;
  if (const auto* const number = node.as_integer()) {
    text = std::to_string(number->get());
  } else if (const auto* const words = node.as_string()) {
    text = words->get();
  } else {
    return wrong(kind_of(node));
  }
  const auto read = [](std::string_view digits) {
    return static_cast<std::uint16_t>(parse_number(digits, kMostVlan).value_or(0));
  };
  const auto dash = text.find('-');
  const VlanRange vlans{read(text.substr(0, dash)),
                        read(dash == text.npos ? text : text.substr(dash + 1))};
  if (vlans.first == 0 || vlans.first > vlans.last) return wrong(in_quotes(text) + " is no VLAN");
  out.vlans = vlans;
}

}  // namespace

void read_customers(const Context& context, const toml::node& node, RawTunnels& out) {
  const Keys<RawCustomer> keys{
      {"address", text(&RawCustomer::address)},
      {"name", name_text(&RawCustomer::name)},
      {"key", integer(&RawCustomer::key, 0, 0xffffffff, "as the customer's packets have it")},
      {"vlan", read_vlans},
  };
  out.customers_line = node.source().begin.line;
  const toml::array* const list = node.as_array();
  if (list == nullptr || list->empty()) {
    context.problem(node,
                    (list == nullptr ? kind_of(node) : std::string("is empty")) +
                        ": give a list like [\"172.17.0.0/18\"], or [{ vlan = \"100-3999\" }]");
    out.is_wrong = true;
    return;
  }
  for (const toml::node& one : *list) {
    RawCustomer customer;
    const std::size_t before = context.problems.count();
    customer.line = one.source().begin.line;
    if (const auto* const address = one.as_string()) {
      customer.address = {address->get(), customer.line, true};
    } else if (const toml::table* const table = one.as_table()) {
      read_keys(context, *table, keys, customer);
    } else {
      context.problem(one, kind_of(one) +
                               ": give \"172.17.0.0/18\", { name = \"c17\", address = "
                               "\"172.17.64.9\", key = 7 }, or { vlan = \"100-3999\" }");
    }
    customer.is_wrong = context.problems.count() != before;
    out.is_wrong |= customer.is_wrong;
    out.customers.push_back(std::move(customer));
  }
}

std::shared_ptr<const Customers> customers_of(Problems& problems, std::span<const RawTunnels> ports,
                                              const Config::Live& live) {
  Maker maker(problems, live);
  for (unsigned link = 0; link < ports.size(); ++link) maker.add(link, ports[link]);
  return maker.make();
}

}  // namespace millrace::config
