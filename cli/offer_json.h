// What a process that takes over is told first, as JSON (docs/control.md).
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "worker/offer.h"

namespace millrace::cli {

nlohmann::ordered_json to_json(const Offer& offer);
/// Error (failed): it is of another version, or no offer.
Result<Offer> offer_from(const nlohmann::ordered_json& json);
/// Names of services in what is said at the end; none where that is no such answer.
std::set<std::string> overflowed_from(const nlohmann::ordered_json& json);

}  // namespace millrace::cli
