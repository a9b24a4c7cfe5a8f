// What a process that takes over is told first, as JSON (docs/control.md).
#pragma once

#include "control/offer.h"
#include "core/json.h"

namespace millrace {

Json to_json(const InterfaceSettings& interfaces);
/// Throws (nlohmann::json::exception, std::invalid_argument) where it is no such list.
InterfaceSettings interface_settings_from(const Json& json);

Json to_json(const Offer& offer);
/// Error (failed): it is of another version, or no offer.
Result<Offer> offer_from(const Json& json);
}  // namespace millrace
