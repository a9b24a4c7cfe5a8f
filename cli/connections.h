// Live connections as text for programs: a JSON object a line.
#pragma once

#include <string>

#include "json.h"
#include "worker/workers.h"

namespace millrace::cli {

Json to_json(const WorkersConnection& connection, const BalancePlan& plan);

/// Of workers at rest.
std::string connections_text(const Workers& workers);

}  // namespace millrace::cli
