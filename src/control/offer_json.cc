#include "control/offer_json.h"

#include <fmt/format.h>

#include <exception>
#include <stdexcept>

#include "core/vlan_tag.h"
#include "function/json_reading.h"
#include "line/carried.h"

namespace millrace {
namespace {

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
  Json json{{"version", kCarriedVersion}, {"number", offer.number}};
  json["pair"] = {
      {"active", offer.is_active}, {"settled", offer.has_settled}, {"sure", offer.is_sure}};
  json.update(offer.function);
  Json& neighbours = json["neighbours"] = Json::array();
  for (const auto& [device, vlan, address, mac] : offer.neighbours) {
    neighbours.push_back(
        {{"device", device}, {"vlan", vlan}, {"address", to_string(address)}, {"mac", mac.bytes}});
  }
  json["interfaces"] = to_json(offer.to_restore);
  return json;
}

Result<Offer> offer_from(const Json& json) try {
  if (const auto version = number_from<std::uint32_t>(json.at("version"));
      version != kCarriedVersion) {
    return std::unexpected(
        Error{fmt::format("the running millrace hands over in version {}, this one takes over in "
                          "version {}: end the running one, and start this one without --take-over",
                          version, kCarriedVersion)});
  }
  Offer offer{.number = number_from<unsigned>(json.at("number"), 1, 1'000'000'000)};
  offer.function = json;
  if (json.contains("pair")) {  // not from an earlier version
    offer.is_active = json.at("pair").at("active").get<bool>();
    offer.has_settled = json.at("pair").at("settled").get<bool>();
    offer.is_sure = json.at("pair").value("sure", false);
  }
  for (const Json& one : json.at("neighbours")) {
    // An earlier version has no VLANs.
    const unsigned vlan =
        one.contains("vlan") ? number_from<unsigned>(one.at("vlan"), 0, kMostVlan) : 0;
    with_address(one, [&](const auto& address) {
      offer.neighbours.insert({one.at("device"), vlan, address, mac_from(one.at("mac"))});
    });
  }
  offer.to_restore = interface_settings_from(json.at("interfaces"));
  return offer;
} catch (const std::exception&) {
  return std::unexpected(no_offer());
}

}  // namespace millrace
