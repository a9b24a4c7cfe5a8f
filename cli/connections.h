// Live connections as text for programs: a JSON object a line.
#pragma once

#include <string>

#include "worker/workers.h"

namespace millrace::cli {

/// Of workers at rest.
std::string connections_text(const Workers& workers);

}  // namespace millrace::cli
