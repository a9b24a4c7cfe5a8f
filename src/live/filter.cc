#include "live/filter.h"

#include <algorithm>
#include <array>

#include "conntrack/state.h"
#include "core/address.h"
#include "core/protocol.h"

namespace millrace {
namespace {

Result<std::uint16_t> parse_port(std::string_view name, std::string_view text) {
  const auto port = parse_number(text, 65535);
  if (!port) return wrong_parameter(name, text, "is no port: give 0 to 65535");
  return static_cast<std::uint16_t>(*port);
}

Result<std::uint8_t> parse_protocol(std::string_view text) {
  for (const auto& [name, number] : protocols()) {
    if (name == text) return number;
  }
  const auto number = parse_number(text, 255);
  if (!number) {
    std::string known;
    for (const auto& [name, of_name] : protocols()) known.append(name).append(", ");
    return wrong_parameter("protocol", text, "is not known: give " + known + "or 0 to 255");
  }
  return static_cast<std::uint8_t>(*number);
}

Result<ConnectionFilter::Prefix> parse_prefix(std::string_view name, std::string_view text) {
  const auto slash = std::min(text.find('/'), text.size());
  const auto address = parse_any_address(text.substr(0, slash));
  if (!address)
    return wrong_parameter(name, text, "is no address: give one like 10.0.0.1 or 10.0.0.0/8");
  const unsigned most =
      std::visit([]<class A>(const A&) { return static_cast<unsigned>(8 * A::kBytes); }, *address);
  if (slash == text.size()) return ConnectionFilter::Prefix{*address, most};
  const auto bits = parse_number(text.substr(slash + 1), most);
  if (!bits)
    return wrong_parameter(name, text,
                           "has a wrong prefix length: give 0 to " + std::to_string(most));
  const AnyAddress prefix =
      std::visit([&](const auto& of) { return AnyAddress(prefix_of(of, *bits)); }, *address);
  return ConnectionFilter::Prefix{prefix, *bits};
}

Result<std::string_view> parse_state(std::string_view text) {
  for (const std::string_view name : kConnectionStateNames) {
    if (name == text) return name;
  }
  return wrong_parameter("state", text, "is not known: docs/states.md lists the states");
}

template <class A>
bool is_in(const A& address, const ConnectionFilter::Prefix& prefix) {
  const A* const of = std::get_if<A>(&prefix.address);
  return of != nullptr && prefix_of(address, prefix.bits) == *of;
}

template <class T>
bool is(const T& value, const std::optional<T>& wanted) {
  return !wanted || value == *wanted;
}

/// Returns the value of the parameter `name`; none if it is not given.
std::optional<std::string_view> value_of(Parameters parameters, std::string_view name) {
  for (const auto& [its_name, value] : parameters) {
    if (its_name == name) return value;
  }
  return std::nullopt;
}

/// Returns the numbers of the customers that a name, or a prefix of far ends, names.
Result<std::pair<Zone, Zone>> parse_customers(std::string_view text, const Customers& customers) {
  if (const auto named = customers.named(std::string(text))) return *named;
  return wrong_parameter(
      "customer", text,
      "is no customer of a port: give a name, far end, prefix or VLAN (access.100) of "
      "[[port]].customers; for another customer give source, his address");
}

struct Given {
  std::string_view name, text;
  const Customers& customers;
};

/// Reads one parameter into a filter. Errors: usage.
using Read = Result<void> (*)(const Given& of, ConnectionFilter& out);

template <class T, class V>
Result<void> put(Result<V> value, T& out) {
  if (!value) return std::unexpected(value.error());
  out = *value;
  return {};
}

using Filter = ConnectionFilter;
constexpr std::array<std::pair<std::string_view, Read>, 8> kParts{{
    {"protocol",
     [](const Given& of, Filter& out) { return put(parse_protocol(of.text), out.protocol); }},
    {"source",
     [](const Given& of, Filter& out) { return put(parse_prefix(of.name, of.text), out.source); }},
    {"destination",
     [](const Given& of, Filter& out) {
       return put(parse_prefix(of.name, of.text), out.destination);
     }},
    {"source_port", [](const Given& of,
                       Filter& out) { return put(parse_port(of.name, of.text), out.source_port); }},
    {"destination_port",
     [](const Given& of, Filter& out) {
       return put(parse_port(of.name, of.text), out.destination_port);
     }},
    {"state", [](const Given& of, Filter& out) { return put(parse_state(of.text), out.state); }},
    {"backend",
     [](const Given& of, Filter& out) -> Result<void> {
       const auto backend = parse_backend(of.text);
       if (!backend) return std::unexpected(backend.error());
       const unsigned bits = backend->address.index() == 0 ? 32 : 128;
       out.backend = Filter::Prefix{backend->address, bits};
       out.backend_port = backend->port;
       return {};
     }},
    {"customer",
     [](const Given& of, Filter& out) {
       return put(parse_customers(of.text, of.customers), out.customers);
     }},
}};

}  // namespace

bool ConnectionFilter::takes(const ListedConnection& connection) const {
  const auto is_wanted = [this](Zone customer) {
    return customer >= customers->first && customer < customers->second;
  };
  return std::visit(
      [&]<class K>(const K& key) {
        const K& translated = std::get<K>(connection.translated);
        return is(key.protocol, protocol) && is(key.source_port, source_port) &&
               is(key.destination_port, destination_port) &&
               is(to_string(connection.state), state) &&
               is(translated.destination_port, backend_port) &&
               (!source || is_in(key.source, *source)) &&
               (!destination || is_in(key.destination, *destination)) &&
               (!backend || is_in(translated.destination, *backend)) &&
               (!customers || is_wanted(key.number_of_zone()) ||
                is_wanted(translated.number_of_zone()));
      },
      connection.key);
}

bool ConnectionFilter::takes_all() const {
  return !protocol && !source && !destination && !source_port && !destination_port && !state &&
         !backend && !customers;
}

Result<ConnectionFilter> parse_filter(Parameters parameters, const Customers& customers,
                                      bool (*is_other)(std::string_view)) {
  ConnectionFilter filter;
  for (const auto& [name, value] : parameters) {
    const auto* const part =
        std::ranges::find(kParts, name, [](const auto& one) { return one.first; });
    if (part == kParts.end()) {
      if (is_other(name)) continue;
      std::string known;
      for (const auto& [one, read] : kParts) known.append(known.empty() ? "" : ", ").append(one);
      return wrong_parameter("the parameter", name, "is not known: give " + known);
    }
    if (auto ok = part->second({name, value, customers}, filter); !ok)
      return std::unexpected(ok.error());
  }
  return filter;
}

Result<AnyKey> parse_key(Parameters parameters, const Customers& customers) {
  for (const std::string_view name : {"protocol", "source", "destination"}) {
    if (!value_of(parameters, name))
      return std::unexpected(Error{std::string(name) + " is missing: give protocol, source, "
                                                       "source_port, destination and "
                                                       "destination_port",
                                   Error::Kind::usage});
  }
  const auto filter = parse_filter(parameters, customers, [](std::string_view) { return false; });
  if (!filter) return std::unexpected(filter.error());
  if (filter->state || filter->backend) {
    return std::unexpected(
        Error{"a packet's key has no state and no backend: leave them out", Error::Kind::usage});
  }
  const auto [customer, behind] = filter->customers.value_or(std::pair<Zone, Zone>(0, 1));
  if (behind != customer + 1) {
    return std::unexpected(
        Error{"a packet has one customer: give his name or the far end of his "
              "tunnel",
              Error::Kind::usage});
  }
  for (const auto& prefix : {*filter->source, *filter->destination}) {
    if (prefix.bits == (prefix.address.index() == 0 ? 32U : 128U)) continue;
    return std::unexpected(
        Error{"a packet has one source and one destination: give addresses without a prefix",
              Error::Kind::usage});
  }
  return std::visit(
      [&]<class A>(const A& source) -> Result<AnyKey> {
        const A* const destination = std::get_if<A>(&filter->destination->address);
        if (destination == nullptr)
          return std::unexpected(
              Error{"source and destination differ in family: give two IPv4 or two IPv6 addresses",
                    Error::Kind::usage});
        Key<A> key{.source = source,
                   .destination = *destination,
                   .source_port = filter->source_port.value_or(0),
                   .destination_port = filter->destination_port.value_or(0),
                   .protocol = *filter->protocol};
        key.set_zone(customer);
        return key;
      },
      filter->source->address);
}

}  // namespace millrace
