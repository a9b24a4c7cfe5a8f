#include "config/tunnels.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "core/address.h"
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
    if (!check(link, raw)) return;
    for (const RawCustomer& one : raw.customers) add(link, one);
  }
  std::shared_ptr<const Customers> make() {
    return std::make_shared<const Customers>(std::move(groups_));
  }

 private:
  bool check(unsigned link, const RawTunnels& raw) {
    if (!raw.kind.given) {
      if (raw.customers_line != 0)
        problems_.add(raw.customers_line, kKey, "need a tunnel: give tunnel = \"gre\", too");
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

  void add(unsigned link, const RawCustomer& raw) {
    const auto problem = [&](const std::string& what) { problems_.add(raw.line, kKey, what); };
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
    CustomerGroup group{.link = link, .ends = *ends, .key = raw.key, .name = raw.name.value};
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
    for (const CustomerGroup& other : groups_) {
      const bool overlaps =
          other.ends.contains(ends->address) || ends->contains(other.ends.address);
      if (overlaps && other.key == group.key)
        return problem(in_quotes(text) + " overlaps " + in_quotes(to_string(other.ends)) +
                       ": each tunnel is one customer's, so give it once");
    }
    count_ += group.size();
    if (count_ > Customers::kMost)
      return problem("are more than " + std::to_string(Customers::kMost) +
                     ", with those of all ports: give fewer");
    groups_.push_back(std::move(group));
  }

  bool check_name(const RawCustomer& raw) {
    const std::string& name = raw.name.value;
    const auto wrong = [&](const std::string& what) {
      problems_.add(raw.name.line, kKey, what);
      return false;
    };
    if (name.empty()) return wrong("have an empty name: leave it out, or give one");
    if (is_address(AddressAndBits(name).address) || lower(name) == "any")
      return wrong(in_quotes(name) + " cannot be a name, as it means others: give another");
    const auto [first, is_new] = names_.emplace(name, raw.name.line);
    if (is_new) return true;
    return wrong(in_quotes(name) + " is there already, on line " + std::to_string(first->second) +
                 ": give each customer a name of his own");
  }

  Problems& problems_;
  const Config::Live& live_;
  std::vector<CustomerGroup> groups_;
  std::map<std::string, std::uint32_t> names_;
  std::uint64_t count_ = 0;
};

}  // namespace

void read_customers(const Context& context, const toml::node& node, RawTunnels& out) {
  const Keys<RawCustomer> keys{
      {"address", text(&RawCustomer::address), true},
      {"name", text(&RawCustomer::name)},
      {"key", integer(&RawCustomer::key, 0, 0xffffffff, "as the customer's packets have it")},
  };
  out.customers_line = node.source().begin.line;
  const toml::array* const list = node.as_array();
  if (list == nullptr || list->empty()) {
    context.problem(node, (list == nullptr ? kind_of(node) : std::string("is empty")) +
                              ": give a list like [\"172.17.0.0/18\"]");
    return;
  }
  for (const toml::node& one : *list) {
    RawCustomer customer{.line = one.source().begin.line, .address = {}, .name = {}, .key = {}};
    if (const auto* const address = one.as_string()) {
      customer.address = {address->get(), customer.line, true};
    } else if (const toml::table* const table = one.as_table()) {
      read_keys(context, *table, keys, customer);
    } else {
      context.problem(one, kind_of(one) +
                               ": give \"172.17.0.0/18\", or { name = \"c17\", address = "
                               "\"172.17.64.9\", key = 7 }");
      continue;
    }
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
