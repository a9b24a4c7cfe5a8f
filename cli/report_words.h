// Words and numbers of the report for people.
#pragma once

#include <cstdint>
#include <string>

#include "report.h"

namespace millrace::cli {

/// "a core": of one worker. Several may have fewer cores than they are.
std::string of_workers(const RunReport& report);

/// Why so many packets were served without an entry.
std::string why_stateless(const RunReport& report, std::uint64_t stateless);

}  // namespace millrace::cli
