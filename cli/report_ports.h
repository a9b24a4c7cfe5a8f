// The part of a run's report that is about its ports: their devices, the kernel's interfaces beside
// them, neighbours that do not answer, and stations that answer for a service's address.
#pragma once

#include <string>

#include "core/json.h"
#include "report.h"

namespace millrace::cli {

/// Returns `ports` of the statistics; an empty array for a capture.
Json ports_of(const RunReport& report);

/// Returns lines for people; none for a capture.
std::string lines_of_ports(const RunReport& report);

}  // namespace millrace::cli
