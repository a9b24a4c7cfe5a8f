// The offer to a process that takes over, as JSON (docs/control.md).
#pragma once

#include "control/offer.h"
#include "core/json.h"

namespace millrace {

Json to_json(const InterfaceSettings& interfaces);
/// Reads settings. Throws nlohmann::json::exception or std::invalid_argument if `json` has another
/// form.
InterfaceSettings interface_settings_from(const Json& json);

Json to_json(const Offer& offer);
/// Reads an offer. Errors: failed (another version, or not an offer).
Result<Offer> offer_from(const Json& json);
}  // namespace millrace
