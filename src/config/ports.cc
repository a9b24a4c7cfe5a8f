#include "config/ports.h"

#include <netinet/ether.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "port/link_map.h"
#include "toml/addresses.h"

namespace millrace::config {
namespace {

/// Parses a unicast MAC like 02:00:00:00:00:01.
std::optional<Mac> parse_mac(const std::string& text) {
  ether_addr parsed{};
  // ether_aton_r ignores text behind the MAC.
  if (text.find_first_not_of("0123456789abcdefABCDEF:") != text.npos ||
      std::ranges::count(text, ':') != 5 || text.size() - text.rfind(':') > 3)
    return std::nullopt;
  if (ether_aton_r(text.c_str(), &parsed) == nullptr) return std::nullopt;
  Mac mac;
  std::ranges::copy(parsed.ether_addr_octet, mac.bytes.begin());
  return mac.is_unicast() ? std::optional(mac) : std::nullopt;
}

/// True for characters that the kernel refuses in an interface's name, for other control
/// characters, and for `%`: the kernel replaces "%d" by a number.
bool is_no_part_of_names(char c) {
  return is_control(c) || c == ' ' || c == '/' || c == ':' || c == '%';
}

void read_vlan(const Context& context, const toml::node& node, RawPort& out) {
  integer(&RawPort::vlan, 1, kMostVlan, "or leave vlan out if frames have no tag")(context, node,
                                                                                   out);
  out.vlan_line = node.source().begin.line;
}

void read_addresses(const Context& context, const toml::node& node, RawPort& out) {
  const auto* array = node.as_array();
  if (array == nullptr) {
    context.problem(node,
                    kind_of(node) + ": give an array as [\"192.0.2.1/24\", \"2001:db8::1/64\"]");
    return;
  }
  for (const toml::node& element : *array) {
    const auto* text = element.as_string();
    if (text == nullptr) {
      context.problem(element, kind_of(element) + ": give a string");
    } else {
      out.addresses.push_back({**text, element.source().begin.line, true});
    }
  }
}

/// Checks ports and routes, each also against those that were added before, and stores them.
class LiveReader {
 public:
  LiveReader(Problems& problems, Config::Live& live) : problems_(problems), live_(live) {}

  void add(const RawPort& raw) {
    const auto number = static_cast<unsigned>(live_.ports.size());
    Config::Port port{.name = raw.name.value,
                      .device = {},
                      .vlan = raw.vlan,
                      .has_customer_vlans = raw.tunnels.are_vlans(),
                      .mtu = raw.mtu,
                      .mss = raw.mss,
                      .reverse_path = raw.reverse_path};
    if (number == LinkMap::kMost)
      problems_.add(raw.line, "port",
                    "is one too many: give at most " + std::to_string(LinkMap::kMost));
    bool is_known = false;
    if (raw.device.given) {
      auto device = parse_device(raw.device.value);
      is_known = device.has_value();
      if (device) {
        port.device = std::move(*device);
      } else {
        problems_.add(raw.device.line, "port.device", device.error().message);
      }
      if (!port.device.target.empty()) use_device(raw, port);
    }
    if (port.has_customer_vlans) check_customers_port(raw);
    if (raw.kernel.given && is_known && !port.has_customer_vlans) add_kernel(raw, port);
    if (raw.name.given) once(raw.name, names_, "port.name", "give each port its own");
    is_customers_ = port.has_customer_vlans;
    for (const auto& address : raw.addresses) add_address(address, number);
    for (const auto& neighbour : raw.neighbours) add_neighbour(neighbour, number);
    live_.ports.push_back(std::move(port));
  }

  void add(const RawRoute& raw) {
    if (!raw.prefix.given) return;
    const AddressAndBits parts(raw.prefix.value);
    if (parse_address<AddressV4>(parts.address)) {
      add_route<AddressV4>(raw, parts);
    } else if (parse_address<AddressV6>(parts.address)) {
      add_route<AddressV6>(raw, parts);
    } else {
      problems_.add(raw.prefix.line, "route.prefix",
                    in_quotes(raw.prefix.value) + " is no prefix: give one like 0.0.0.0/0, ::/0");
    }
  }

 private:
  using Lines = std::map<std::string, std::uint32_t>;
  /// The use of a device, or of an interface's name.
  struct Use {
    std::uint32_t line = 0;
    DeviceName device;  ///< without a target: a port's `kernel` is so called
    /// VLANs of the device's ports, with their lines; from 0 to 0: a port without a tag.
    std::vector<std::pair<VlanRange, std::uint32_t>> vlans;
    std::uint32_t customers_line = 0;  ///< line of the customers in its VLANs; 0: there are none
  };

  void once(const Located<std::string>& text, Lines& lines, std::string_view key,
            std::string_view why) {
    const auto [first, fresh] = lines.emplace(text.value, text.line);
    if (fresh) return;
    problems_.add(text.line, key,
                  in_quotes(text.value) + " is there already, on line " +
                      std::to_string(first->second) + ": " + std::string(why));
  }

  /// Checks that the port and the others of its device can share it: they must name the device
  /// alike, and each have a VLAN of its own, but one of them may have none.
  void use_device(const RawPort& raw, const Config::Port& port) {
    // An interface of the kernel may have one driver, with the same arguments for all its ports.
    const bool by_target = is_of_kernel(port.device.kind);
    const std::string name = by_target ? port.device.target : to_string(port.device);
    auto& [line, device, vlans, customers_line] =
        uses_.try_emplace(name, Use{raw.device.line, port.device, {}}).first->second;
    const auto on_line = [](std::uint32_t at) { return ", on line " + std::to_string(at) + ": "; };
    if (device.target.empty())
      return problems_.add(
          raw.device.line, "port.device",
          in_quotes(name) + " is there already" + on_line(line) + "give each port its own");
    if (device != port.device)
      return problems_.add(raw.device.line, "port.device",
                           in_quotes(name) + " is there already, as " +
                               in_quotes(to_string(device)) + on_line(line) +
                               "give the same device and another vlan, or another interface");
    if (raw.vlan_line != 0 && raw.vlan == 0) return;  // a problem of its own
    if (port.has_customer_vlans) {
      if (customers_line != 0)
        return problems_.add(raw.tunnels.customers_line, "port.customers",
                             "are in VLANs of " + in_quotes(name) +
                                 ", which has a port with such customers already" +
                                 on_line(customers_line) + "give all of them to one port");
      customers_line = raw.tunnels.customers_line;
    }
    const std::size_t others = vlans.size();
    for (const auto& [its, at] : vlans_of(raw)) {
      const auto overlaps = [&its](const auto& other) {
        return its.first <= other.first.last && other.first.first <= its.last;
      };
      const auto other = std::find_if(
          vlans.begin(), vlans.begin() + static_cast<std::ptrdiff_t>(others), overlaps);
      const bool is_new = other - vlans.begin() == static_cast<std::ptrdiff_t>(others);
      if (!is_new && its.is_empty()) {
        problems_.add(raw.device.line, "port.device",
                      in_quotes(name) + " has a port without vlan already" +
                          on_line(other->second) +
                          "give one of the two ports a vlan, or another device");
      } else if (!is_new) {
        problems_.add(at, port.has_customer_vlans ? "port.customers" : "port.vlan",
                      std::to_string(std::max(its.first, other->first.first)) +
                          " is the VLAN of another port of " + in_quotes(name) +
                          on_line(other->second) + "give each port its own");
      }
      vlans.emplace_back(its, at);
    }
  }

  /// Returns the VLANs of a port, with their lines.
  static std::vector<std::pair<VlanRange, std::uint32_t>> vlans_of(const RawPort& raw) {
    std::vector<std::pair<VlanRange, std::uint32_t>> all;
    if (raw.tunnels.are_vlans()) {
      for (const RawCustomer& one : raw.tunnels.customers) {
        if (!one.vlans.is_empty()) all.emplace_back(one.vlans, one.line);
      }
    } else {
      const auto vlan = static_cast<std::uint16_t>(raw.vlan);
      all.emplace_back(VlanRange{vlan, vlan}, raw.vlan == 0 ? raw.device.line : raw.vlan_line);
    }
    return all;
  }

  /// Refuses keys that a port with customers in VLANs cannot have.
  void check_customers_port(const RawPort& raw) {
    const auto refuse = [&](std::uint32_t line, std::string_view key) {
      problems_.add(
          line, key,
          "is not for a port with customers in VLANs: leave it out, or give it to another "
          "port of the device");
    };
    if (raw.vlan_line != 0) refuse(raw.vlan_line, "port.vlan");
    if (raw.kernel.given) refuse(raw.kernel.line, "port.kernel");
    for (const RawNeighbour& one : raw.neighbours) refuse(one.line, "port.neighbours");
  }

  void add_kernel(const RawPort& raw, Config::Port& port) {
    constexpr std::size_t kMost = 15;
    const std::string& name = raw.kernel.value;
    const bool is_name = !name.empty() && name.size() <= kMost && name != "." && name != ".." &&
                         name != "all" && name != "default" &&
                         std::ranges::none_of(name, is_no_part_of_names);
    if (!is_name) {
      problems_.add(raw.kernel.line, "port.kernel",
                    in_quotes(name) +
                        " is no name of an interface: give one of up to 15 letters "
                        "and digits, like mr0");
    } else if (!has_neighbours(port.device.kind)) {
      problems_.add(
          raw.kernel.line, "port.kernel",
          raw.device.value + " reaches no stations, so the kernel cannot use it: leave kernel out");
    } else if (is_of_kernel(port.device.kind) && port.device.target == name) {
      problems_.add(raw.kernel.line, "port.kernel",
                    in_quotes(name) + " is the port's own device: give a new name, like mr0");
    } else {
      const auto [use, is_new] = uses_.try_emplace(name, Use{raw.kernel.line, {}, {}});
      if (!is_new)
        problems_.add(raw.kernel.line, "port.kernel",
                      in_quotes(name) + " is there already, on line " +
                          std::to_string(use->second.line) + ": give each port its own");
      port.kernel = name;
    }
  }

  void add_address(const Located<std::string>& text, unsigned port) {
    const AddressAndBits parts(text.value);
    if (const auto v4 = parse_address<AddressV4>(parts.address)) {
      add_own(*v4, text, parts, port);
    } else if (const auto v6 = parse_address<AddressV6>(parts.address)) {
      add_own(*v6, text, parts, port);
    } else {
      problems_.add(
          text.line, "port.addresses",
          in_quotes(text.value) + " is no address: give one like 192.0.2.1/24, 2001:db8::1/64");
    }
  }

  template <class A>
  void add_own(const A& address, const Located<std::string>& text, const AddressAndBits& parts,
               unsigned port) {
    const auto bits = read_bits<A>(parts.bits);
    if (!bits) {
      problems_.add(text.line, "port.addresses", bits.error());
    } else if (!parts.bits) {
      problems_.add(
          text.line, "port.addresses",
          text.value + " has no prefix length, which says what else is on the link: give " +
              text.value + (A::kBytes == 4 ? "/24" : "/64") + ", or the prefix length of the link");
    } else if (!is_customers_) {
      live_.family<A>().own.push_back({address, *bits, port});
    } else if (A::kBytes == 4) {
      live_.family<A>().of_customers.own.push_back({address, *bits, port});
    } else {
      problems_.add(text.line, "port.addresses",
                    text.value + " is of no use, as customers in VLANs have no IPv6: leave it out");
    }
  }

  void add_neighbour(const RawNeighbour& raw, unsigned port) {
    if (!raw.address.given || !raw.mac.given) return;
    const auto mac = parse_mac(raw.mac.value);
    if (!mac) {
      problems_.add(raw.mac.line, "port.neighbours.mac",
                    in_quotes(raw.mac.value) +
                        " is no MAC address of one station: give one like 02:00:00:00:00:01");
    } else if (const auto v4 = parse_address<AddressV4>(raw.address.value)) {
      add_neighbour(raw, AddressV4(*v4), port, *mac);
    } else if (const auto v6 = parse_address<AddressV6>(raw.address.value)) {
      add_neighbour(raw, AddressV6(*v6), port, *mac);
    } else {
      problems_.add(
          raw.address.line, "port.neighbours.address",
          in_quotes(raw.address.value) + " is no address: give one like 192.0.2.1, 2001:db8::1");
    }
  }

  template <class A>
  void add_neighbour(const RawNeighbour& raw, const A& address, unsigned port, const Mac& mac) {
    const auto same = [&](const auto& other) {
      return other.address == address && other.link == port;
    };
    if (std::ranges::any_of(live_.family<A>().neighbours, same)) {
      problems_.add(raw.address.line, "port.neighbours.address",
                    in_quotes(raw.address.value) + " is there already: leave one out");
    } else {
      live_.family<A>().neighbours.push_back({address, port, mac});
    }
  }

  template <class A>
  void add_route(const RawRoute& raw, const AddressAndBits& parts) {
    const auto prefix = read_prefix(*parse_address<A>(parts.address), parts.bits);
    if (!prefix) return problems_.add(raw.prefix.line, "route.prefix", prefix.error());
    Route<A> route{.prefix = prefix->address, .bits = prefix->bits, .link = 0, .via = {}};
    if (raw.via.given) {
      route.via = parse_address<A>(raw.via.value);
      if (!route.via)
        return problems_.add(raw.via.line, "route.via",
                             in_quotes(raw.via.value) + " is no " + std::string(kFamilyName<A>) +
                                 " address, as the route's prefix is: give one");
    }
    const auto link = link_of(raw, route.via);
    if (!link) return;
    route.link = *link;
    auto& its = live_.family<A>();
    const bool is_customers = live_.ports[route.link].has_customer_vlans;
    if (is_customers && A::kBytes != 4)
      return problems_.add(raw.port.line, "route.port",
                           in_quotes(raw.port.value) +
                               " has customers in VLANs, who have no IPv6: give another port");
    const auto same = [&](const Route<A>& other) {
      return other.prefix == route.prefix && other.bits == route.bits &&
             (!is_customers || other.link == route.link);
    };
    std::vector<Route<A>>& routes = is_customers ? its.of_customers.routes : its.routes;
    if (std::ranges::any_of(routes, same))
      return problems_.add(raw.prefix.line, "route.prefix",
                           in_quotes(raw.prefix.value) + " has a route already: leave one out");
    routes.push_back(route);
  }

  /// Returns the port that the route names, or else the port that has the next hop in one of its
  /// networks; none, with a problem noted, if there is no such port.
  template <class A>
  std::optional<unsigned> link_of(const RawRoute& raw, const std::optional<A>& via) {
    if (raw.port.given) {
      const auto port = std::ranges::find(live_.ports, raw.port.value, &Config::Port::name);
      if (port != live_.ports.end()) return static_cast<unsigned>(port - live_.ports.begin());
      problems_.add(raw.port.line, "route.port",
                    "no port is called " + in_quotes(raw.port.value) + ": give one of " +
                        joined(names(), ", "));
      return std::nullopt;
    }
    if (!via) {
      problems_.add(raw.line, "route",
                    "has no next hop: give via, or give port if the prefix is on a port's link");
      return std::nullopt;
    }
    for (const auto& own : live_.family<A>().own) {
      if (prefix_of(*via, own.bits) == prefix_of(own.address, own.bits)) return own.link;
    }
    problems_.add(raw.via.line, "route.via",
                  to_string(*via) +
                      " is in no port's network: give port, too, or give a port an address "
                      "of that network");
    return std::nullopt;
  }

  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const Config::Port& port : live_.ports) all.push_back(port.name);
    return all;
  }

  Problems& problems_;
  Config::Live& live_;
  Lines names_;
  bool is_customers_ = false;        // the port that is read has customers in VLANs
  std::map<std::string, Use> uses_;  // by a device's name, or an interface's
};

}  // namespace

void read_mss(const Context& context, const toml::node& node, RawPort& out) {
  const auto* const word = node.as_string();
  if (word != nullptr && lower(word->get()) == "auto") {
    out.mss = HostLink::kMssOfLinks;
  } else if (word != nullptr) {
    context.problem(node, in_quotes(word->get()) + " is no number of bytes: give one, or \"auto\"");
  } else {
    integer(&RawPort::mss, 88, 9540, "bytes")(context, node, out);
  }
}

void read_tunnel(const Context& context, const toml::node& node, RawPort& out) {
  text (&RawTunnels::kind)(context, node, out.tunnels);
  out.tunnels.is_wrong |= !out.tunnels.kind.given;
}

Keys<RawPort> port_keys() {
  using P = RawPort;
  using N = RawNeighbour;
  using R = ReversePath;
  return {
      {"name", name_text(&P::name), true},
      {"device", text(&P::device), true},
      {"addresses", read_addresses},
      {"neighbours", tables(&P::neighbours,
                            {{"address", text(&N::address), true}, {"mac", text(&N::mac), true}})},
      {"kernel", text(&P::kernel)},
      {"vlan", read_vlan},
      {"mtu", integer(&P::mtu, 68, 9600, "bytes")},
      {"mss", read_mss},
      {"tunnel", read_tunnel},
      {"customers", [](const Context& context, const toml::node& node,
                       RawPort& out) { read_customers(context, node, out.tunnels); }},
      {"rpf",
       choice(&P::reverse_path, {{"off", R::off}, {"loose", R::loose}, {"strict", R::strict}})},
  };
}

Keys<RawRoute> route_keys() {
  using R = RawRoute;
  return {
      {"prefix", text(&R::prefix), true},
      {"via", text(&R::via)},
      {"port", text(&R::port)},
  };
}

Keys<Config::Live> host_keys() {
  using L = Config::Live;
  using I = Config::Idle;
  return {
      {"unreachable", boolean(&L::tells_unreachable)},
      {"idle", choice(&L::idle, {{"sleep", I::sleep}, {"spin", I::spin}})},
  };
}

void read_live(Problems& problems, const std::vector<RawPort>& ports,
               const std::vector<RawRoute>& routes, Config::Live& live) {
  LiveReader reader(problems, live);
  for (const RawPort& port : ports) reader.add(port);
  for (const RawRoute& route : routes) reader.add(route);
  std::vector<RawTunnels> tunnels;
  for (const RawPort& port : ports) tunnels.push_back(port.tunnels);
  live.customers = customers_of(problems, tunnels, live);
}

}  // namespace millrace::config
