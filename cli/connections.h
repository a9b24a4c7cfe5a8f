// Live connections as text for programs: a JSON object a line.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "worker/workers.h"

namespace millrace::cli {

nlohmann::ordered_json to_json(const WorkersConnection& connection, const BalancePlan& plan);

/// Of workers at rest.
std::string connections_text(const Workers& workers);

}  // namespace millrace::cli
