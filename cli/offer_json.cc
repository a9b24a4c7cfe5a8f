#include "offer_json.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "command_line/json.h"
#include "line/carried.h"

namespace millrace::cli {
namespace {

constexpr std::array<const char*, 2> kMarks{"drained", "unhealthy"};

template <class A>
void append_services(Json& all, const std::vector<ServiceSpec<A>>& services, const Offer& offer) {
  for (const ServiceSpec<A>& service : services) {
    Json backends = Json::array();
    for (const auto& backend : service.backends)
      backends.push_back({{"address", to_string(backend.address)}, {"port", backend.port}});
    all.push_back({{"address", to_string(service.address)},
                   {"prefix", service.prefix_bits},
                   {"port", service.port},
                   {"protocol", service.protocol},
                   {"forward", to_string(service.forward)},
                   {"overflowed", offer.overflowed.contains(to_string(service))},
                   {"backends", backends}});
  }
}

// Those that read throw a `std::exception` where there is no such thing.

/// A whole number.
template <class Number>
Number number_from(const Json& json, Number least, Number most) {
  if (!json.is_number_unsigned()) throw std::invalid_argument("number");
  const auto value = json.get<std::uint64_t>();
  if (value < least || value > most) throw std::out_of_range("number");
  return static_cast<Number>(value);
}
template <class Number>
Number number_from(const Json& json) {
  return number_from<Number>(json, 0, std::numeric_limits<Number>::max());
}

Forward forward_from(const Json& json) {
  const auto text = json.get<std::string>();
  for (const Forward one : {Forward::nat, Forward::dsr}) {
    if (text == to_string(one)) return one;
  }
  throw std::invalid_argument("forward");
}

template <class A>
void read_service(const Json& json, const A& address, Offer& offer) {
  ServiceSpec<A> service;
  service.address = address;
  service.prefix_bits = number_from<unsigned>(json.at("prefix"), 0, 8 * A::kBytes);
  if (prefix_of(address, service.prefix_bits) != address) throw std::invalid_argument("prefix");
  service.port = number_from<std::uint16_t>(json.at("port"));
  service.protocol = number_from<std::uint8_t>(json.at("protocol"));
  service.forward = forward_from(json.at("forward"));
  for (const Json& one : json.at("backends")) {
    service.backends.push_back({parse_address<A>(one.at("address").get<std::string>()).value(),
                                number_from<std::uint16_t>(one.at("port")), 0});
  }
  if (json.at("overflowed")) offer.overflowed.insert(to_string(service));
  offer.services.family<A>().push_back(std::move(service));
}

template <class Then>
void with_address(const Json& json, Then&& then) {
  const std::string text = json.at("address");
  if (const auto v4 = parse_address<AddressV4>(text)) {
    then(*v4);
  } else {
    then(parse_address<AddressV6>(text).value());
  }
}

Mac mac_from(const Json& json) {
  Mac mac;
  if (json.size() != mac.bytes.size()) throw std::invalid_argument("MAC");
  for (std::size_t i = 0; i < mac.bytes.size(); ++i)
    mac.bytes[i] = number_from<std::uint8_t>(json.at(i));
  return mac;
}

}  // namespace

Json to_json(const InterfaceSettings& interfaces) {
  Json list = Json::array();
  for (const auto& [name, to_restore] : interfaces) {
    Json settings = Json::array();
    for (const auto& [command, file, value] : to_restore)
      settings.push_back({{"command", command}, {"file", file}, {"value", value}});
    list.push_back({{"name", name}, {"to_restore", settings}});
  }
  return list;
}

InterfaceSettings interface_settings_from(const Json& json) {
  InterfaceSettings interfaces;
  for (const Json& one : json) {
    auto& to_restore = interfaces[one.at("name")];
    for (const Json& setting : one.at("to_restore"))
      to_restore.push_back({number_from<std::uint32_t>(setting.at("command")), setting.at("file"),
                            setting.at("value")});
  }
  return interfaces;
}

Json to_json(const Offer& offer) {
  Json services = Json::array();
  append_services(services, offer.services.v4, offer);
  append_services(services, offer.services.v6, offer);
  Json json{{"version", kCarriedVersion}, {"number", offer.number}, {"services", services}};
  for (std::size_t mark = 0; mark < kMarks.size(); ++mark) {
    Json& marked = json[kMarks[mark]] = Json::array();
    for (const auto& [service, backend] : offer.marked[mark])
      marked.push_back({{"service", service}, {"backend", backend}});
  }
  Json& neighbours = json["neighbours"] = Json::array();
  for (const auto& [device, address, mac] : offer.neighbours) {
    neighbours.push_back({{"device", device}, {"address", to_string(address)}, {"mac", mac.bytes}});
  }
  json["interfaces"] = to_json(offer.to_restore);
  return json;
}

Result<Offer> offer_from(const Json& json) try {
  if (const auto version = number_from<std::uint32_t>(json.at("version"));
      version != kCarriedVersion) {
    return std::unexpected(
        Error{fmt::format("the running millrace hands over in version {}, this one takes over in "
                          "version {}: stop it, and start without --take-over",
                          version, kCarriedVersion)});
  }
  Offer offer{.number = number_from<unsigned>(json.at("number"), 1, 1'000'000'000)};
  for (const Json& service : json.at("services"))
    with_address(service, [&](const auto& address) { read_service(service, address, offer); });
  for (std::size_t mark = 0; mark < kMarks.size(); ++mark) {
    for (const Json& one : json.at(kMarks[mark]))
      offer.marked[mark].emplace(one.at("service"), one.at("backend"));
  }
  for (const Json& one : json.at("neighbours")) {
    with_address(one, [&](const auto& address) {
      offer.neighbours.insert({one.at("device"), address, mac_from(one.at("mac"))});
    });
  }
  offer.to_restore = interface_settings_from(json.at("interfaces"));
  return offer;
} catch (const std::exception&) {
  return std::unexpected(Error{"what answers there is no millrace that can hand over"});
}

std::set<std::string> overflowed_from(const Json& json) try {
  return json.at("overflowed");
} catch (const std::exception&) {
  return {};
}

}  // namespace millrace::cli
