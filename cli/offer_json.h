// What a process that takes over is told first, as JSON (docs/control.md).
#pragma once

#include <set>
#include <string>

#include "command_line/json.h"
#include "control/offer.h"

namespace millrace::cli {

Json to_json(const InterfaceSettings& interfaces);
/// Throws (nlohmann::json::exception, std::invalid_argument) where it is no such list.
InterfaceSettings interface_settings_from(const Json& json);

Json to_json(const Offer& offer);
/// Error (failed): it is of another version, or no offer.
Result<Offer> offer_from(const Json& json);
/// Names of services in what is said at the end; none where that is no such answer.
std::set<std::string> overflowed_from(const Json& json);

}  // namespace millrace::cli
