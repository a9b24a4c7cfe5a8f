// Phrases of the report for people.
#pragma once

#include <cstdint>
#include <string>

#include "report.h"

namespace millrace::cli {

/// Returns "a core" for one worker, "by 4 workers" for several, since there may be fewer cores than
/// workers.
std::string of_workers(const RunReport& report);

/// Returns why `stateless` packets were served without an entry, with the number for each reason.
std::string why_stateless(const RunReport& report, std::uint64_t stateless);

}  // namespace millrace::cli
