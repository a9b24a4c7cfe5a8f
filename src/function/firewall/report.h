// The firewall's statistics as JSON (docs/stats.schema.json) and as text.
#pragma once

#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "function/firewall/deployment.h"

namespace millrace {

Json to_json(const std::vector<RuleStatistics>& rules);
std::string to_table(const std::vector<RuleStatistics>& rules);

}  // namespace millrace
